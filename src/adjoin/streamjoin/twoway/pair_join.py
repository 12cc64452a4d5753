"""Two inputs joined: rows that arrive with tuples in memory, and blocks on disk with each other."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import FlushPolicy, ReactiveWork, TupleJoin
from adjoin.streamjoin.base.result_builder import ResultBuilder, sizes_of
from adjoin.streamjoin.base.sizes import OUTER_BYTES
from adjoin.streamjoin.base.spec import LEFT, RIGHT, TwoInputs
from adjoin.streamjoin.base.storage import BlockReader, Storage
from adjoin.streamjoin.disk.blocks import Block, Blocks, BlocksInOrder, BlockSpans
from adjoin.streamjoin.memory.overlaps import overlaps, reach_of
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.memory.tuples import KeyIntervals, MemoryTuples


class PairJoin(TupleJoin):
    """Joins the tuples of two inputs.

    Args:
        spec: The join.
        storage: Holds the tuples.

    Attributes:
        storage: Holds the tuples.
        results: Builds results.
        limit_pairs: How many pairs are handled at a time.
    """

    def __init__(self, spec: TwoInputs, storage: Storage) -> None:
        self.storage = storage
        self.results = ResultBuilder(
            spec, [tuples.slots for tuples in storage.inputs], storage.sizes.work_bytes // 2
        )
        self.limit_pairs = storage.sizes.piece_rows
        self._outer: _OuterBlocks | None = None

    # Memory.

    def probe(
        self, side: int, rows: pa.RecordBatch, keys: KeyIntervals, policy: FlushPolicy
    ) -> Iterator[pa.RecordBatch]:
        """Find the matches of rows, in the order of their keys, in the index of the other input."""
        others = self.storage.inputs[1 - side]
        if not len(others):
            return
        (low, high), sizes = keys[0], sizes_of(rows)
        for some in others.index.matches(low, high, self.limit_pairs):
            places = self.results.in_slots(1 - side, places_of(some.place))
            for batch, pairs in self.results.pairs(side, rows, sizes, some.owner, places):
                if policy.credits_matches:
                    policy.joined(side, low[some.owner[pairs]])
                    policy.joined(1 - side, some.low[pairs])
                yield batch

    # Disk.

    @property
    def blocks(self) -> Sequence[Blocks]:
        """The blocks of each input."""
        return self.storage.blocks

    def read(self, side: int, number: int) -> tuple[Block, pa.RecordBatch]:
        """Read a block and its rows."""
        return self.storage.reader.read(side, number)

    def join(
        self, outer: int, numbers: Sequence[int], inner_number: int, past: ReactiveWork | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Join outer blocks with one inner block.

        Args:
            outer: The outer side.
            numbers: Its blocks, which stay in memory until others are wanted, or `close`.
            inner_number: The inner block.
            past: Knows which pairs have been joined from disk before.
        """
        while not self.load(outer, numbers):
            continue
        assert self._outer is not None
        tuples, inner = self._outer.tuples, 1 - outer
        first, last = self.blocks[inner].reach_of(inner_number)
        if first > tuples.greatest or last < tuples.low[0]:
            return
        block, rows = self.read(inner, inner_number)
        met = None if past is None else past.met_blocks(outer, np.array(numbers), inner_number)
        sizes = sizes_of(rows)
        for owner, at in overlaps(tuples, block.low, block.high, self.limit_pairs):
            is_new = have_not_met(outer, tuples, at, block, owner, past)
            if met is not None and met.any():
                is_new &= ~met[tuples.block[at]]
            if is_new.any():
                places = self.results.in_slots(outer, places_of(tuples.place[at[is_new]]))
                found = self.results.pairs(inner, rows, sizes, owner[is_new], places)
                yield from (batch for batch, _ in found)

    def close(self) -> None:
        """Release the memory of the outer blocks."""
        if self._outer is not None:
            self._outer.close()
            self._outer = None

    def load(self, side: int, numbers: Sequence[int]) -> bool:
        """Whether these outer blocks are in memory; if not, read one more of them."""
        if self._outer is None or self._outer.wanted != (side, tuple(numbers)):
            self.close()
            self._outer = _OuterBlocks(side, numbers, self.storage.inputs[side], self.storage.reader)
        return not self._outer.load_next()

    def cleanup(self, reactive: ReactiveWork) -> "PairCleanup":
        """The cleanup phase: nested loops with one inner block and the remaining memory for outer blocks."""
        rows = max((blocks.rows / len(blocks) for blocks in self.blocks if len(blocks)), default=1.0)
        sizes, free_bytes = self.storage.sizes, self.storage.budget.free_bytes
        per_block = sizes.slot_bytes + rows * OUTER_BYTES
        most_outer = max(sizes.max_outer, int((free_bytes - sizes.slot_bytes) / per_block))
        return PairCleanup(self, reactive, most_outer)


