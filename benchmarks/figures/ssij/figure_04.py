"""Throughput over skew, the most frequent keys scattered."""

from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.setting import PAPER, SSIJ

SIDE_BY_SIDE = "SSIJ, NoPerm"


def verdict(curves: Curves) -> Verdict:
    """Both placements give about the same rate."""
    ratios = curves.ratios("SSIJ, Random", SIDE_BY_SIDE)
    return Verdict(
        holds=min(ratios) > 0.85 and curves.growth("SSIJ, Random") > 2,
        number=f"Random reaches {min(ratios):.2f} to {max(ratios):.2f} of NoPerm, and gains x "
        f"{curves.growth('SSIJ, Random'):.1f} from skew 0 to 1",
        why=(
            "The pages of a key are adjacent, so a hot key makes five or six hot pages wherever it is. "
            "Only the gain falls short, as in figure 3."
        ),
    )


FIGURE = Figure(
    name="ssij-04",
    paper=PAPER,
    title="Throughput over skew, memory 7.5 %, the most frequent keys scattered (Random)",
    claim="SSIJ does equally well when the frequent keys are scattered over the domain.",
    sweep=Sweep("skew", (0.0, 0.25, 0.5, 0.75, 1.0), lambda setting, x: setting.with_stream(skew=x)),
    contenders={
        "SSIJ, Random": SSIJ.with_stream(placement="random"),
        SIDE_BY_SIDE: SSIJ,
    },
    measure=sustainable_rate,
    verdict=verdict,
)
