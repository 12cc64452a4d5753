"""Normal keys, different variances."""

from benchmarks.figures.diner.leads import gains, least, said
from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting, contenders
from benchmarks.figures.diner.sources import NormalPair
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict


def verdict(curves: Curves) -> Verdict:
    """More than the others, and the more the further apart the relations are."""
    found = gains(curves)
    grows = all(ratios[-1] > ratios[0] for ratios in found.values())
    holds = least(found) > 1 and grows
    return Verdict(
        holds=holds,
        number=f"DINER has {said(found)}, "
        + ", ".join(f"{ratios[0]:.2f} -> {ratios[-1]:.2f} x {other}" for other, ratios in found.items()),
        why="" if holds else "{WHY}",
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
    verdict=verdict,
    unit="thousand results",
)
