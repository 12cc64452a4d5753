"""Hash partitions: tuples whose scattered keys begin with the same bits."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import FlushPolicy, Leaving, Shortage
from adjoin.streamjoin.memory.tuples import KeyIntervals, MemoryTuples

_KEY_BITS = 64
_SLOTS_OF_A_PARTITION = 8
_MOST_PARTITIONS = 4096


class Partitions:
    """The ranges of scattered keys.

    Args:
        bits: The number of partitions is two to this power.
    """

    def __init__(self, bits: int) -> None:
        self._shift = _KEY_BITS - bits
        self.count = 1 << bits

    @classmethod
    def of_memory(cls, slots: int) -> "Partitions":
        """As many as have a few slots each when memory is full; at least two."""
        wanted = min(_MOST_PARTITIONS, max(2, slots // _SLOTS_OF_A_PARTITION))
        return cls(wanted.bit_length() - 1)

    def of(self, keys: Array) -> Array:
        """The partition of each scattered key."""
        partitions: Array = (keys >> self._shift) + self.count // 2
        return partitions

    def of_key(self, key: int) -> int:
        """The partition of a scattered key."""
        return (key >> self._shift) + self.count // 2

    def bounds(self, partition: int) -> tuple[int, int]:
        """The least and the greatest key of a partition."""
        first = (partition - self.count // 2) << self._shift
        return first, first + (1 << self._shift) - 1


class PartitionPolicy(FlushPolicy):
    """Counts the tuples in memory by partition.

    Attributes:
        partitions: The partitions.
        tuples: Tuples in memory of each input, by partition.
    """

    def __init__(self, partitions: Partitions, inputs: int = 2) -> None:
        self.partitions = partitions
        self.tuples: Array = np.zeros((inputs, partitions.count), np.int64)

    def count(self, keys: Array) -> Array:
        """How many of these keys lie in each partition."""
        counts: Array = np.bincount(self.partitions.of(keys), minlength=self.partitions.count)
        return counts

    def added(self, side: int, keys: KeyIntervals) -> None:
        """Count these tuples."""
        self.tuples[side] += self.count(keys[0][0])

    def flushed(self, side: int, low: Sequence[Array], tuples: MemoryTuples) -> None:  # noqa: ARG002
        """Subtract these tuples."""
        self.tuples[side] -= self.count(low[0])

    def check_invariants(self, inputs: Sequence[MemoryTuples]) -> None:
        """Raise AssertionError if counts are wrong."""
        for counted, tuples in zip(self.tuples, inputs, strict=True):
            _, low, _ = tuples.index.places(tuples.index.all())
            assert (counted == self.count(low)).all()

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return {"tuples": self.tuples.tolist()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self.tuples[:] = saved["tuples"]

    def all_of(self, shortage: Shortage, side: int, partition: int) -> Iterator[Leaving]:
        """All tuples of a partition, in the order of their keys, about a block at a time."""
        while self.tuples[side, partition]:
            bounds = self.partitions.bounds(partition)
            yield Leaving(side, shortage.inputs[side].index.between(*bounds, shortage.rows[side]))
