"""The paper on X-HYBRIDJOIN; its data are those of the paper on HYBRIDJOIN."""

from pathlib import Path

from benchmarks.figures.figure import Paper
from benchmarks.figures.queues.setting import QueueSetting

PAPER = Paper(
    name="xhybridjoin",
    citation=(
        "M. A. Naeem, G. Dobbie, G. Weber: Efficient Processing of Streaming Updates with Archived Master "
        "Data in Near-Real-Time Data Warehousing, Knowledge and Information Systems, 2013"
    ),
    scale=50,
    setting=Path(__file__).with_name("setting.md").read_text(),
)

X = "X-HYBRIDJOIN"
TUNED = QueueSetting("xhybridjoin")
UNTUNED = QueueSetting("xhybridjoin", parts="equal")
JOINS = {
    X: UNTUNED,
    "HYBRIDJOIN": QueueSetting("hybridjoin"),
    "MESHJOIN": QueueSetting("meshjoin"),
    "R-MESHJOIN": QueueSetting("rmeshjoin"),
}

CORRECTED, PRINTED = "model, corrected", "model, equation 9"
DISK_PAGES, PINNED_PAGES = 400, 1600
"""About the best sizes, by the corrected model."""

WHY_EQUATION_9 = (
    "Equation 9 uses the variance of a binomial distribution instead of its mean, and takes the load of the "
    "oldest row for an average one; with both corrected, the model agrees, see docs/cost_models.md."
)
