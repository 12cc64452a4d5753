"""The merging phase of hash-merge join: sorted runs of a partition become one, and are joined meanwhile."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import compact, join_batches, take_rows
from adjoin.arrow.row_sizes import row_bytes
from adjoin.kernels.intervals import key_ranges
from adjoin.kernels.search import expand_part
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.result_builder import InBatch, sizes_of
from adjoin.streamjoin.base.spec import LEFT, RIGHT, SIDES
from adjoin.streamjoin.baselines.partitions import Partitions
from adjoin.streamjoin.disk.blocks import MOMENT_BYTES, Block
from adjoin.streamjoin.twoway.pair_join import PairJoin, have_not_met

_LEAST = np.iinfo(np.int64).min
_SPAN = (np.int32, 2)
_GROUP = np.dtype([("number", np.int32), ("partition", np.int32), ("left", *_SPAN), ("right", *_SPAN)])
"""A run of each side, as a range of blocks, that have been joined with each other; one may be empty."""
_LEAST_GROUPS = 16
_COPIES = 4
"""Of the list of groups: itself, while it changes, and while the best partition is found."""


@dataclass
class _Cursor:
    """How far a run has been read: its remaining blocks, and the greatest key so far."""

    run: range
    key: int = _LEAST

    @property
    def has_more(self) -> bool:
        return len(self.run) > 0


@dataclass
class _Pool:
    """Tuples of one side that have been read but not written, in the order of their keys."""

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


class RunMerge:
    """Merges sorted runs into one run of each side.

    Blocks are read in the order of their keys. Each is joined with the tuples of the other side that have
    been read and may still have matches; tuples that cannot are written.

    A key with more tuples than memory holds is joined by reading ahead: the blocks of the other side that
    have it are read for the tuples that must be written, and read again in their turn.

    Args:
        pairs: Reads blocks.
        runs: The runs of each side.
        group: The number of the resulting group.
        past: Knows which pairs have been joined in other ways than in memory or in a group.

    Attributes:
        written: The resulting run of each side.
    """

    def __init__(
        self, pairs: PairJoin, runs: Sequence[Sequence[range]], group: int, past: ReactiveWork | None
    ) -> None:
        self._pairs = pairs
        self._past = past
        self.group = group
        self._cursors = [[_Cursor(run) for run in some] for some in runs]
        self._pools = [self._no_tuples(side) for side in (LEFT, RIGHT)]
        self._ahead: tuple[int, int, deque[range]] | None = None
        self._first = [len(blocks) for blocks in pairs.blocks]
        most_blocks = sum(map(len, runs)) + 2
        self._most_bytes = most_blocks * max(tuples.slots.room_bytes for tuples in pairs.storage.inputs)

    def _no_tuples(self, side: int) -> _Pool:
        nothing, schema = np.empty(0, np.int64), self._pairs.storage.inputs[side].schema
        rows = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        return _Pool(rows, nothing, nothing, nothing, np.empty(0, np.int32))

    @property
    def written(self) -> list[range]:
        """The run of each side that has been written."""
        return [
            range(first, len(blocks)) for first, blocks in zip(self._first, self._pairs.blocks, strict=True)
        ]

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error, the next call continues where this one stopped."""
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
        block, rows = self._pairs.read(side, number)
        group = self._pairs.blocks[side].group_of(number)
        cursor.run, cursor.key = cursor.run[1:], int(block.low[-1])
        self._pools[side].add(block, rows, group)
        yield from self._join(side, block, rows, group, len(self._pools[1 - side]))

    def _join(
        self, side: int, block: Block, rows: pa.RecordBatch, group: int, count: int
    ) -> Iterator[pa.RecordBatch]:
        """Join a block with the first `count` tuples of the other side."""
        pool = self._pools[1 - side]
        sizes, pool_sizes = sizes_of(rows), sizes_of(pool.rows)
        begin, many = key_ranges(pool.low[:count], block.low, block.low)
        ends = np.cumsum(many, dtype=np.int64)
        for start in range(0, int(ends[-1]), self._pairs.limit_pairs):
            stop = min(start + self._pairs.limit_pairs, int(ends[-1]))
            owner, at = expand_part(begin, ends, start, stop)
            is_new = have_not_met(side, block, owner, pool, at, self._past)
            is_new &= pool.group[at] != group
            owner, at = owner[is_new], at[is_new]
            if len(at):
                others = InBatch(pool.rows, pool_sizes, at)
                yield from (b for b, _ in self._pairs.results.pairs(side, rows, sizes, owner, others))

    def _frontier(self, side: int) -> int | None:
        """The least key that may still be read of a side; None if there is nothing left to read."""
        return min((cursor.key for cursor in self._cursors[side] if cursor.has_more), default=None)

    def _in_order(self, side: int) -> int:
        """How many tuples of a side precede all that are still to be read."""
        frontier, low = self._frontier(side), self._pools[side].low
        return len(low) if frontier is None else int(np.searchsorted(low, frontier, "right"))

    def _write_complete(self, side: int) -> None:
        """Write tuples without further matches; only full blocks, unless everything has been read."""
        count, other = self._in_order(side), self._frontier(1 - side)
        if other is not None:
            count = min(count, int(np.searchsorted(self._pools[side].low, other, "left")))
        self._write(side, count, whole=self._frontier(side) is not None)

    def _is_full(self) -> bool:
        return sum(int(row_bytes(pool.rows).sum()) for pool in self._pools) > self._most_bytes

    def _make_room(self) -> Iterator[pa.RecordBatch]:
        """Join tuples with those that would have been read later, and write them."""
        if self._ahead is None:
            counts = [self._in_order(side) for side in (LEFT, RIGHT)]
            side = LEFT if counts[LEFT] >= counts[RIGHT] else RIGHT
            ahead = deque(cursor.run for cursor in self._cursors[1 - side])
            self._ahead = side, counts[side], ahead
        side, count, ahead = self._ahead
        blocks, last = self._pairs.blocks[1 - side], int(self._pools[side].low[count - 1])
        while ahead:
            run = ahead[0]
            if not run or blocks.reach_of(run[0])[0] > last:
                ahead.popleft()
                continue
            group = blocks.group_of(run[0])
            block, rows = self._pairs.read(1 - side, run[0])
            ahead[0] = run[1:]
            yield from self._join(1 - side, block, rows, group, count)
        self._write(side, count, whole=False)
        self._ahead = None

    def _write(self, side: int, count: int, *, whole: bool) -> None:
        """Write the first tuples of a side, omitting the last block if blocks must be `whole`."""
        pool, blocks = self._pools[side], self._pairs.blocks[side]
        sizes = row_bytes(pool.rows)[:count] + blocks.key_bytes + MOMENT_BYTES
        room = self._pairs.storage.inputs[side].slots.room_bytes
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


