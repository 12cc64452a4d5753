"""One point of a figure on a stream join: the join, its inputs and their arrivals, its memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from adjoin import DINER, RPJ, HashMergeJoin, ProgressiveMergeJoin, XJoin
from benchmarks.figures.diner.sources import Keys, ZipfKeys
from benchmarks.figures.figure import Paper, Sweep, World

PAPER = Paper(
    name="diner",
    citation=(
        "Bornea, Vassalos, Kotidis, Deligiannakis: Adaptive Join Operators for Result Rate Optimization on "
        "Streaming Inputs (TKDE 2010)"
    ),
    scale=2,
    setting=Path(__file__).with_name("setting.md").read_text(),
)
JOINS: dict[str, Any] = {
    "DINER": DINER,
    "RPJ": RPJ,
    "HMJ": HashMergeJoin,
    "XJoin": XJoin,
    "PMJ": ProgressiveMergeJoin,
}


ZIPF = ZipfKeys()


class Source(Protocol):
    """The keys of both relations at any scale."""

    def draw(self, world: World) -> Keys: ...


@dataclass(frozen=True)
class Setting:
    """A join of the paper.

    Attributes:
        algorithm: One of `JOINS`.
        source: The keys.
        memory: For tuples and their indexes, as a share of the input.
        silence: The pause after each tenth of a relation, as a share of the time of that tenth.
        arrived: The share of the input that has arrived when results are counted.
        within: Band of the join; None: equality.
        max_outer: Outer blocks of a reactive phase of DINER, of 8 KB; the paper's 19 have 10 KB.
    """

    algorithm: str = "DINER"
    source: Source = ZIPF
    memory: float = 0.05
    silence: float = 0.0
    arrived: float = 1.0
    within: int | None = None
    max_outer: int = 12

    def with_(self, **changes: Any) -> "Setting":
        """The same with other attributes."""
        return replace(self, **changes)

    def with_source(self, **changes: Any) -> "Setting":
        """The same with other keys."""
        return replace(self, source=replace(self.source, **changes))  # type: ignore[type-var]


def contenders(setting: Setting, *names: str) -> dict[str, Setting]:
    """The setting for each of these joins; DINER, RPJ and HMJ by default."""
    return {name: setting.with_(algorithm=name) for name in names or ("DINER", "RPJ", "HMJ")}


def memory_sweep(*shares: float) -> Sweep[Setting]:
    """Memory, in percent of the input."""
    return Sweep("memory, % of the input", shares, lambda setting, share: setting.with_(memory=share / 100))
