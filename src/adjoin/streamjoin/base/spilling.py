"""The frame of joins that spill: arriving, reactive and cleanup phases over all inputs in one budget."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from adjoin.arguments import local_path, seconds, whole_number
from adjoin.arrow.copying import compact, plain_columns, plain_schema
from adjoin.arrow.encodings import Orders
from adjoin.arrow.row_sizes import row_larger_than
from adjoin.errors import AdjoinError, BudgetError
from adjoin.master.device import Cost
from adjoin.memory.budget import MemoryBudget, parse_bytes
from adjoin.operators.clock import Clock, SystemClock
from adjoin.operators.late_input import arrivals as paced
from adjoin.operators.operator import Results
from adjoin.streamjoin.base import snapshots
from adjoin.streamjoin.base.contract import Arrival, StreamJoin
from adjoin.streamjoin.base.counts import Counts
from adjoin.streamjoin.base.sizes import INPUT_SHARE, STAMP_BYTES, Division, Reading
from adjoin.streamjoin.base.stamps import Stamps
from adjoin.streamjoin.disk.block_directory import Directory
from adjoin.streamjoin.disk.blocks import Blocks
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.spill_file import SpillFile
from adjoin.streamjoin.memory.flush_policy import FlushPolicy
from adjoin.streamjoin.memory.retention import Keeping
from adjoin.streamjoin.memory.tuples import Keys, Tuples, stored_schema

_DISK_BLOCK_BYTES = 4096


def described(schema: pa.Schema) -> list[str]:
    """The columns of a schema, in words that differ where they do."""
    return [f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema]


class Cleaning(Protocol):
    """Joins the blocks that are left when all inputs have ended."""

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error it goes on where it was."""


