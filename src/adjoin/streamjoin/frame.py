"""The frame of joins that spill: arriving, reactive and cleanup phases over two inputs in one budget."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.errors import BudgetError, OptionError
from adjoin.kernels.intervals import overlap_ranges
from adjoin.kernels.search import expand_part
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.master.device import Cost
from adjoin.master.predicate import Distance
from adjoin.parts.arrivals import arrivals as paced
from adjoin.parts.budget import MemoryBudget, parse_bytes
from adjoin.parts.clock import Clock, SystemClock
from adjoin.parts.copying import compact, plain_columns
from adjoin.parts.portions import portions
from adjoin.parts.rows import row_bytes
from adjoin.parts.rowslots import RowSlots
from adjoin.parts.spill import SpillFile
from adjoin.streamjoin.blocks import Blocks
from adjoin.streamjoin.contract import Arrival, TwoInputJoin
from adjoin.streamjoin.flushing import FlushPolicy
from adjoin.streamjoin.grid import LEFT, RIGHT, Grid, Step
from adjoin.streamjoin.index import Entries, OrderedIndex
from adjoin.streamjoin.results import Results, Run
from adjoin.streamjoin.spec import Keyed, On, TwoInputs
from adjoin.streamjoin.tuples import Tuples, places_of

_PAGE_BYTES = 4096
_BLOCKS = 256
"""A block is so small a part of the memory, unless the caller chose."""
_MOST_BLOCK_BYTES = 1 << 20
_LEAST_SLOTS = 8
_WORK_SHARE = 1 / 16
_LEAST_WORK_BYTES = 128 << 10
_BYTES_PER_ROW = 256
"""What sorting, probing and noting one arriving row takes, at most, beside the row itself."""
_OUTER_BYTES = 48
"""Of a tuple of an outer block beside its slot: interval, place and both moments."""


@dataclass
class Counts:
    """What has happened since the start."""

    rows_in: int = 0
    results_online: int = 0
    results_reactive: int = 0
    results_cleanup: int = 0
    blocks_flushed: int = 0
    input_buffer_rows_max: int = 0
    pages_read: int = 0
    seeks: int = 0
    bytes_read: int = 0


class SpillingJoin(TwoInputJoin):
    """A join of two inputs that keeps what it can in memory, and the rest on disk.

    *Arriving*: rows are joined with those of the other input in memory, then kept there; when it is full,
    tuples of the policy's choice are written to disk as a sorted block. *Reactive*: while nothing arrives,
    blocks on disk are joined with each other. *Cleanup*: when both inputs have ended, what is still in memory
    is written, and the rest of the blocks is joined. A pair of tuples that were in memory together was
    joined when the later one arrived; all others are joined from disk.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        policy: Chooses the tuples that leave memory.
        memory: Budget of the whole operator: bytes, or text such as "64MB".
        within: Band join: right key between left key - within and left key + within.
        between: Range join: right key between these two left columns; `on` names the right's key.
        suffix: Appended to a right column whose name the left has too.
        block_bytes: Size of a block on disk; by default a small part of the memory.
        max_outer: Most outer blocks of a reactive phase (MaxOuterMem).
        max_new: Rows that end a reactive phase when they have arrived (MaxNewArr).
        wait_seconds: For so long nothing must arrive before a reactive phase begins (WaitThresh).
        spill: Folder for what memory cannot hold; the system's for temporary files by default.
        clock: Tells the time; the system's by default.
        disk: What reading and writing cost on the clock, if that is a simulated one.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        policy: FlushPolicy,
        memory: int | str = "64MB",
        *,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        block_bytes: int | None = None,
        max_outer: int = 19,
        max_new: int = 1000,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        super().__init__(TwoInputs(left, right, on, within, between, suffix), (left, right))
        _check_options(max_outer, max_new, wait_seconds, block_bytes)
        self._policy = policy
        self._max_outer, self._max_new, self._wait_seconds = max_outer, max_new, wait_seconds
        self._clock = clock or SystemClock()
        self._disk = disk
        self._budget = MemoryBudget(parse_bytes(memory))
        self._split(block_bytes)
        slots = self._budget.total_bytes // self._slot_bytes
        self._inputs = tuple(
            Tuples(plain, are_points=points, slots=slots, slot_bytes=self._slot_bytes)
            for plain, points in zip(self._spec.plain, self._spec.are_points, strict=True)
        )
        self._files = tuple(SpillFile(spill, self._spend) for _ in (LEFT, RIGHT))
        self._blocks = tuple(
            Blocks(tuples.schema, are_points=points, file=file)
            for tuples, points, file in zip(self._inputs, self._spec.are_points, self._files, strict=True)
        )
        self._results = Results(self._spec, [tuples.slots for tuples in self._inputs], self._work_bytes // 2)
        self.counts = Counts()
        self._grid = Grid()
        self._stamp = 0
        self._pending: deque[tuple[int, pa.RecordBatch]] = deque()
        self._pending_rows = 0
        self._placing: tuple[int, pa.RecordBatch, Array, Array] | None = None
        self._outer: _Outer | None = None
        self._account()

    def _split(self, block_bytes: int | None) -> None:
        """Divide the memory: what is fixed, and what tuples share."""
        total = self._budget.total_bytes
        wanted = block_bytes or min(total // _BLOCKS, _MOST_BLOCK_BYTES)
        self._slot_bytes = max(1, -(-wanted // _PAGE_BYTES)) * _PAGE_BYTES
        self._work_bytes = max(_LEAST_WORK_BYTES, int(total * _WORK_SHARE), 4 * self._slot_bytes)
        notes = sum(RowSlots.notes_bytes(plain) + 20 for plain in self._spec.plain)
        notes_bytes = total // self._slot_bytes * notes
        reading_bytes = (self._max_outer + 1) * self._slot_bytes
        reading_bytes += self._max_outer * self._slot_bytes // 16 // 8 * _OUTER_BYTES
        least = notes_bytes + self._work_bytes + reading_bytes + _LEAST_SLOTS * self._slot_bytes
        if total < least:
            raise BudgetError(
                f"memory={total} is too small for blocks of {self._slot_bytes} bytes and max_outer="
                f"{self._max_outer}; give memory={2 * least} or more, or smaller ones"
            )
        self._budget.set("notes", notes_bytes)
        self._budget.set("work", self._work_bytes)
        self._budget.set("reading", reading_bytes)
        self._reading_bytes = reading_bytes
        self._piece_rows = max(1, self._work_bytes // 2 // _BYTES_PER_ROW)

    def _spend(self, disk_blocks: int) -> None:
        if self._disk is not None:
            self._clock.sleep(self._disk.seconds(1, disk_blocks))

    def metrics(self) -> dict[str, Any]:
        """Counters since the start.

        `rows_in`, `rows_out`; results by phase: `results_online`, `results_reactive`, `results_cleanup`;
        `blocks_flushed`, `input_buffer_rows_max`; reads: `pages_read` (blocks), `seeks`, `bytes_read`;
        memory: `memory_bytes` (the budget), `peak_bytes` (the most ever accounted), `used_bytes` now.
        """
        return {
            **vars(self.counts),
            "rows_out": self._rows_out,
            "memory_bytes": self._budget.total_bytes,
            "peak_bytes": self._budget.peak_bytes,
            "used_bytes": self._budget.used_bytes,
            "rows_in_memory": sum(map(len, self._inputs)),
            "rows_on_disk": sum(blocks.rows for blocks in self._blocks),
        }

    def offer(self, side: str, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer; False if there is no room.

        Unlike `push`, this can be called while results are being consumed.
        """
        self._check_open()
        number = self._checked(side, batch)
        rows = compact(plain_columns(batch))
        if rows.nbytes > self._budget.free_bytes:
            return False
        self._budget.add("input", rows.nbytes)
        self._await(number, rows)
        return True

    def close(self) -> None:
        """Give files and memory back."""
        self._closed = True
        for file in self._files:
            file.close()
        for tuples in self._inputs:
            tuples.slots.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._budget.check_invariants()
        for tuples, blocks in zip(self._inputs, self._blocks, strict=True):
            tuples.check_invariants()
            blocks.check_invariants()
        self._grid.check_invariants(self._block_counts())
        assert self._budget.account("tuples") >= self._tuple_bytes()
        assert self._pending_rows == sum(batch.num_rows for _, batch in self._pending)

    # The contract.

    def _paced(self, arrivals: Iterable[Arrival]) -> Iterable[Arrival | None]:
        if not isinstance(self._clock, SystemClock):
            return arrivals
        return paced(arrivals, lambda: self._wait_seconds if self._has_blocks_to_join() else None)

    def _push(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._await(side, plain_columns(batch))
        yield from self._arriving()

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        end = self._clock.now() + seconds
        yield from self._arriving()
        if seconds >= self._wait_seconds and not isinstance(self._clock, SystemClock):
            self._clock.sleep(self._wait_seconds)
        while (self._clock.now() < end or seconds == 0) and self._has_blocks_to_join():
            yield from self._reactive(end if seconds else np.inf)
            if seconds == 0 and not self._pending_rows:
                break
            yield from self._arriving()
        self._clock.sleep(max(0.0, end - self._clock.now()))

    def _finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._arriving()
        yield from self._cleanup()
        self._closed = True

    # Arriving.

    def _await(self, side: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._pending.append((side, batch))
            self._pending_rows += batch.num_rows
            self.counts.rows_in += batch.num_rows
            self.counts.input_buffer_rows_max = max(self.counts.input_buffer_rows_max, self._pending_rows)

    def _arriving(self) -> Iterator[pa.RecordBatch]:
        """Take in what has come."""
        self._place()
        while self._pending:
            side, batch = self._pending.popleft()
            piece = batch.slice(0, self._piece_rows)
            if piece.num_rows < batch.num_rows:
                self._pending.appendleft((side, batch.slice(piece.num_rows)))
            self._pending_rows -= piece.num_rows
            yield from self._take_in(side, piece)
        self._budget.set("input", 0)

    def _take_in(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join rows with the other input's in memory, then keep them there."""
        rows = self._spec.keyed(side, piece)
        rows = rows.take(argsort_keys(rows.low))
        arrived = self._stamp + np.arange(len(rows))
        self._stamp += len(rows)
        stored = self._inputs[side].stored(rows, arrived)
        self._placing = side, stored, rows.low, rows.high
        if not self._has_ended[1 - side] or len(self._inputs[1 - side]):
            yield from self._probe(side, rows)
        self._place()

    def _probe(self, side: int, rows: Keyed) -> Iterator[pa.RecordBatch]:
        index = self._inputs[1 - side].index
        for some in index.matches(rows.low, rows.high, self._piece_rows):
            for batch, owner, at in self._results.beside(side, rows.batch, some.owner, places_of(some.place)):
                self.counts.results_online += batch.num_rows
                self._policy.joined(side, rows.low[some.owner[owner]], some.low[at])
                yield batch

    def _place(self) -> None:
        """Keep the rows that were probed last, after others have left for them."""
        if self._placing is None:
            return
        side, stored, low, high = self._placing
        sizes = row_bytes(stored)
        if len(sizes) and int(sizes.max()) > self._room_bytes(side):
            raise BudgetError(
                f"a row of {int(sizes.max()):,} bytes does not fit a block of {self._slot_bytes:,}; "
                f"give block_bytes={2 * int(sizes.max())} or more, and memory for {_LEAST_SLOTS + 20} of them"
            )
        begin = 0
        while begin < len(sizes):
            end = min(len(sizes), begin + self._rows_of_a_block(side, sizes))
            self._make_room(side, sizes[begin:end])
            part = stored.slice(begin, end - begin)
            self._inputs[side].add(part, low[begin:end], high[begin:end])
            self._policy.added(side, low[begin:end])
            self._placing = side, stored.slice(end), low[end:], high[end:]
            begin = end
            self._account()
        self._placing = None

    def _room_bytes(self, side: int) -> int:
        return self._inputs[side].slots.room_bytes - self._blocks[side].key_bytes

    def _rows_of_a_block(self, side: int, sizes: Array) -> int:
        mean = float(sizes.mean()) + self._blocks[side].key_bytes
        return max(1, int(self._inputs[side].slots.room_bytes / mean))

    def _make_room(self, side: int, sizes: Array) -> None:
        """Let tuples leave until there is room for rows of these sizes."""
        while not self._has_room(side, sizes):
            if self._close_up():
                continue
            self._flush(self._rows_of_a_block(side, sizes))

    def _has_room(self, side: int, sizes: Array) -> bool:
        slots = self._inputs[side].slots_for(sizes) + 1  # one more to close up with
        more_bytes = slots * self._slot_bytes + len(sizes) * OrderedIndex.entry_bytes
        return more_bytes <= self._budget.free_bytes

    def _close_up(self) -> bool:
        if self._budget.free_bytes < self._slot_bytes:
            return False
        done = any(tuples.close_up() for tuples in sorted(self._inputs, key=len, reverse=True))
        self._account()
        return done

    def _flush(self, rows: int) -> None:
        """Write a block."""
        preferred = None
        if self._has_ended[LEFT] != self._has_ended[RIGHT]:
            preferred = RIGHT if self._has_ended[LEFT] else LEFT
        if not any(map(len, self._inputs)):
            raise BudgetError(
                f"rows find no room in memory={self._budget.total_bytes}; "
                f"give memory={2 * self._budget.total_bytes} or more"
            )
        side, entries = self._policy.choose(self._inputs, rows, preferred)
        low = self._write(side, entries)
        self._policy.flushed(side, low, self._inputs)
        self._account()

    def _write(self, side: int, entries: Entries) -> Array:
        """Write tuples to disk, in as many blocks as they need, and remove them from memory."""
        tuples, blocks = self._inputs[side], self._blocks[side]
        place, low, high = tuples.index.places(entries)
        rows = tuples.rows_at(place)
        before = len(blocks)
        try:
            for begin, end in portions(row_bytes(rows) + blocks.key_bytes, tuples.slots.room_bytes):
                self._stamp += 1
                part = compact(rows.slice(begin, end - begin))
                blocks.append(part, low[begin:end], high[begin:end], self._stamp)
        except BaseException:
            blocks.undo(before)
            raise
        tuples.remove(entries)
        self.counts.blocks_flushed += len(blocks) - before
        return low

    def _tuple_bytes(self) -> int:
        slots = sum(tuples.used_slots for tuples in self._inputs) * self._slot_bytes
        entries = sum(tuples.index.all_entries for tuples in self._inputs)
        directory = sum(blocks.directory_bytes for blocks in self._blocks)
        return slots + entries * OrderedIndex.entry_bytes + directory

    def _account(self) -> None:
        self._budget.set("tuples", self._tuple_bytes())

    # Reactive and cleanup.

    def _block_counts(self) -> tuple[int, int]:
        return len(self._blocks[LEFT]), len(self._blocks[RIGHT])

    def _has_blocks_to_join(self) -> bool:
        return self._grid.next_step(self._block_counts(), self._max_outer) is not None

    def _reactive(self, end: float) -> Iterator[pa.RecordBatch]:
        """Join blocks on disk, until rows have arrived or time is over; one inner block at a time."""
        try:
            while (step := self._grid.next_step(self._block_counts(), self._max_outer)) is not None:
                for batch in self._join_blocks(step):
                    self.counts.results_reactive += batch.num_rows
                    yield batch
                self._grid.finished()
                if self._pending_rows > self._max_new or self._clock.now() >= end:
                    return
                if end == np.inf:
                    return
        finally:
            self._drop_outer()

    def _cleanup(self) -> Iterator[pa.RecordBatch]:
        """Write what is in memory, and join the rest of the blocks with all memory for the outer ones."""
        for side in (LEFT, RIGHT):
            if self._has_nothing_to_meet(side):
                continue
            while len(self._inputs[side]):
                rows = max(1, self._slot_bytes // 64)
                self._write(side, self._inputs[side].index.lowest(rows))
                self._account()
        self._budget.set("reading", 0)
        most = self._most_outer()
        self._budget.set("reading", self._budget.free_bytes)
        try:
            while (step := self._grid.next_step(self._block_counts(), most)) is not None:
                for batch in self._join_blocks(step):
                    self.counts.results_cleanup += batch.num_rows
                    yield batch
                self._grid.finished()
        finally:
            self._drop_outer()

    def _has_nothing_to_meet(self, side: int) -> bool:
        """Whether everything of the other input was in memory all along."""
        return len(self._blocks[side]) == 0 and len(self._blocks[1 - side]) == 0

    def _most_outer(self) -> int:
        rows = max((blocks.rows / len(blocks) for blocks in self._blocks if len(blocks)), default=1.0)
        per_block = self._slot_bytes + rows * _OUTER_BYTES
        return max(self._max_outer, int((self._budget.free_bytes - self._slot_bytes) / per_block))

    def _join_blocks(self, step: Step) -> Iterator[pa.RecordBatch]:
        outer = self._load_outer(step)
        inner = 1 - step.outer
        first, last = self._blocks[inner].reach_of(step.inner_block)
        if len(outer.run.low) == 0 or first > outer.run.reach[-1] or last < outer.run.low[0]:
            return
        block, rows = self._blocks[inner].read(step.inner_block)
        self._count_read(inner, step.inner_block)
        begin, count = overlap_ranges(outer.run.low, outer.run.reach, block.low, block.high)
        ends = np.cumsum(count, dtype=np.int64)
        shown = rows.select(rows.schema.names[1:])
        for start in range(0, int(ends[-1]), self._piece_rows):
            owner, at = expand_part(begin, ends, start, min(start + self._piece_rows, int(ends[-1])))
            is_new = (outer.arrived[at] >= block.left) | (block.arrived[owner] >= outer.left[at])
            if not self._spec.are_points[step.outer]:
                is_new &= outer.run.high[at] >= block.low[owner]
            owner, at = owner[is_new], at[is_new]
            if len(at):
                places = places_of(outer.run.place[at])
                for batch, _, _ in self._results.beside(inner, shown, owner, places):
                    yield batch

    def _load_outer(self, step: Step) -> "_Outer":
        """The outer blocks of a step in memory, as one sorted list."""
        wanted = step.outer, step.outer_begin, step.outer_end
        if self._outer is None or self._outer.blocks != wanted:
            self._drop_outer()
            self._outer = _Outer(wanted, self._inputs[step.outer], self._blocks[step.outer])
            for number in range(step.outer_begin, step.outer_end):
                self._count_read(step.outer, number, is_first=number == step.outer_begin)
        return self._outer

    def _drop_outer(self) -> None:
        if self._outer is not None:
            self._outer.close()
            self._outer = None

    def _count_read(self, side: int, number: int, *, is_first: bool = True) -> None:
        self.counts.pages_read += 1
        self.counts.seeks += is_first
        self.counts.bytes_read += self._blocks[side].bytes_of(number)


class _Outer:
    """Outer blocks in memory."""

    def __init__(self, wanted: tuple[int, int, int], tuples: Tuples, blocks: Blocks) -> None:
        self.blocks = wanted
        self._tuples = tuples
        self._slots: list[int] = []
        low, high, place, arrived, left = [], [], [], [], []
        for number in range(wanted[1], wanted[2]):
            slot = tuples.take_slot()
            self._slots.append(slot)
            block = blocks.read_into(number, tuples.slots, slot)
            low.append(block.low)
            high.append(block.high)
            place.append((np.int64(slot) << 32) + np.arange(len(block.low)))
            arrived.append(block.arrived)
            left.append(np.full(len(block.low), block.left))
        lows = np.concatenate(low)
        order = argsort_keys(lows)
        highs = np.concatenate(high)[order]
        self.run = Run(lows[order], highs, np.maximum.accumulate(highs), np.concatenate(place)[order])
        self.arrived = np.concatenate(arrived)[order]
        self.left = np.concatenate(left)[order]

    def close(self) -> None:
        for slot in self._slots:
            self._tuples.free_slot(slot)


def _check_options(max_outer: int, max_new: int, wait_seconds: float, block_bytes: int | None) -> None:
    for name, value in (("max_outer", max_outer), ("max_new", max_new), ("block_bytes", block_bytes)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise OptionError(f"{name}={value!r} must be a whole number of at least 1")
    if not wait_seconds >= 0:
        raise OptionError(f"wait_seconds={wait_seconds!r} must not be negative")
