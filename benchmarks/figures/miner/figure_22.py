"""A star on one key, against MJoin."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.miner.measures import share_online
from benchmarks.figures.miner.relations import ONE_KEY
from benchmarks.figures.miner.setting import MEMORY_SWEEP, PAPER, Setting

WHY = "A flushed bucket takes the most frequent keys with it; how often depends on the buckets."


def verdict(curves: Curves) -> Verdict:
    """60 times as many results as MJoin in the smallest memory."""
    ratios = curves.ratios("MINER", "MJoin")
    holds = ratios[0] >= 60
    return Verdict(
        holds=holds,
        number=f"{ratios[0]:.1f} times the results of MJoin in 5 % of memory, {ratios[-1]:.1f} in 20 %",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="miner-22",
    paper=PAPER,
    title="Share of the result before the inputs end, four relations joined on one key",
    claim="MINER emits 60 times as many results as MJoin in little memory.",
    sweep=MEMORY_SWEEP,
    contenders={name: Setting(algorithm=name, relations=ONE_KEY) for name in ("MINER", "MJoin")},
    measure=share_online,
    verdict=verdict,
    unit="% of all results",
)
