"""Keys with a moving mean."""

from benchmarks.figures.diner.leads import leading_more
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import MovingNormal
from benchmarks.figures.figure import Figure, Sweep

WHY = (
    "The gain grows with the speed of the mean, but not to a factor of three. Our RPJ forgets old "
    "arrivals in the time it takes to refill memory, which the paper does not say; and memory is small "
    "enough that old tuples leave soon under any policy."
)

FIGURE = Figure(
    name="diner-15",
    paper=PAPER,
    title="Results before the inputs end, normal keys whose mean moves 10 times",
    claim="DINER produces up to 3 times as many results; the gain grows with the speed of change.",
    sweep=Sweep("shift of the mean", (0, 5, 10, 15, 20), lambda setting, x: setting.with_source(shift=x)),
    contenders=contenders(Setting(source=MovingNormal())),
    measure=results_online,
    verdict=leading_more(WHY, goal=2.7),
    unit="thousand results",
)
