"""Results over time, the temperatures of two stations."""

from benchmarks.figures.diner.leads import leading
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import WEATHER
from benchmarks.figures.figure import Figure, Sweep

OTHERS = ("RPJ", "HMJ", "XJoin")

WHY = (
    "A walk wanders slowly: what came last is what matches next, and every join here keeps that for a while."
)

FIGURE = Figure(
    name="diner-08",
    paper=PAPER,
    title="Results while the temperatures of two stations arrive",
    claim="DINER produces results at a much higher rate than RPJ, HMJ and XJoin, throughout.",
    sweep=Sweep(
        "arrived, % of the input", (20, 40, 60, 80, 100), lambda setting, x: setting.with_(arrived=x / 100)
    ),
    contenders=contenders(Setting(source=WEATHER), "DINER", *OTHERS),
    measure=results_online,
    verdict=leading(WHY, OTHERS, at_least=1.2),
    unit="thousand results",
)
