"""What several figures claim: DINER delivers more than the others."""

from collections.abc import Sequence

from benchmarks.figures.figure import Curves


def gains(
    curves: Curves, others: Sequence[str] = ("RPJ", "HMJ"), suffix: str = ""
) -> dict[str, tuple[float, ...]]:
    """Results of DINER by those of each other, over the sweep."""
    return {other: curves.ratios(f"DINER{suffix}", f"{other}{suffix}") for other in others}


def said(found: dict[str, tuple[float, ...]]) -> str:
    """The gains in words.

    >>> said({"RPJ": (1.5, 2.0), "HMJ": (3.0, 2.5)})
    '1.50 to 2.00 x RPJ, 2.50 to 3.00 x HMJ'
    """
    return ", ".join(f"{min(ratios):.2f} to {max(ratios):.2f} x {other}" for other, ratios in found.items())


def least(found: dict[str, tuple[float, ...]]) -> float:
    """The least gain over any other."""
    return min(min(ratios) for ratios in found.values())


def most(found: dict[str, tuple[float, ...]]) -> float:
    """The greatest gain over any other."""
    return max(max(ratios) for ratios in found.values())