@dataclass
class _Task:
    groups: Array
    merge: RunMerge


class RunMerging(ReactiveWork):
    """Merges runs on disk.

    A unit of work merges some runs of a partition into one group, with one run of each side.

    Args:
        pairs: Reads blocks.
        partitions: The partitions.
        fan_in: Maximum number of runs of a unit of work (F).
        notes_bytes: For the list of groups. When it is full, the oldest group is forgotten: its blocks are
            left to the cleanup phase.
        past: Knows which pairs have been joined in another way.
    """

    def __init__(
        self,
        pairs: PairJoin,
        partitions: Partitions,
        fan_in: int,
        notes_bytes: int,
        past: ReactiveWork | None = None,
    ) -> None:
        self._most_groups = max(_LEAST_GROUPS, notes_bytes // (_COPIES * _GROUP.itemsize))
        self._pairs = pairs
        self.described = {"fan_in": fan_in}
        self._partitions = partitions
        self._fan_in = fan_in
        self._past = past
        self._groups: Array = np.empty(0, _GROUP)
        self._next_group = 0
        self._task: _Task | None = None
        self._known: tuple[tuple[int, int, bytes], Array] | None = None

    @property
    def is_interrupted(self) -> bool:  # type: ignore[override]
        """Whether a merge was interrupted."""
        return self._task is not None

    def flushed(self, side: int, blocks: range) -> None:
        """Blocks of one partition were written: they extend a run, or form a new group."""
        low, _ = self._pairs.blocks[side].reach_of(blocks.start)
        partition = self._partitions.of_key(low)
        last = self._groups[-1] if len(self._groups) else None
        continues = last is not None and self._continues(side, last, blocks.start, partition, low)
        number = int(last["number"]) if last is not None and continues else self._take_number()
        self._pairs.blocks[side].set_group(blocks, number)
        if last is not None and continues:
            last[SIDES[side]][1] = blocks.stop
        else:
            runs = [(0, 0), (0, 0)]
            runs[side] = blocks.start, blocks.stop
            kept = self._groups[max(0, len(self._groups) + 1 - self._most_groups) :]
            self._groups = np.append(kept, np.array([(number, partition, *runs)], _GROUP))

    def _continues(self, side: int, group: Array, block: int, partition: int, low: int) -> bool:
        start, stop = group[SIDES[side]].tolist()
        is_next = start < stop == block and group["partition"] == partition and not _has(group, 1 - side)
        return bool(is_next and self._pairs.blocks[side].reach_of(stop - 1)[1] <= low)

    def _take_number(self) -> int:
        self._next_group += 1
        return self._next_group - 1

    def best(self) -> tuple[int, float]:
        """The partition with the most pairs of blocks that have not been joined, for its size; -1: none.

        Returns:
            The partition, and how many such pairs its next merge joins per block.
        """
        left, right = (_lengths(self._groups, side) for side in (LEFT, RIGHT))
        totals = [
            np.bincount(self._groups["partition"], weights, self._partitions.count)
            for weights in (left, right, left * right)
        ]
        unmet = totals[LEFT] * totals[RIGHT] - totals[2]
        if not unmet.any():
            return -1, 0.0
        partition = int(np.argmax(unmet / np.maximum(totals[LEFT] + totals[RIGHT], 1)))
        return partition, _promise(self._groups[self._some(partition)])

    def _some(self, partition: int) -> Array:
        """Small groups of a partition, with tuples of both sides and no more runs than the fan-in."""
        there = np.flatnonzero(self._groups["partition"] == partition)
        groups = self._groups[there]
        blocks = _lengths(groups, LEFT) + _lengths(groups, RIGHT)
        order = np.lexsort((groups["number"], blocks))
        first = [order[_has(groups[order], side)][0] for side in (LEFT, RIGHT)]
        if first[LEFT] == first[RIGHT]:
            first[RIGHT] = order[order != first[LEFT]][0]
        order = np.concatenate([first, order[~np.isin(order, first)]])
        runs = np.cumsum(sum(_has(groups[order], side).astype(int) for side in (LEFT, RIGHT)))
        some: Array = there[order[: max(2, int(np.searchsorted(runs, self._fan_in, "right")))]]
        return some

    def has_more(self) -> bool:
        """Whether any runs of both sides have not been joined."""
        return self.is_interrupted or self.best()[0] >= 0

    def work(self) -> Iterator[pa.RecordBatch]:
        """Do the merge that promises most, or resume it."""
        if self._task is None:
            some = self._some(self.best()[0])
            groups = self._groups[some]
            runs = [[run for run in map(_run, groups[name]) if run] for name in SIDES]
            self._task = _Task(some, RunMerge(self._pairs, runs, self._take_number(), self._past))
        task = self._task
        yield from task.merge.run()
        merged = self._groups[task.groups]
        for group in merged:
            for side, name in enumerate(SIDES):
                self._pairs.blocks[side].drop(_run(group[name]))
        written = [(run.start, run.stop) for run in task.merge.written]
        group = np.array([(task.merge.group, merged["partition"][0], *written)], _GROUP)
        self._groups = np.append(np.delete(self._groups, task.groups), group)
        self._task = None

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array:
        """Blocks of the same group have been joined."""
        group = self._pairs.blocks[1 - side].group_of(other)
        met: Array = (self._groups_of(side, blocks) == group) & (group >= 0)
        return met

    def _groups_of(self, side: int, blocks: Array) -> Array:
        """The groups of these blocks; cached, since the same blocks are looked up repeatedly."""
        asked = side, self._next_group, blocks.tobytes()
        if self._known is None or self._known[0] != asked:
            self._known = asked, self._pairs.blocks[side].groups(blocks.tolist())
        return self._known[1]

    def to_json(self) -> dict[str, Any]:
        """The groups."""
        groups = [
            [*group.tolist()[:2], *group["left"].tolist(), *group["right"].tolist()] for group in self._groups
        ]
        return {"groups": groups, "next_group": self._next_group}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self._next_group = saved["next_group"]
        groups = [(number, partition, (a, b), (c, d)) for number, partition, a, b, c, d in saved["groups"]]
        self._groups = np.array(groups, _GROUP)

    def check_invariants(self) -> None:
        """Raise AssertionError if groups contradict the blocks."""
        assert len(np.unique(self._groups["number"])) == len(self._groups)
        for side, name in enumerate(SIDES):
            blocks = self._pairs.blocks[side]
            for group in self._groups:
                numbers = _run(group[name])
                low, reach = np.array([blocks.reach_of(n) for n in numbers], np.int64).reshape(-1, 2).T
                assert (reach[:-1] <= low[1:]).all()
                assert (self._partitions.of(low) == group["partition"]).all()
                assert (blocks.groups(numbers) == group["number"]).all()
        assert len(self._groups) <= self._most_groups


def _run(span: Array) -> range:
    return range(int(span[0]), int(span[1]))


def _lengths(groups: Array, side: int) -> Array:
    spans = groups[SIDES[side]]
    lengths: Array = spans[..., 1].astype(np.int64) - spans[..., 0]
    return lengths


def _has(groups: Array, side: int) -> Array:
    return _lengths(groups, side) > 0


def _promise(groups: Array) -> float:
    left, right = _lengths(groups, LEFT), _lengths(groups, RIGHT)
    unmet = left.sum() * right.sum() - (left * right).sum()
    return float(unmet / (2 * (left.sum() + right.sum())))
