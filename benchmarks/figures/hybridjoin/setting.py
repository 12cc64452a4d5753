"""The paper on HYBRIDJOIN, and the defaults of its experiments (its table 2)."""

from pathlib import Path

from benchmarks.figures.figure import Paper, Sweep
from benchmarks.figures.queues.setting import MEGABYTE, QueueSetting

PAPER = Paper(
    name="hybridjoin",
    citation=(
        "M. A. Naeem, G. Dobbie, G. Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, International "
        "Journal of Data Warehousing and Mining 7(4), 2011"
    ),
    scale=50,
    setting=Path(__file__).with_name("setting.md").read_text(),
)

HYBRIDJOIN = QueueSetting("hybridjoin")
MESHJOIN = QueueSetting("meshjoin")
INLJ = QueueSetting("inlj")
JOINS = {"HYBRIDJOIN": HYBRIDJOIN, "MESHJOIN": MESHJOIN, "INLJ": INLJ}

MASTER_SWEEP: Sweep[QueueSetting] = Sweep(
    "rows of the master, millions",
    (0.5, 1, 2, 4, 8),
    lambda setting, x: setting.with_(rows=int(x * 1e6)),
    is_logarithmic=True,
)
MEMORY_SWEEP: Sweep[QueueSetting] = Sweep(
    "memory, MB", (50, 100, 150, 250), lambda setting, x: setting.with_(memory=x * MEGABYTE)
)
