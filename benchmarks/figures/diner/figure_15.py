"""Keys whose mean moves."""

from benchmarks.figures.diner.leads import gains, least, most, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import MovingNormal
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict


def verdict(curves: Curves) -> Verdict:
    """Up to 3 times as many, and the more the faster the mean moves."""
    found = gains(curves)
    grows = all(ratios[-1] > ratios[0] for ratios in found.values())
    holds = least(found) > 1 and most(found) >= 2.7 and grows
    return Verdict(
        holds=holds,
        number=f"DINER has {said(found)}, "
        + ", ".join(f"{ratios[0]:.2f} -> {ratios[-1]:.2f} x {other}" for other, ratios in found.items()),
        why="" if holds else "{WHY}",
    )


FIGURE = Figure(
    name="diner-15",
    paper=PAPER,
    title="Results before the inputs end, normal keys whose mean moves in each of 10 periods",
    claim="DINER produces up to 3 times as many results, the more the faster the distribution changes.",
    sweep=Sweep("shift of the mean", (0, 5, 10, 15, 20), lambda setting, x: setting.with_source(shift=x)),
    contenders=contenders(Setting(source=MovingNormal())),
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
