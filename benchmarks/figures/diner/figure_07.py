"""Results over time, the prices of a stock."""

from benchmarks.figures.diner.leads import leading
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import CSCO
from benchmarks.figures.figure import Figure, Sweep

OTHERS = ("RPJ", "HMJ", "XJoin")

WHY = (
    "A walk wanders slowly: what came last is what matches next, and every join here keeps that for a while."
)

FIGURE = Figure(
    name="diner-07",
    paper=PAPER,
    title="Results while the prices of a stock arrive",
    claim="DINER produces results at a much higher rate than RPJ, HMJ and XJoin, throughout.",
    sweep=Sweep(
        "arrived, % of the input", (20, 40, 60, 80, 100), lambda setting, x: setting.with_(arrived=x / 100)
    ),
    contenders=contenders(Setting(source=CSCO), "DINER", *OTHERS),
    measure=results_online,
    verdict=leading(WHY, OTHERS, at_least=1.2),
    unit="thousand results",
)