class PairCleanup:
    """Joins all blocks of the smaller side, a memory full at a time, with those of the other side.

    The outer blocks are taken in the order of their least keys, so that those in memory together have
    adjacent key ranges; only inner blocks that overlap these are read, in the order in which they were
    written.

    Args:
        pairs: Joins blocks.
        past: Knows which pairs have been joined from disk before.
        most_outer: The maximum number of outer blocks.
    """

    def __init__(self, pairs: PairJoin, past: ReactiveWork, most_outer: int) -> None:
        self._pairs = pairs
        self._past = past
        blocks = pairs.blocks
        self._outer = LEFT if blocks[LEFT].rows <= blocks[RIGHT].rows else RIGHT
        self._most_outer = most_outer
        self._outer_left = BlocksInOrder(blocks[self._outer])
        self._inner_at = 0

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error, the next call continues where this one stopped."""
        with closing(self._pairs):
            while len(outer := self._outer_left.next(self._most_outer)):
                yield from self._chunk(outer)
                self._outer_left.advance(len(outer))
                self._inner_at = 0

    def _chunk(self, outer: BlockSpans) -> Iterator[pa.RecordBatch]:
        """Join outer blocks with the remaining inner blocks that overlap their keys."""
        numbers = outer.numbers
        least, greatest = int(outer.low[0]), int(outer.reach.max())
        for inner in self._pairs.blocks[1 - self._outer].reaching(least, greatest, self._inner_at):
            met = self._past.met_blocks(self._outer, numbers, inner)
            if met is None or not met.all():
                yield from self._pairs.join(self._outer, numbers.tolist(), inner, self._past)
            self._inner_at = inner + 1


class Stamped(Protocol):
    """The keys and moments of tuples."""

    @property
    def low(self) -> Array:
        """Their keys."""

    @property
    def arrived(self) -> Array:
        """When each arrived."""

    @property
    def left(self) -> Array:
        """When each left memory."""


def have_not_met(
    side: int, some: Stamped, at: Array, others: Stamped, others_at: Array, past: ReactiveWork | None
) -> Array:
    """Whether pairs of tuples, one of a side and one of the other, have not been joined before.

    Tuples were joined in memory if they were there together: neither left before the other arrived.
    """
    arrived, left = some.arrived[at], some.left[at]
    others_arrived, others_left = others.arrived[others_at], others.left[others_at]
    is_new: Array = (arrived >= others_left) | (others_arrived >= left)
    if past is not None:
        met = past.met_tuples(side, some.low[at], np.maximum(arrived, others_arrived), left, others_left)
        if met is not None:
            is_new &= ~met
    return is_new


class _OuterBlocks:
    """Outer blocks, read into memory one by one."""

    def __init__(self, side: int, numbers: Sequence[int], tuples: MemoryTuples, reader: BlockReader) -> None:
        self.wanted = side, tuple(numbers)
        self._tuples = tuples
        self._reader = reader
        self._slots: list[int] = []
        self._loaded: list[Block] = []

    def load_next(self) -> bool:
        """Read one more block; False if all are in memory."""
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
    """The tuples of blocks in slots, sorted by the lower ends of their intervals."""

    def __init__(self, blocks: Sequence[Block], slots: Sequence[int]) -> None:
        order = argsort_keys(np.concatenate([block.low for block in blocks]))
        self.low, self.arrived, self.left = (
            np.concatenate([getattr(block, name) for block in blocks])[order]
            for name in ("low", "arrived", "left")
        )
        self.high = self.low
        if any(block.high is not block.low for block in blocks):
            self.high = np.concatenate([block.high for block in blocks])[order]
        place = [
            (np.int64(slot) << 32) + np.arange(len(block)) for slot, block in zip(slots, blocks, strict=True)
        ]
        self.place = np.concatenate(place)[order]
        self.block = np.repeat(np.arange(len(blocks), dtype=np.int32), [len(block) for block in blocks])[
            order
        ]
        self.reach = reach_of(self.low, self.high, self.place)
        self.greatest = int(self.high.max())
