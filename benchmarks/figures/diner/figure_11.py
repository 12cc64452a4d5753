"""Normal keys, different means."""

from benchmarks.figures.diner.leads import leading_more
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import NormalPair
from benchmarks.figures.figure import Figure, Sweep

WHY = "Matching values become rare in both inputs, and few of them are in memory under any policy."

FIGURE = Figure(
    name="diner-11",
    paper=PAPER,
    title="Results before the inputs end, normal keys with different means",
    claim="The further apart the two distributions are, the more DINER gains.",
    sweep=Sweep(
        "distance of the means", (0, 5, 10, 15, 20), lambda setting, x: setting.with_source(mean_distance=x)
    ),
    contenders=contenders(Setting(source=NormalPair())),
    measure=results_online,
    verdict=leading_more(WHY),
    unit="thousand results",
)
