"""Memory, with stand-ins for the real data."""

from benchmarks.figures.diner.leads import gains, least, most, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, Source, contenders, memory_sweep
from benchmarks.figures.diner.sources import CSCO, IPIX, WEATHER
from benchmarks.figures.figure import Curves, Figure, Verdict

DATA: dict[str, Source] = {"CSCO": CSCO, "IPIX": IPIX, "Weather": WEATHER}

WHY = (
    "The stand-ins are slow random walks: the most recent tuples are those that match next, and "
    "every join here keeps them for a while."
)


def verdict(curves: Curves) -> Verdict:
    """More than the others everywhere, 2.5 times somewhere, and more as memory shrinks."""
    found = {
        f"{other}, {name}": ratios
        for name in DATA
        for other, ratios in gains(curves, suffix=f", {name}").items()
    }
    shrinks = all(ratios[0] >= ratios[-1] for ratios in found.values())
    holds = least(found) > 1 and most(found) >= 2.25 and shrinks
    return Verdict(
        holds=holds,
        number=f"DINER emits {said(found)}"
        + ("" if shrinks else "; the gain does not always grow as memory shrinks"),
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="diner-09",
    paper=PAPER,
    title="Results before the inputs end, over memory",
    claim="DINER produces up to 2.5 times as many results; the gain grows as memory shrinks.",
    sweep=memory_sweep(5, 10, 15, 20),
    contenders={
        f"{name}, {data}": setting
        for data, source in DATA.items()
        for name, setting in contenders(Setting(source=source)).items()
    },
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
