"""One point of a figure on a join of many streams: the join, its inputs and arrivals, its memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adjoin import MINER, MJoin
from benchmarks.figures.diner.setting import PAPER as DINER_PAPER
from benchmarks.figures.figure import Paper, Sweep
from benchmarks.figures.miner.relations import CHAINS, Relations

PAPER = Paper(
    name="miner",
    citation=DINER_PAPER.citation,
    scale=4,
    setting=Path(__file__).with_name("setting.md").read_text(),
)
JOINS: dict[str, Any] = {"MINER": MINER, "MJoin": MJoin}
BOUND = "bound"
"""Instead of a join: the upper bound."""


@dataclass(frozen=True)
class Setting:
    """A join of the paper.

    Attributes:
        algorithm: One of `JOINS`, or `BOUND`.
        relations: What is joined.
        memory: For tuples and their indexes, as a share of the input.
        silence: The pause after each tenth of a relation, as a share of the time of that tenth.
        max_outer: Outer blocks of a reactive phase of MINER, of 8 KB.
    """

    algorithm: str = "MINER"
    relations: Relations = CHAINS[4]
    memory: float = 0.05
    silence: float = 0.0
    max_outer: int = 6

    def with_(self, **changes: Any) -> "Setting":
        """The same with other attributes."""
        return replace(self, **changes)


def by_inputs(setting: Setting) -> dict[str, Setting]:
    """The setting for chains of two, three and four inputs."""
    return {f"{count} inputs": setting.with_(relations=chain) for count, chain in CHAINS.items()}


MEMORY_SWEEP: Sweep[Setting] = Sweep(
    "memory, % of the input", (5, 10, 15, 20), lambda setting, share: setting.with_(memory=share / 100)
)
SILENCE_SWEEP: Sweep[Setting] = Sweep(
    "pause, % of a fragment's time", (10, 20, 30, 40, 50), lambda setting, x: setting.with_(silence=x / 100)
)
