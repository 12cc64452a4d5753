"""Which tuples leave memory when it is full: what a join has to say about that."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adjoin.kernels.types import Array
from adjoin.streamjoin.memory.ordered_index import Entries
from adjoin.streamjoin.memory.tuples import Keys, Tuples


@dataclass(frozen=True)
class Shortage:
    """Memory is full.

    Attributes:
        inputs: What of each input is there.
        rows: Of each input, how many tuples are about a block; so many or more are to leave.
        preferred: The input that nothing will ask for any more; None where there is none with tuples.
    """

    inputs: Sequence[Tuples]
    rows: Sequence[int]
    preferred: int | None


class Leaving(NamedTuple):
    """Tuples of an input that leave memory, and the join attribute whose index has these entries."""

    side: int
    entries: Entries
    attribute: int = 0


class FlushPolicy(ABC):
    """Chooses tuples to be written to disk, from what it was told of arrivals and matches.

    What it is told is its own affair; this one does not listen.
    """

    def joined(self, side: int, low: Array, attribute: int = 0) -> None:  # noqa: B027
        """Tuples of this side, with these keys, were in one result each."""

    def added(self, side: int, keys: Keys) -> None:  # noqa: B027
        """Tuples of this side came into memory."""

    @abstractmethod
    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """Tuples that leave, about as many as must, or more; at least one.

        What was chosen has left before the next is asked for.
        """

    def flushed(self, side: int, low: Sequence[Array], tuples: Tuples) -> None:  # noqa: B027
        """Tuples of this side have left memory, with these keys of each attribute; these are left."""

    def check_invariants(self, inputs: Sequence[Tuples]) -> None:  # noqa: B027
        """Raise AssertionError if what it knows contradicts what is in memory."""

    def to_json(self) -> dict[str, Any]:
        """What must be known to go on."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:  # noqa: B027
        """Go on from what `to_json` said."""
