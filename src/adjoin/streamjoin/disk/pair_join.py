"""Blocks on disk joined with each other, one inner block at a time."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.kernels.intervals import overlap_ranges
from adjoin.kernels.search import expand_part
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.streamjoin.base.counts import Counts
from adjoin.streamjoin.base.results import Results, sizes_of
from adjoin.streamjoin.base.spec import TwoInputs
from adjoin.streamjoin.disk.blocks import Block, Blocks
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.read_blocks import BlockReader
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.memory.tuples import Tuples

OUTER_BYTES = 84
"""Of a tuple of an outer block beside its slot: interval, place, block, moments; twice while it is sorted."""


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
        self._reader = BlockReader(blocks, counts)
        self._outer: _Outer | None = None

    def read(self, side: int, number: int) -> tuple[Block, pa.RecordBatch]:
        """Read a block with its rows."""
        return self._reader.read(side, number)

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
        while not self.load(outer, numbers):
            continue
        assert self._outer is not None
        tuples, inner = self._outer.tuples, 1 - outer
        first, last = self.blocks[inner].reach_of(inner_number)
        if first > tuples.reach[-1] or last < tuples.low[0]:
            return
        block, rows = self.read(inner, inner_number)
        met = None if past is None else past.met_blocks(outer, np.array(numbers), inner_number)
        begin, count = overlap_ranges(tuples.low, tuples.reach, block.low, block.high)
        ends, sizes = np.cumsum(count, dtype=np.int64), sizes_of(rows)
        for start in range(0, int(ends[-1]), self.limit_pairs):
            owner, at = expand_part(begin, ends, start, min(start + self.limit_pairs, int(ends[-1])))
            is_new = have_not_met(outer, tuples, at, block, owner, past)
            if not self.spec.condition.are_points[outer]:
                is_new &= tuples.high[at] >= block.low[owner]
            if met is not None and met.any():
                is_new &= ~met[tuples.block[at]]
            owner, at = owner[is_new], at[is_new]
            if len(at):
                places = self.results.in_slots(outer, places_of(tuples.place[at]))
                yield from (batch for batch, _ in self.results.beside(inner, rows, sizes, owner, places))

    def close(self) -> None:
        """Give the memory of the outer blocks back."""
        if self._outer is not None:
            self._outer.close()
            self._outer = None

    def load(self, side: int, numbers: Sequence[int]) -> bool:
        """Whether these outer blocks are in memory; if not, one more of them is now."""
        if self._outer is None or self._outer.wanted != (side, tuple(numbers)):
            self.close()
            self._outer = _Outer(side, numbers, self.inputs[side], self._reader)
        return not self._outer.load_next()


class Stamped(Protocol):
    """Tuples with their keys and moments."""

    @property
    def low(self) -> Array:
        """Their keys."""

    @property
    def arrived(self) -> Array:
        """When each came."""

    @property
    def left(self) -> Array:
        """When each left memory."""


def have_not_met(
    side: int, some: Stamped, at: Array, others: Stamped, others_at: Array, past: Reactive | None
) -> Array:
    """Of pairs of tuples of a side and of the other, whether they have met neither in memory nor later.

    Two that were in memory at the same time have met there: neither left before the other arrived.
    """
    arrived, left = some.arrived[at], some.left[at]
    others_arrived, others_left = others.arrived[others_at], others.left[others_at]
    is_new: Array = (arrived >= others_left) | (others_arrived >= left)
    if past is not None:
        met = past.met_tuples(side, some.low[at], np.maximum(arrived, others_arrived), left, others_left)
        if met is not None:
            is_new &= ~met
    return is_new


class _Outer:
    """Outer blocks that come into memory one by one."""

    def __init__(self, side: int, numbers: Sequence[int], tuples: Tuples, reader: BlockReader) -> None:
        self.wanted = side, tuple(numbers)
        self._tuples = tuples
        self._reader = reader
        self._slots: list[int] = []
        self._loaded: list[Block] = []

    def load_next(self) -> bool:
        """Read one more block; False if all were there."""
        side, numbers = self.wanted
        if len(self._slots) == len(numbers):
            return False
        number, slot = numbers[len(self._slots)], self._tuples.store.take_slot()
        try:
            self._loaded.append(self._reader.read_into(side, number, self._tuples.slots, slot))
        except BaseException:
            self._tuples.store.free_slot(slot)
            raise
        self._slots.append(slot)
        return True

    @cached_property
    def tuples(self) -> "_Sorted":
        """All tuples of these blocks."""
        return _Sorted(self._loaded, self._slots)

    def close(self) -> None:
        for slot in self._slots:
            self._tuples.store.free_slot(slot)


class _Sorted:
    """Tuples of blocks in slots, sorted by the lower ends of their intervals."""

    def __init__(self, blocks: Sequence[Block], slots: Sequence[int]) -> None:
        order = argsort_keys(np.concatenate([block.low for block in blocks]))
        self.low, self.high, self.arrived, self.left = (
            np.concatenate([getattr(block, name) for block in blocks])[order]
            for name in ("low", "high", "arrived", "left")
        )
        place = [
            (np.int64(slot) << 32) + np.arange(len(block)) for slot, block in zip(slots, blocks, strict=True)
        ]
        self.place = np.concatenate(place)[order]
        self.block = np.repeat(np.arange(len(blocks), dtype=np.int32), [len(block) for block in blocks])[
            order
        ]
        self.reach = np.maximum.accumulate(self.high)
