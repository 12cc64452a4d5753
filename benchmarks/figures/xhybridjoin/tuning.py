"""What tuning gains."""

from benchmarks.figures.figure import Curves, Verdict
from benchmarks.figures.xhybridjoin.setting import TUNED, UNTUNED

CONTENDERS = {"tuned": TUNED, "not tuned (equal parts)": UNTUNED}


def verdict(curves: Curves) -> Verdict:
    """Significantly better everywhere."""
    ratios = curves.ratios(*CONTENDERS)
    return Verdict(
        holds=min(ratios) > 1.05,
        number=f"tuned {min(ratios):.2f} to {max(ratios):.2f} times not tuned",
        why=(
            "Tuned is better, but equal parts of the best size for HYBRIDJOIN are near the best, as the "
            "top is flat. The paper does not say how large its untuned parts were. Figure 3d follows from "
            "parts of 2 pages: by the corrected model tuning would gain a factor of 21 over those, at 50 "
            "MB."
        ),
    )
