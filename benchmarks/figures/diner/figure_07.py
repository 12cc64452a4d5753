"""Results over time, the prices of a stock."""

from benchmarks.figures.diner.leads import gains, least, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import CSCO
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict

OTHERS = ("RPJ", "HMJ", "XJoin")


def verdict(curves: Curves) -> Verdict:
    """DINER has more at every time."""
    found = gains(curves, OTHERS)
    return Verdict(
        holds=least(found) > 1,
        number=f"DINER has {said(found)}",
        why="" if least(found) > 1 else "{WHY}",
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
    verdict=verdict,
    unit="thousand results",
)
