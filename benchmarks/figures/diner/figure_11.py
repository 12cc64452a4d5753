"""Normal keys, different means."""

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
    name="diner-11",
    paper=PAPER,
    title="Results before the inputs end, normal keys with different means",
    claim="The further apart the two distributions are, the more DINER gains.",
    sweep=Sweep(
        "distance of the means", (0, 5, 10, 15, 20), lambda setting, x: setting.with_source(mean_distance=x)
    ),
    contenders=contenders(Setting(source=NormalPair())),
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
