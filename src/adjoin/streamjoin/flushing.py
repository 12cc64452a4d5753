"""Which tuples leave memory when it is full: what a join has to say about that."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from adjoin.kernels.types import Array
from adjoin.streamjoin.index import Entries
from adjoin.streamjoin.tuples import Tuples


class FlushPolicy(ABC):
    """Chooses tuples to be written to disk, from what it was told of arrivals and matches."""

    @abstractmethod
    def joined(self, side: int, low: Array, other_low: Array) -> None:
        """Tuples of this side, with these keys, arrived and had a match each, with these keys."""

    @abstractmethod
    def added(self, side: int, low: Array) -> None:
        """Tuples of this side came into memory; keys ascend."""

    @abstractmethod
    def choose(self, inputs: Sequence[Tuples], rows: int, preferred: int | None) -> tuple[int, Entries]:
        """A side, and about so many of its tuples, at least one; of the preferred side if it has any."""

    @abstractmethod
    def flushed(self, side: int, low: Array, inputs: Sequence[Tuples]) -> None:
        """Tuples of this side have left memory; keys ascend."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What must be known to go on."""

    @abstractmethod
    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
