"""MaxOuterMem."""

from benchmarks.figures.diner.measures import results_online
from benchmarks.figures.diner.setting import PAPER, Setting
from benchmarks.figures.figure import Curves, Figure, Sweep, Verdict

_HERE = 12 / 19
"""A block of the paper, in blocks here with the same share of the memory."""

WHY = "More outer blocks in memory give more results for each inner block that is read."


def verdict(curves: Curves) -> Verdict:
    """The minimum is within a tenth of the maximum."""
    ratio = min(curves["DINER"]) / max(curves["DINER"])
    return Verdict(
        holds=ratio >= 0.9,
        number=f"the minimum is {ratio:.3f} of the maximum",
        why="" if ratio >= 0.9 else WHY,
    )


FIGURE = Figure(
    name="diner-19",
    paper=PAPER,
    title="Results before the inputs end over MaxOuterMem, Zipf keys, pauses of 30 %",
    claim="The number of outer blocks in memory hardly matters.",
    sweep=Sweep(
        "MaxOuterMem, blocks of the paper",
        (9, 19, 29, 39, 49, 59),
        lambda setting, x: setting.with_(max_outer=round(x * _HERE)),
    ),
    contenders={"DINER": Setting(silence=0.3)},
    measure=results_online,
    verdict=verdict,
    unit="thousand results",
)
