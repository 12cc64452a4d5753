"""Normal keys, different variances."""

from benchmarks.figures.diner.leads import leading_more
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import NormalPair
from benchmarks.figures.figure import Figure, Sweep

WHY = (
    "With more variance on the right, results spread over more values, so no small set of them is "
    "worth keeping; RPJ then loses less by its coarse partitions."
)

FIGURE = Figure(
    name="diner-12",
    paper=PAPER,
    title="Results before the inputs end, normal keys with different variances",
    claim="The further apart the two distributions are, the more DINER gains.",
    sweep=Sweep(
        "difference of the variances",
        (0, 50, 100, 150, 200),
        lambda setting, x: setting.with_source(more_variance=x),
    ),
    contenders=contenders(Setting(source=NormalPair())),
    measure=results_online,
    verdict=leading_more(WHY),
    unit="thousand results",
)
