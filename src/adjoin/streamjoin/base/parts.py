"""The parts that a spilling join is composed of: what differs from one algorithm to the next."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from adjoin.arrow.encodings import Orders
from adjoin.kernels.types import Array
from adjoin.streamjoin.memory.ordered_index import Entries
from adjoin.streamjoin.memory.tuples import KeyIntervals, MemoryTuples


class JoinSpec(Protocol):
    """What is joined, and when rows match.

    Attributes:
        names: The names of the inputs.
        schemas: Their schemas.
        stored: The columns of each input that are stored, in plain types.
        schema: The schema of the results.
        are_points: For each join attribute of each input, whether a tuple has a single key or an interval.
        orders: How ordered dictionaries are ordered, by input and column.
        described: The join condition in words, by argument.
    """

    names: Sequence[str]
    schemas: Sequence[pa.Schema]
    stored: Sequence[pa.Schema]
    schema: pa.Schema
    are_points: Sequence[Sequence[bool]]
    orders: Orders
    described: dict[str, Any]

    def keyed(self, side: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, KeyIntervals]:
        """The rows that have a key, in plain types and in the order of the first attribute; their keys."""


@dataclass(frozen=True)
class Shortage:
    """Memory is full.

    Attributes:
        inputs: The tuples of each input that are in memory.
        rows: About how many tuples of each input make a block; that many should leave at a time.
        preferred: The input whose tuples no arrival will probe anymore; None where there is none.
    """

    inputs: Sequence[MemoryTuples]
    rows: Sequence[int]
    preferred: int | None


class Leaving(NamedTuple):
    """Tuples of an input that leave memory, as entries in the index of one join attribute."""

    side: int
    entries: Entries
    attribute: int = 0


class FlushPolicy(ABC):
    """Chooses the tuples that leave memory when it is full (Algorithm 2).

    The other methods keep its statistics (Algorithm 3); by default it keeps none.
    """

    credits_matches: ClassVar[bool] = False
    """Whether `joined` must be called."""

    def joined(self, side: int, low: Array, attribute: int = 0) -> None:  # noqa: B027
        """Tuples of this side, with these keys, were part of one result each."""

    def added(self, side: int, keys: KeyIntervals) -> None:  # noqa: B027
        """Tuples of this side were added to memory."""

    @abstractmethod
    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """The tuples that leave: about `shortage.rows` of an input, or more, and at least one.

        Those of one choice have left before the next one is requested.
        """

    def flushed(self, side: int, low: Sequence[Array], tuples: MemoryTuples) -> None:  # noqa: B027
        """Tuples of this side, with these keys of each attribute, have left; `tuples` are still there."""

    def check_invariants(self, inputs: Sequence[MemoryTuples]) -> None:  # noqa: B027
        """Raise AssertionError if the statistics contradict what is in memory."""

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:  # noqa: B027
        """Continue from the state that `to_json` returned."""


class ReactiveWork:
    """Joins blocks on disk while nothing arrives, a unit of work at a time, and knows which have been joined.

    This one does nothing: all blocks are left to the cleanup phase.

    Attributes:
        is_interrupted: Whether an error stopped a unit of work that `work` has to resume.
        described: The options that a snapshot must agree with.
    """

    is_interrupted: bool = False
    described: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it

    def arrived(self, side: int, low: Array) -> None:
        """Tuples of this side, with these keys, were added to memory."""

    def flushed(self, side: int, blocks: range) -> None:
        """These blocks were written."""

    def has_more(self) -> bool:
        """Whether there is something to do."""
        return False

    def work(self) -> Iterator[pa.RecordBatch]:
        """Do a unit of work, or the rest of one that was interrupted."""
        yield from ()

    def close(self) -> None:
        """Release what was kept from one unit of work to the next."""

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array | None:
        """Which of these blocks of a side have been joined with a block of the other; None if none has."""

    def met_combinations(self, blocks: Sequence[Array]) -> Array | None:
        """Which combinations of blocks, one block of every input, have been joined; None if none has."""

    def met_tuples(
        self, side: int, low: Array, arrived: Array, left: Array, other_left: Array
    ) -> Array | None:
        """Which pairs of tuples with equal keys have been joined one by one; None if none has.

        Args:
            side: The side whose key and departure come first.
            low: Key of each pair.
            arrived: The later of the two arrivals.
            left: When the tuple of this side left memory.
            other_left: When the other tuple left memory.
        """

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself."""


class Cleanup(Protocol):
    """Joins the blocks that are left when all inputs have ended."""

    def run(self) -> Iterator[pa.RecordBatch]:
        """All remaining results; after an error, the next call continues where this one stopped."""


class TupleJoin(ABC):
    """Joins tuples: those that arrive with those in memory, and in the end all blocks on disk."""

    @abstractmethod
    def probe(
        self, side: int, rows: pa.RecordBatch, keys: KeyIntervals, policy: FlushPolicy
    ) -> Iterator[pa.RecordBatch]:
        """The results of rows with the tuples of the other inputs in memory, credited to the policy."""

    @abstractmethod
    def cleanup(self, reactive: ReactiveWork) -> Cleanup:
        """The cleanup of all blocks, with all memory that is free now, except what `reactive` has joined."""

    def metrics(self) -> dict[str, Any]:
        """Metrics that only this kind of join has."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot, by name."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:  # noqa: B027
        """Continue from a snapshot with the names of `to_json`."""
