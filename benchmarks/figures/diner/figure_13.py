"""Range joins."""

from benchmarks.figures.diner.measures import share_online
from benchmarks.figures.diner.setting import PAPER, Setting, Source, contenders
from benchmarks.figures.diner.sources import CSCO, IPIX, WEATHER
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict

DATA: dict[int, Source] = {1: CSCO, 2: IPIX, 3: WEATHER}

WHY = "Memory fills so often that PMJ is hardly behind."


def verdict(curves: Curves) -> Verdict:
    """More than PMJ for all data."""
    ratios = curves.ratios("DINER", "PMJ")
    return Verdict(
        holds=min(ratios) > 1.5,
        number=f"DINER emits {min(ratios):.2f} to {max(ratios):.2f} x PMJ",
        why="" if min(ratios) > 1.5 else WHY,
    )


FIGURE = Figure(
    name="diner-13",
    paper=PAPER,
    title="Range joins: prices less than 5 cents apart, temperatures less than 5 degrees",
    claim="DINER emits far more of the result before the inputs end than PMJ, the only other range join.",
    sweep=Sweep(
        "1: CSCO, 2: IPIX, 3: Weather", tuple(DATA), lambda setting, x: setting.with_(source=DATA[int(x)])
    ),
    contenders=contenders(Setting(within=4), "DINER", "PMJ"),
    measure=share_online,
    verdict=verdict,
    unit="% of all results",
)
