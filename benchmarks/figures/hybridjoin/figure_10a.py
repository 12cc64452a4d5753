"""Processing time over the size of the master."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.hybridjoin.setting import HYBRIDJOIN, MASTER_SWEEP, MESHJOIN, PAPER
from benchmarks.figures.queues.times import processing_time

FULL_HYBRIDJOIN, FULL_MESHJOIN = "HYBRIDJOIN, rows always there", "MESHJOIN, rows always there"


def verdict(curves: Curves) -> Verdict:
    """Far shorter than MESHJOIN's."""
    slow, fast = (curves.ratios("MESHJOIN", f"HYBRIDJOIN, {rate} rows/s") for rate in (125, 1000))
    full = curves.ratios(FULL_MESHJOIN, FULL_HYBRIDJOIN)
    return Verdict(
        holds=min(slow) > 2 and min(fast) > 2,
        number=f"MESHJOIN takes {min(slow):.1f} to {max(slow):.1f} times as long at 125 rows/s, "
        f"{min(fast):.1f} to {max(fast):.1f} times at 1000, {min(full):.2f} to {max(full):.2f} times "
        "when rows are always available",
        why=(
            "It holds for slow streams only; the paper does not say how fast its stream was. The slower "
            "it is, the fewer pages HYBRIDJOIN reads, while MESHJOIN always reads all. When memory is full, "
            "the time is the number of pending rows divided by the rate: both have the same number, and "
            "MESHJOIN joins a row after half its stay."
        ),
    )


FIGURE = Figure(
    name="hybridjoin-10a",
    paper=PAPER,
    title="Processing time, from taking a row to joining it, over the size of the master",
    claim="The processing time of HYBRIDJOIN is significantly smaller than that of MESHJOIN (log axis).",
    sweep=MASTER_SWEEP,
    contenders={
        "HYBRIDJOIN, 125 rows/s": HYBRIDJOIN.with_(arrivals=125),
        "HYBRIDJOIN, 1000 rows/s": HYBRIDJOIN.with_(arrivals=1000),
        "MESHJOIN": MESHJOIN.with_(arrivals=1000),
        FULL_HYBRIDJOIN: HYBRIDJOIN,
        FULL_MESHJOIN: MESHJOIN,
    },
    measure=processing_time,
    verdict=verdict,
    unit="seconds",
    is_logarithmic=True,
)
