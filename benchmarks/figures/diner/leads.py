"""What several figures claim: DINER emits more than the others."""

from collections.abc import Callable, Sequence

from benchmarks.figures.figure import Curves, Verdict

Gains = dict[str, tuple[float, ...]]
"""DINER's results as a multiple of each other join's, over the sweep."""


def gains(curves: Curves, others: Sequence[str] = ("RPJ", "HMJ"), suffix: str = "") -> Gains:
    """DINER's gain over each other join; the suffix is part of the curves' names."""
    return {other: curves.ratios(f"DINER{suffix}", f"{other}{suffix}") for other in others}


def said(found: Gains) -> str:
    """The gains in words.

    >>> said({"RPJ": (1.5, 2.0), "HMJ": (3.0, 2.5)})
    '1.50 to 2.00 x RPJ, 2.50 to 3.00 x HMJ'
    """
    return ", ".join(f"{min(ratios):.2f} to {max(ratios):.2f} x {other}" for other, ratios in found.items())


def least(found: Gains) -> float:
    """The smallest gain over any other join."""
    return min(min(ratios) for ratios in found.values())


def most(found: Gains) -> float:
    """The greatest gain over any other join."""
    return max(max(ratios) for ratios in found.values())


def leading(
    why: str = "", others: Sequence[str] = ("RPJ", "HMJ"), at_least: float = 1.0
) -> Callable[[Curves], Verdict]:
    """The claim that DINER emits more than the others at every point, or "much more", by a factor."""

    def verdict(curves: Curves) -> Verdict:
        found = gains(curves, others)
        return _judged(least(found) > at_least, f"DINER emits {said(found)}", why)

    return verdict


def leading_more(why: str = "", goal: float = 1.0) -> Callable[[Curves], Verdict]:
    """The claim that it emits more, up to `goal` times as much, with a gain that grows over the sweep."""

    def verdict(curves: Curves) -> Verdict:
        found = gains(curves)
        grows = all(ratios[-1] > ratios[0] for ratios in found.values())
        ends = ", ".join(f"{ratios[0]:.2f} -> {ratios[-1]:.2f} x {other}" for other, ratios in found.items())
        holds = least(found) > 1 and most(found) >= goal and grows
        return _judged(holds, f"DINER emits {said(found)}; {ends}", why)

    return verdict


def _judged(holds: bool, number: str, why: str) -> Verdict:
    return Verdict(holds, number, "" if holds else why)
