"""Partly sorted keys."""

from benchmarks.figures.diner.leads import leading
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.figure import Figure, Sweep

WHY = (
    "With 10 intervals hardly any matching tuples are in memory at the same time, 0.1 % of the "
    "result: no region has a match, nothing tells DINER what is useful, and it flushes the "
    "highest keys first."
)

FIGURE = Figure(
    name="diner-14",
    paper=PAPER,
    title="Results before the inputs end, Zipf keys sorted, cut into intervals, and the intervals shuffled",
    claim="DINER's gain is significant in all cases.",
    sweep=Sweep(
        "intervals", (10, 20, 50, 100, 200), lambda setting, x: setting.with_source(intervals=int(x))
    ),
    contenders=contenders(Setting()),
    measure=results_online,
    verdict=leading(WHY, at_least=1.2),
    unit="thousand results",
)