class SpillingJoin(StreamJoin):
    """A join of streams that keeps what it can in memory, and the rest on disk.

    *Arriving*: rows are joined with those of the other inputs in memory, then kept there; when it is full,
    tuples of the policy's choice are written to disk as a sorted block. *Reactive*: while nothing arrives,
    blocks on disk are joined with each other. *Cleanup*: when all inputs have ended, what is still in memory
    is written, and the rest of the blocks is joined. Tuples that were in memory together were joined when the
    last of them arrived; all others are joined from disk.

    What fits: a memory that the constructor accepts is enough for inputs of any length, skew and order, as
    long as every row fits in a block. A row takes the bytes of its values, 4 more for each string, binary or
    list (8 for large ones) and a bit for each nullable value; `metrics()["largest_row_bytes"]` says how many
    it may take. With the default block size that is about 1/50 of the memory divided by the number of inputs,
    never less than 3,000 bytes for a few columns, and at most 1 MB. A batch with a larger row is refused as a
    whole with a `BudgetError` that names the memory which is enough; the join goes on without it.

    Args:
        names: The names of the inputs.
        schemas: Their schemas.
        schema: The schema of the results.
        are_points: For each join attribute of each input, whether a tuple has one key there or an interval.
        memory: Budget of the whole operator: bytes, or text such as "64MB".
        block_bytes: Size of a block on disk; by default a small part of the memory.
        max_outer: Most outer blocks of a reactive phase (MaxOuterMem); by default a tenth of the memory. That
            is set aside when the first phase begins.
        least_outer: In a small memory so many will do.
        max_new: Rows that end a reactive phase when they have arrived (MaxNewArr).
        wait_seconds: For so long nothing must arrive before a reactive phase begins (WaitThresh).
        spill: Folder for what memory cannot hold; the system's for temporary files by default.
        clock: Tells the time; the system's by default.
        disk: What reading and writing cost on the clock, if that is a simulated one.
    """

    reading: Reading = Reading()
    """What is in memory of blocks that are joined in a reactive phase."""

    def __init__(
        self,
        names: Sequence[str],
        schemas: Sequence[pa.Schema],
        schema: pa.Schema,
        are_points: Sequence[Sequence[bool]],
        memory: int | str,
        *,
        block_bytes: int | None = None,
        max_outer: int | None = None,
        least_outer: int | None = None,
        max_new: int = 1000,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        super().__init__(names, schemas, schema)
        max_outer = None if max_outer is None else whole_number("max_outer", max_outer, 1)
        block_bytes = None if block_bytes is None else whole_number("block_bytes", block_bytes, 1)
        self._max_new = whole_number("max_new", max_new, 0)
        self._wait_seconds = seconds("wait_seconds", wait_seconds)
        folder = None if spill is None else local_path(spill, "spill")
        self._clock = clock or SystemClock()
        self._disk = disk
        self._head = 0, -1
        self._budget = MemoryBudget(parse_bytes(memory))
        plain = [plain_schema(each) for each in schemas]
        outer = None if max_outer is None else (max_outer, least_outer or max_outer)
        self._division = Division(plain, are_points, self.reading, outer, block_bytes)
        self._sizes = sizes = self._division.of(self._budget.total_bytes)
        sizes.reserve(self._budget)
        self._inputs = tuple(
            Tuples(stored_schema(each), are_points=points, slots=sizes.slots, slot_bytes=sizes.slot_bytes)
            for each, points in zip(plain, are_points, strict=True)
        )
        self._files = tuple(SpillFile(folder, partial(self._spend, side)) for side in range(len(plain)))
        self._blocks = tuple(
            Blocks(
                self._inputs[side].schema,
                are_points=are_points[side][0],
                most_bytes=sizes.slot_bytes,
                file=file,
                directory=Directory(
                    sizes.directory_chunks, partial(SpillFile, folder, partial(self._spend, -1 - side))
                ),
            )
            for side, file in enumerate(self._files)
        )
        self.counts = Counts()
        self._stamps = Stamps()
        self._pending: deque[tuple[int, pa.RecordBatch]] = deque()
        self._pending_rows = 0
        self._policy, self._reactive = self._strategy()
        self._cleaning: Cleaning | None = None
        self._is_finishing = False
        self._kept = Keeping(
            self._inputs,
            self._blocks,
            self._policy,
            self._reactive,
            self._stamps,
            self._budget,
            sizes,
            self.counts,
            self._has_ended,
        )

    @property
    @abstractmethod
    def _orders(self) -> Orders:
        """What ordered dictionaries are ordered by."""

    def _checked(self, side: str, batch: pa.RecordBatch) -> int:
        number = super()._checked(side, batch)
        largest = self._sizes.row_bytes[number] - STAMP_BYTES
        found = row_larger_than(largest, batch)
        if found is not None:
            row, size = found
            raise BudgetError(
                f"row {row} of this batch of the {side} input takes {size:,} bytes; with "
                f"memory={self._budget.total_bytes} the largest that fits has {largest:,}; nothing of the "
                f"batch was taken; give {self._division.enough_for(size + STAMP_BYTES)}"
            )
        self._orders.note_columns(batch, number)
        return number

    @abstractmethod
    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        """What chooses the tuples that leave memory, and what joins those on disk while nothing arrives."""

    def _spend(self, side: int, begin: int, end: int) -> None:
        """A simulated disk reads or writes; it is positioned unless it goes on where it was."""
        if self._disk is not None:
            is_there = self._head == (side, begin)
            self._head = side, end
            blocks = -(-(end - begin) // _DISK_BLOCK_BYTES)
            self._clock.sleep(self._disk.seconds(0 if is_there else 1, blocks))

    def metrics(self) -> dict[str, Any]:
        """Counters since the start.

        `rows_in`, `rows_out`; results by phase: `results_online`, `results_reactive`, `results_cleanup`;
        `blocks_flushed`; rows in the input buffer: `input_buffer_rows_max`, and where a reactive phase ended
        `input_buffer_rows_at_handover` (the sum over all `reactive_phases`) and
        `input_buffer_rows_at_handover_max`; reads: `pages_read` (blocks), `seeks`, `bytes_read`;
        memory: `memory_bytes` (the budget), `peak_bytes` (the most ever accounted), `used_bytes` now,
        `index_bytes` of them for indexes; `largest_row_bytes`: the largest row that fits, see `SpillingJoin`;
        where tuples are: `rows_in_memory`, `rows_on_disk`.
        """
        return {
            **vars(self.counts),
            "rows_out": self._rows_out,
            "memory_bytes": self._budget.total_bytes,
            "peak_bytes": self._budget.peak_bytes,
            "used_bytes": self._budget.used_bytes,
            "largest_row_bytes": self._sizes.largest_row_bytes,
            "index_bytes": sum(tuples.index_bytes for tuples in self._inputs),
            "rows_in_memory": sum(map(len, self._inputs)),
            "rows_on_disk": sum(blocks.rows for blocks in self._blocks),
        }

    def offer(self, side: str, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer; False if there is no room.

        Unlike `push`, this can be called while results are being consumed. A part of the memory is for such
        rows, from the first one on.
        """
        self._check_open()
        number = self._checked(side, batch)
        rows = compact(plain_columns(batch))
        self._kept.input_bytes = int(self._budget.total_bytes * INPUT_SHARE)
        if rows.nbytes > min(self._kept.input_room_bytes, self._budget.free_bytes - self._kept.spare_bytes):
            return False
        self._budget.add("input", rows.nbytes)
        self._await(number, rows)
        return True

    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        """All state, between two calls, as named values for `restore`; see `snapshots.dump`.

        It is the state of the moment in which the first value is asked for; ask for all before the next call.
        """
        self._check_between_calls()
        return Results(self._dumped())

    def _check_between_calls(self) -> None:
        self._check_open()
        if self._busy or self._pending or self._is_unfinished():
            raise AdjoinError(
                "a snapshot is taken between two calls, with nothing waiting in the input buffer and nothing "
                "left over from a call that failed"
            )

    def _facts(self) -> dict[str, Any]:
        return {
            "join": self._identity(),
            "now": self._stamps.now,
            "rows_out": self._rows_out,
            "has_ended": list(self._has_ended),
            "reactive": self._reactive.to_json(),
            "counts": dict(vars(self.counts)),
            "input_bytes": self._kept.input_bytes,
            "policy": self._policy.to_json(),
            **self._more_facts(),
        }

    def _more_facts(self) -> dict[str, Any]:
        """What else must be known to go on."""
        return {}

    def _dumped(self) -> Iterator[tuple[str, bytes]]:
        self._check_between_calls()
        self._busy = True
        try:
            for value in snapshots.dump(
                self._facts(), self._names, self._inputs, self._blocks, self._orders, self._sizes.piece_rows
            ):
                yield value
                self._check_open()
        finally:
            self._busy = False

    def _is_unfinished(self) -> bool:
        """Whether something was interrupted."""
        return self._kept.is_behind or self._reactive.is_interrupted or self._cleaning is not None

    def restore(self, values: Iterable[tuple[str, bytes]]) -> None:
        """Go on from a snapshot of an operator with the same arguments; this one must be new.

        Raises:
            CorruptionError: A value is missing or damaged.
            OptionError: It is a snapshot of a join with other arguments.
            SchemaError: Of one with other columns.
        """
        self._check_open()
        if self._stamps.now or self._pending or self._busy:
            raise AdjoinError("only a new operator can be restored; make one")
        snapshot = snapshots.Snapshot(values)
        snapshot.check(self._identity())
        try:
            snapshot.load(self._names, self._inputs, self._blocks, self._orders)
            self._restored(snapshot.facts)
        except BaseException:
            self._ended = True
            raise

    def _identity(self) -> dict[str, Any]:
        """What must be the same for an operator to go on from a snapshot."""
        return {
            "the operator": type(self).__name__,
            "the list of inputs": list(self._names),
            **{
                f"the schema of {name}": described(schema)
                for name, schema in zip(self._names, self._schemas, strict=True)
            },
            **self._condition(),
            "the schema of results": described(self.schema),
            "memory": self._budget.total_bytes,
            "block_bytes": self._sizes.slot_bytes,
            "max_outer": self._sizes.max_outer,
        }

    @abstractmethod
    def _condition(self) -> dict[str, Any]:
        """When rows match, in words that differ where it does."""

    def _restored(self, facts: dict[str, Any]) -> None:
        self._kept.input_bytes = facts["input_bytes"]
        self._stamps.now, self._rows_out = facts["now"], facts["rows_out"]
        self._has_ended[:] = facts["has_ended"]
        self._reactive.restore(facts["reactive"])
        vars(self.counts).update(facts["counts"])
        self._policy.restore(facts["policy"])
        self._restore_more(facts)
        self._kept.account()

    def _restore_more(self, facts: dict[str, Any]) -> None:
        """Go on from what `_more_facts` said."""

    def _close(self) -> None:
        for file, blocks in zip(self._files, self._blocks, strict=True):
            file.close()
            blocks.close()
        for tuples in self._inputs:
            tuples.slots.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._budget.check_invariants()
        self._kept.check_invariants()
        self._reactive.check_invariants()
        assert self._pending_rows == sum(batch.num_rows for _, batch in self._pending)

    def _paced(self, arrivals: Iterable[Arrival]) -> Iterable[Arrival | None]:
        if not isinstance(self._clock, SystemClock):
            return arrivals
        return paced(arrivals, lambda: self._wait_seconds if self._can_react() else None)

    def _push(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._await(side, batch)
        yield from self._arriving()

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        end = self._clock.now() + seconds
        yield from self._arriving()
        if seconds >= self._wait_seconds:
            self._clock.sleep(self._wait_seconds)
            yield from self._arriving()
            while self._can_react() and self._clock.now() < end:
                yield from self._react(end)
                yield from self._arriving()
        self._clock.sleep(max(0.0, end - self._clock.now()))

    def _waited(self) -> Iterator[pa.RecordBatch]:
        """Nothing has come for as long as a reactive phase waits: do a unit of work, and look again."""
        yield from self._arriving()
        yield from self._react(self._clock.now())

    def _can_react(self) -> bool:
        """Whether blocks on disk can be joined now; once cleanup has begun, it joins them."""
        return not self._is_finishing and self._reactive.has_more()

    def _finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._arriving()
        self._is_finishing = True
        yield from self._cleanup()
        self._ended = True

    # Arriving.

    def _await(self, side: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._pending.append((side, batch))
            self._pending_rows += batch.num_rows
            self.counts.rows_in += batch.num_rows
            self.counts.input_buffer_rows_max = max(self.counts.input_buffer_rows_max, self._pending_rows)

    def _put_back(self, side: int, piece: pa.RecordBatch) -> None:
        """These rows wait for their turn again, before all others."""
        self._pending.appendleft((side, piece))
        self._pending_rows += piece.num_rows

    def _arriving(self) -> Iterator[pa.RecordBatch]:
        """Take in what has come, after what an error interrupted."""
        if self._reactive.is_interrupted:
            yield from self._work()
        self._kept.catch_up()
        while self._pending:
            side, batch = self._pending.popleft()
            self._pending_rows -= batch.num_rows
            piece = batch.slice(0, self._piece_rows(side, batch))
            if piece.num_rows < batch.num_rows:
                self._put_back(side, batch.slice(piece.num_rows))
            yield from self._take_in(side, piece)
        self._budget.set("input", 0)
        if self._kept.lacks_room_for_input:
            yield from self._before_leaving()
            self._kept.make_room_for_input()

    def _before_leaving(self) -> Iterator[pa.RecordBatch]:
        """Results that must come before tuples leave memory; none where they came on arrival."""
        yield from ()

    def _piece_rows(self, side: int, batch: pa.RecordBatch) -> int:  # noqa: ARG002
        """How many rows of the batch to take in at a time: as many as one step may copy."""
        rows = min(batch.num_rows, self._sizes.piece_rows)
        while rows > 1 and batch.slice(0, rows).nbytes > self._sizes.work_bytes // 2:
            rows //= 2
        return rows

    @abstractmethod
    def _take_in(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join rows with the other inputs' in memory, then keep them there."""

    def _expect(self, side: int, batch: pa.RecordBatch, keys: Keys) -> None:
        """Rows have arrived, each at its moment: they will be kept."""
        arrived = self._stamps.many(batch.num_rows) + np.arange(batch.num_rows)
        self._kept.expect(side, self._inputs[side].stored(batch, arrived), keys)

    # Reactive and cleanup.

    def _react(self, end: float) -> Iterator[pa.RecordBatch]:
        """Join blocks on disk, until rows have arrived or time is over; one unit of work at a time."""
        while self._can_react():
            yield from self._work()
            if self._pending_rows > self._max_new or not self._clock.now() < end:
                break
        self.counts.handed_over(self._pending_rows)

    def _work(self) -> Iterator[pa.RecordBatch]:
        # Nothing may leave memory before what was interrupted is done.
        if not self._reactive.is_interrupted and self._kept.makes_room_for_reading():
            return
        try:
            for batch in self._reactive.work():
                self.counts.results_reactive += batch.num_rows
                yield batch
        finally:
            self._kept.account()

    def _cleanup(self) -> Iterator[pa.RecordBatch]:
        """Write what is in memory, and join the rest of the blocks with all memory."""
        if self._cleaning is None:
            self._reactive.close()
            self._budget.set("reading", 0)
            if any(map(len, self._blocks)):  # else all tuples have met in memory
                self._kept.write_all()
            self._cleaning = self._make_cleanup()
            self._budget.set("reading", self._budget.free_bytes)
        for batch in self._cleaning.run():
            self.counts.results_cleanup += batch.num_rows
            yield batch

    @abstractmethod
    def _make_cleanup(self) -> Cleaning:
        """What joins the blocks that are left, with all memory that is free now."""
