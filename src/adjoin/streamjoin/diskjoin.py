"""Blocks on disk joined with each other, one inner block at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.kernels.intervals import overlap_ranges
from adjoin.kernels.search import expand_part
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.streamjoin.blocks import Block, Blocks
from adjoin.streamjoin.counts import Counts
from adjoin.streamjoin.reactive import Reactive
from adjoin.streamjoin.results import Results, sizes_of
from adjoin.streamjoin.spec import TwoInputs
from adjoin.streamjoin.tuples import Tuples, places_of

OUTER_BYTES = 52
"""Of a tuple of an outer block beside its slot: interval, place, block and both moments."""


class DiskJoin:
    """Joins outer blocks, which stay in memory, with one inner block after the other.

    Args:
        spec: The join.
        inputs: The inputs; outer blocks are read into slots of theirs.
        blocks: Their blocks.
        results: Builds results.
        counts: Where reads are counted.
        limit_pairs: Pairs handled at a time.
    """

    def __init__(
        self,
        spec: TwoInputs,
        inputs: Sequence[Tuples],
        blocks: Sequence[Blocks],
        results: Results,
        counts: Counts,
        limit_pairs: int,
    ) -> None:
        self.spec = spec
        self.inputs = inputs
        self.blocks = blocks
        self.results = results
        self.limit_pairs = limit_pairs
        self._counts = counts
        self._outer: _Outer | None = None

    def read(self, side: int, number: int) -> tuple[Block, pa.RecordBatch]:
        """Read a block with its rows."""
        block = self.blocks[side].read(number)
        self._count_reads(side, [number])
        return block

    def join(
        self, outer: int, numbers: Sequence[int], inner_number: int, past: Reactive | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Join blocks of the outer side with a block of the other.

        Args:
            outer: The outer side.
            numbers: Its blocks; they stay in memory until others are wanted, or `close`.
            inner_number: The inner block.
            past: Knows pairs that have met on disk before.
        """
        tuples, inner = self._load_outer(outer, numbers), 1 - outer
        first, last = self.blocks[inner].reach_of(inner_number)
        if first > tuples.reach[-1] or last < tuples.low[0]:
            return
        block, rows = self.read(inner, inner_number)
        met = None if past is None else past.met_blocks(outer, np.array(numbers), inner_number)
        begin, count = overlap_ranges(tuples.low, tuples.reach, block.low, block.high)
        ends, sizes = np.cumsum(count, dtype=np.int64), sizes_of(rows)
        for start in range(0, int(ends[-1]), self.limit_pairs):
            owner, at = expand_part(begin, ends, start, min(start + self.limit_pairs, int(ends[-1])))
            is_new = never_in_memory_together(
                tuples.arrived[at], tuples.left[at], block.arrived[owner], block.left[owner]
            )
            if not self.spec.are_points[outer]:
                is_new &= tuples.high[at] >= block.low[owner]
            if met is not None and met.any():
                is_new &= ~met[tuples.block[at]]
            owner, at = owner[is_new], at[is_new]
            if past is not None:
                arrived = np.maximum(tuples.arrived[at], block.arrived[owner])
                gone = past.met_tuples(outer, tuples.low[at], arrived, tuples.left[at], block.left[owner])
                if gone is not None:
                    owner, at = owner[~gone], at[~gone]
            if len(at):
                places = self.results.in_slots(outer, places_of(tuples.place[at]))
                yield from (batch for batch, _ in self.results.beside(inner, rows, sizes, owner, places))

    def close(self) -> None:
        """Give the memory of the outer blocks back."""
        if self._outer is not None:
            self._outer.close()
            self._outer = None

    def _load_outer(self, side: int, numbers: Sequence[int]) -> "_Outer":
        """The outer blocks in memory, as one sorted list."""
        if self._outer is None or self._outer.wanted != (side, tuple(numbers)):
            self.close()
            self._outer = _Outer(side, numbers, self.inputs[side], self.blocks[side])
            self._count_reads(side, numbers)
        return self._outer

    def _count_reads(self, side: int, numbers: Sequence[int]) -> None:
        """A seek goes to every block that does not follow the one before."""
        self._counts.pages_read += len(numbers)
        self._counts.seeks += 1 + int(np.count_nonzero(np.diff(numbers) != 1))
        self._counts.bytes_read += sum(self.blocks[side].bytes_of(number) for number in numbers)


def never_in_memory_together(arrived: Array, left: Array, other_arrived: Array, other_left: Array) -> Array:
    """Of pairs of tuples, whether one left before the other arrived: those that have not, have met there."""
    return (arrived >= other_left) | (other_arrived >= left)


class _Outer:
    """Outer blocks in memory, sorted by the lower ends of their tuples' intervals."""

    def __init__(self, side: int, numbers: Sequence[int], tuples: Tuples, blocks: Blocks) -> None:
        self.wanted = side, tuple(numbers)
        self._tuples = tuples
        self._slots: list[int] = []
        loaded, place = [], []
        for number in numbers:
            slot = tuples.take_slot()
            self._slots.append(slot)
            try:
                block = blocks.read_into(number, tuples.slots, slot)
            except BaseException:
                self.close()
                raise
            loaded.append(block)
            place.append((np.int64(slot) << 32) + np.arange(len(block)))
        order = argsort_keys(np.concatenate([block.low for block in loaded]))
        self.low, self.high, self.arrived, self.left = (
            np.concatenate([getattr(block, name) for block in loaded])[order]
            for name in ("low", "high", "arrived", "left")
        )
        self.place = np.concatenate(place)[order]
        self.block = np.repeat(np.arange(len(loaded), dtype=np.int32), [len(block) for block in loaded])[
            order
        ]
        self.reach = np.maximum.accumulate(self.high)

    def close(self) -> None:
        for slot in self._slots:
            self._tuples.free_slot(slot)
