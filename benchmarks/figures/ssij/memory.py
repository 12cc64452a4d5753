"""What the figures over memory share."""

from typing import Literal

from benchmarks.figures.figure import Curves, Sweep, Verdict
from benchmarks.figures.setting import Setting
from benchmarks.figures.ssij.setting import MESHJOIN, SLOW, SLOW_MESHJOIN, SSIJ, WHY_MESHJOIN

SKEWS = (0.0, 0.5, 1.0)
CLAIM = (
    "SSIJ rises with memory and skew, up to 6 times the throughput of MeshJoin; "
    "close to 3000 rows per second or more at 1 % of memory."
)


def memory_sweep(percents: tuple[float, ...] = (1, 2.5, 5, 10)) -> Sweep[Setting]:
    """Memory in percent of the master."""
    return Sweep("memory, % of the master", percents, lambda setting, x: setting.with_memory(x / 100))


def skews(placement: Literal["noperm", "random"]) -> dict[str, Setting]:
    """SSIJ at several skews; MeshJoin, which skew does not affect, at 0, where placement does not matter."""
    lines = {f"SSIJ, skew {skew:g}": SSIJ.with_stream(skew=skew, placement=placement) for skew in SKEWS}
    return {
        **lines,
        "MeshJoin": MESHJOIN.with_stream(skew=0.0, placement="noperm"),
        SLOW: SLOW_MESHJOIN.with_stream(skew=0.0, placement="noperm"),
    }


def verdict(curves: Curves) -> Verdict:
    """SSIJ rises with memory and skew, and is several times faster than MeshJoin."""
    rises = all(curves.is_rising(f"SSIJ, skew {skew:g}") for skew in SKEWS)
    least = [curves.at(f"SSIJ, skew {skew:g}", curves.x[0]) for skew in SKEWS]
    best, slow = max(curves.ratios("SSIJ, skew 1", "MeshJoin")), max(curves.ratios("SSIJ, skew 1", SLOW))
    return Verdict(
        holds=rises and best >= 6,
        number=(
            f"SSIJ is at most {best:.2f} times as fast as MeshJoin, {slow:.1f} times as fast as MeshJoin at "
            f"9.5 MB/s; at {curves.x[0]:g} % {least[0]:,.0f} (skew 0) to {least[-1]:,.0f} rows/s (skew 1)"
        ),
        why=WHY_MESHJOIN,
    )
