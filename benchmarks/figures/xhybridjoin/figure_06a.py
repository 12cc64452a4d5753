"""Model and measurement over the size of the swappable part."""

from benchmarks.figures.figure import Figure, Sweep
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.deviation import contenders, verdict
from benchmarks.figures.xhybridjoin.setting import PAPER, PINNED_PAGES, TUNED

FIGURE = Figure(
    name="xhybridjoin-06a",
    paper=PAPER,
    title=f"Service rate over the size of the swappable part, {PINNED_PAGES} pinned pages, memory 50 MB",
    claim="Model and measurement deviate by only 0.5 %.",
    sweep=Sweep(
        "swappable pages",
        (50, 100, 200, 400, 800, 1600),
        lambda setting, x: setting.with_(disk_pages=int(x)),
        is_logarithmic=True,
    ),
    contenders=contenders(TUNED.with_(pinned_pages=PINNED_PAGES)),
    measure=service_rate,
    verdict=verdict,
)
