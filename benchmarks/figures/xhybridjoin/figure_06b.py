"""Model and measurement over the size of the pinned part."""

from benchmarks.figures.figure import Figure, Sweep
from benchmarks.figures.queues.measures import service_rate
from benchmarks.figures.xhybridjoin.deviation import contenders, verdict
from benchmarks.figures.xhybridjoin.setting import DISK_PAGES, PAPER, TUNED

FIGURE = Figure(
    name="xhybridjoin-06b",
    paper=PAPER,
    title=f"Service rate over the size of the pinned part, {DISK_PAGES} swappable pages, memory 50 MB",
    claim="Model and measurement deviate by only 0.6 %.",
    sweep=Sweep(
        "pinned pages",
        (50, 200, 400, 800, 1600, 3200),
        lambda setting, x: setting.with_(pinned_pages=int(x)),
        is_logarithmic=True,
    ),
    contenders=contenders(TUNED.with_(disk_pages=DISK_PAGES)),
    measure=service_rate,
    verdict=verdict,
)
