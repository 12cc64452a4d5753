"""Keys whose mean moves."""

from benchmarks.figures.diner.leads import leading_more
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import MovingNormal
from benchmarks.figures.figure import Figure, Sweep

WHY = (
    "It gains the more the faster the mean moves, but not three times. RPJ forgets old "
    "arrivals here in the time in which memory fills anew, which the paper does not say of "
    "it; and memory is small enough that old tuples leave soon with any policy."
)

FIGURE = Figure(
    name="diner-15",
    paper=PAPER,
    title="Results before the inputs end, normal keys whose mean moves in each of 10 periods",
    claim="DINER produces up to 3 times as many results, the more the faster the distribution changes.",
    sweep=Sweep("shift of the mean", (0, 5, 10, 15, 20), lambda setting, x: setting.with_source(shift=x)),
    contenders=contenders(Setting(source=MovingNormal())),
    measure=results_online,
    verdict=leading_more(WHY, goal=2.7),
    unit="thousand results",
)
