"""One merge of sorted runs of two inputs, joined on the way."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import compact, join_batches, take_rows
from adjoin.arrow.row_sizes import row_bytes
from adjoin.kernels.intervals import overlap_ranges
from adjoin.kernels.search import expand_part
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.condition import LEFT, RIGHT
from adjoin.streamjoin.base.results import InBatch, sizes_of
from adjoin.streamjoin.disk.blocks import MOMENT_BYTES, Block
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.pair_join import DiskJoin, have_not_met

_LEAST = np.iinfo(np.int64).min


@dataclass
class _Cursor:
    """How far a run was read: its next block, and the greatest key so far."""

    run: range
    key: int = _LEAST

    @property
    def has_more(self) -> bool:
        return len(self.run) > 0


@dataclass
class _Pool:
    """Tuples of one side that were read and not yet written, in the order of their keys."""

    rows: pa.RecordBatch
    low: Array
    arrived: Array
    left: Array
    group: Array

    def __len__(self) -> int:
        return len(self.low)

    def add(self, block: Block, rows: pa.RecordBatch, group: int) -> None:
        order = argsort_keys(np.concatenate([self.low, block.low]))
        for name in ("low", "arrived", "left"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(block, name)])[order])
        self.group = np.concatenate([self.group, np.full(len(block), group, np.int32)])[order]
        self.rows = take_rows(join_batches([self.rows, rows]), order)

    def drop(self, count: int) -> None:
        for name in ("low", "arrived", "left", "group"):
            setattr(self, name, getattr(self, name)[count:].copy())
        self.rows = compact(self.rows.slice(count))


class Merge:
    """Sorted runs become one run of each side.

    Blocks are read in the order of their keys. Each is joined with the tuples of the other side that were
    read before and may still have partners; what is complete is written.

    A key with more tuples than memory holds is joined by reading ahead: blocks of the other side that have
    it are read for the tuples that must go, and once more in their turn.

    Args:
        disk: Reads blocks.
        runs: The runs of each side.
        group: The number of the group that results.
        past: Knows pairs that have met in another way than in memory or in a group.

    Attributes:
        written: The run of each side that results.
    """

    def __init__(
        self, disk: DiskJoin, runs: Sequence[Sequence[range]], group: int, past: Reactive | None
    ) -> None:
        self._disk = disk
        self._past = past
        self.group = group
        self._cursors = [[_Cursor(run) for run in some] for some in runs]
        self._pools = [self._no_tuples(side) for side in (LEFT, RIGHT)]
        self._ahead: tuple[int, int, deque[range]] | None = None
        self._first = [len(blocks) for blocks in disk.blocks]
        most_blocks = sum(map(len, runs)) + 2
        self._most_bytes = most_blocks * max(tuples.slots.room_bytes for tuples in disk.inputs)

    def _no_tuples(self, side: int) -> _Pool:
        nothing, schema = np.empty(0, np.int64), self._disk.inputs[side].schema
        rows = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        return _Pool(rows, nothing, nothing, nothing, np.empty(0, np.int32))

    @property
    def written(self) -> list[range]:
        """The run of each side that has been written."""
        return [
            range(first, len(blocks)) for first, blocks in zip(self._first, self._disk.blocks, strict=True)
        ]

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error it goes on where it was."""
        while True:
            if self._ahead is not None:
                yield from self._make_room()
            for side in (LEFT, RIGHT):
                self._write_complete(side)
            if self._is_full():
                yield from self._make_room()
                continue
            unread = [
                (cursor.key, side, number)
                for side in (LEFT, RIGHT)
                for number, cursor in enumerate(self._cursors[side])
                if cursor.has_more
            ]
            if not unread:
                break
            _, side, number = min(unread)
            yield from self._read_next(side, self._cursors[side][number])

    def _read_next(self, side: int, cursor: _Cursor) -> Iterator[pa.RecordBatch]:
        number = cursor.run[0]
        block, rows = self._disk.read(side, number)
        group = self._disk.blocks[side].group_of(number)
        cursor.run, cursor.key = cursor.run[1:], int(block.low[-1])
        self._pools[side].add(block, rows, group)
        yield from self._join(side, block, rows, group, len(self._pools[1 - side]))

    def _join(
        self, side: int, block: Block, rows: pa.RecordBatch, group: int, count: int
    ) -> Iterator[pa.RecordBatch]:
        """A block with the first so many tuples of the other side."""
        pool = self._pools[1 - side]
        sizes, pool_sizes = sizes_of(rows), sizes_of(pool.rows)
        begin, many = overlap_ranges(pool.low[:count], pool.low[:count], block.low, block.low)
        ends = np.cumsum(many, dtype=np.int64)
        for start in range(0, int(ends[-1]), self._disk.limit_pairs):
            stop = min(start + self._disk.limit_pairs, int(ends[-1]))
            owner, at = expand_part(begin, ends, start, stop)
            is_new = have_not_met(side, block, owner, pool, at, self._past)
            is_new &= pool.group[at] != group
            owner, at = owner[is_new], at[is_new]
            if len(at):
                others = InBatch(pool.rows, pool_sizes, at)
                yield from (b for b, _ in self._disk.results.beside(side, rows, sizes, owner, others))

    def _frontier(self, side: int) -> int | None:
        """What will still be read of a side has this key or a greater one; None if nothing will."""
        return min((cursor.key for cursor in self._cursors[side] if cursor.has_more), default=None)

    def _in_order(self, side: int) -> int:
        """How many tuples of a side come before all that will be read of it."""
        frontier, low = self._frontier(side), self._pools[side].low
        return len(low) if frontier is None else int(np.searchsorted(low, frontier, "right"))

    def _write_complete(self, side: int) -> None:
        """Write tuples that will meet no more others, whole blocks at a time unless all was read."""
        count, other = self._in_order(side), self._frontier(1 - side)
        if other is not None:
            count = min(count, int(np.searchsorted(self._pools[side].low, other, "left")))
        self._write(side, count, whole=self._frontier(side) is not None)

    def _is_full(self) -> bool:
        return sum(int(row_bytes(pool.rows).sum()) for pool in self._pools) > self._most_bytes

    def _make_room(self) -> Iterator[pa.RecordBatch]:
        """Join tuples with those that would have come later, and write them."""
        if self._ahead is None:
            counts = [self._in_order(side) for side in (LEFT, RIGHT)]
            side = LEFT if counts[LEFT] >= counts[RIGHT] else RIGHT
            ahead = deque(cursor.run for cursor in self._cursors[1 - side])
            self._ahead = side, counts[side], ahead
        side, count, ahead = self._ahead
        blocks, last = self._disk.blocks[1 - side], int(self._pools[side].low[count - 1])
        while ahead:
            run = ahead[0]
            if not run or blocks.reach_of(run[0])[0] > last:
                ahead.popleft()
                continue
            group = blocks.group_of(run[0])
            block, rows = self._disk.read(1 - side, run[0])
            ahead[0] = run[1:]
            yield from self._join(1 - side, block, rows, group, count)
        self._write(side, count, whole=False)
        self._ahead = None

    def _write(self, side: int, count: int, *, whole: bool) -> None:
        """Write the first tuples of a side; the last block only if it need not be `whole`."""
        pool, blocks = self._pools[side], self._disk.blocks[side]
        sizes = row_bytes(pool.rows)[:count] + blocks.key_bytes + MOMENT_BYTES
        room = self._disk.inputs[side].slots.room_bytes
        before = blocks.mark()
        done = 0
        try:
            for begin, end in portions(sizes, room):
                if whole and end == count:
                    break
                part = slice(begin, end)
                rows = compact(pool.rows.slice(begin, end - begin))
                blocks.append(rows, pool.low[part], pool.low[part], pool.left[part], self.group)
                done = end
        except BaseException:
            blocks.undo(before)
            raise
        if done:
            pool.drop(done)
