"""A snowflake of six relations, which the paper leaves to future work."""

from benchmarks.figures.figure import Curves, Figure, Verdict
from benchmarks.figures.miner.measures import share_online
from benchmarks.figures.miner.relations import CHAINS, SNOWFLAKE
from benchmarks.figures.miner.setting import MEMORY_SWEEP, PAPER, Setting

WHY = (
    "All relations become equally large in memory, so every further one takes some of the share of R2 and R3."
)


def verdict(curves: Curves) -> Verdict:
    """Two more inputs cost at most 20 points, and MJoin's naive extension emits less."""
    chain, snowflake = curves["MINER, chain of four"], curves["MINER, snowflake of six"]
    loss = max(before - after for before, after in zip(chain, snowflake, strict=True))
    ratios = curves.ratios("MINER, snowflake of six", "MJoin, snowflake of six")
    holds = loss <= 20 and min(ratios) > 1
    return Verdict(
        holds=holds,
        number=f"at most {loss:.0f} points less than the chain; {min(ratios):.1f} to {max(ratios):.1f} times "
        "the results of MJoin",
        why="" if holds else WHY,
    )


FIGURE = Figure(
    name="miner-snowflake",
    paper=PAPER,
    title="Share of the result before the inputs end, R5 and R6 joined with R2 and R3 of the chain",
    claim=(
        "The paper leaves snowflakes to future work; going by its chains, every further input should cost "
        "little."
    ),
    sweep=MEMORY_SWEEP,
    contenders={
        "MINER, chain of four": Setting(relations=CHAINS[4]),
        "MINER, snowflake of six": Setting(relations=SNOWFLAKE),
        "MJoin, snowflake of six": Setting(algorithm="MJoin", relations=SNOWFLAKE),
    },
    measure=share_online,
    verdict=verdict,
    unit="% of all results",
)
