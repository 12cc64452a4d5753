"""The cache policy: utility against least recently used."""

from dataclasses import replace

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.measures import sustainable_rate
from benchmarks.figures.ssij.memory import memory_sweep
from benchmarks.figures.ssij.setting import PAPER, SSIJ

LRU = "SSIJ, least recently used"


def verdict(curves: Curves) -> Verdict:
    """Utility wins at every memory size."""
    ratios = curves.ratios("SSIJ", LRU)
    return Verdict(
        holds=min(ratios) > 1,
        number=f"utility is {min(ratios):.2f} to {max(ratios):.2f} times as fast as least recently used",
        why="As the paper says, pages read for the tail of the stream evict those of its head.",
    )


FIGURE = Figure(
    name="ssij-11",
    paper=PAPER,
    title="Throughput over memory with two cache policies, skew 1",
    claim="Keeping pages by utility beats keeping the most recently used ones.",
    sweep=memory_sweep(),
    contenders={
        "SSIJ": SSIJ,
        LRU: replace(SSIJ, algorithm="ssij, least recently used"),
    },
    measure=sustainable_rate,
    verdict=verdict,
)
