"""The three phases of a join that spills: arriving, reactive and cleanup."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from adjoin.arrow.copying import compact, plain_columns
from adjoin.arrow.row_sizes import row_bytes, row_larger_than
from adjoin.errors import AdjoinError, BudgetError
from adjoin.kernels.types import Array
from adjoin.operators.clock import SystemClock
from adjoin.operators.late_input import arrivals as paced
from adjoin.operators.operator import Results
from adjoin.streamjoin.base import snapshots
from adjoin.streamjoin.base.contract import Arrival, StreamJoin
from adjoin.streamjoin.base.parts import Cleanup, FlushPolicy, JoinSpec, Leaving, ReactiveWork, TupleJoin
from adjoin.streamjoin.base.sizes import STAMP_BYTES
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.memory.tuples import KeyIntervals


@dataclass(frozen=True)
class Placement:
    """Tuples that have been joined with those in memory, but are not all in memory themselves yet.

    Others may have to be flushed to make room for them, and the disk may be full. The remaining tuples then
    stay in the operator's `_placement`, and `_resume` places them before anything else arrives.
    """

    side: int
    tuples: pa.RecordBatch
    keys: KeyIntervals
    marks: Array | None = None

    def part(self, begin: int, end: int | None = None) -> "Placement":
        """The tuples begin..end-1."""
        keys = [(low[begin:end], high[begin:end]) for low, high in self.keys]
        rows = self.tuples.num_rows if end is None else end
        marks = None if self.marks is None else self.marks[begin:end]
        return Placement(self.side, self.tuples.slice(begin, rows - begin), keys, marks)


class SpillingJoin(StreamJoin):
    """A join of streams that keeps what it can in memory, and the rest on disk.

    *Arriving phase*: rows are joined with the tuples of the other inputs in memory, then kept there. When
    memory is full, the flush policy chooses tuples, which are written to disk as a sorted block. *Reactive
    phase*: while nothing arrives, blocks on disk are joined with each other. *Cleanup phase*: when all inputs
    have ended, the tuples still in memory are written, and the remaining blocks are joined. Tuples that were
    in memory together were joined when the last of them arrived; all others are joined from disk.

    What fits: a memory that the constructor accepts is enough for inputs of any length, skew and order, as
    long as every row fits in a block. A row takes the bytes of its values, 4 more for each string, binary or
    list (8 for large ones) and a bit for each nullable value; `metrics()["largest_row_bytes"]` says how many
    it may take. With the default block size that is about 1/50 of the memory divided by the number of inputs,
    never less than 3,000 bytes for a few columns, and at most 1 MB. A batch with a larger row is refused as a
    whole with a `BudgetError` that names the memory that is enough; the join continues without it.

    Args:
        spec: What is joined, and when rows match.
        storage: Holds the tuples, in memory and on disk.
        tuple_join: Joins tuples.
        policy: Chooses the tuples that leave memory.
        reactive: Joins blocks while nothing arrives.

    Attributes:
        counters: What has happened so far.
    """

    def __init__(
        self,
        spec: JoinSpec,
        storage: Storage,
        tuple_join: TupleJoin,
        policy: FlushPolicy,
        reactive: ReactiveWork,
    ) -> None:
        super().__init__(spec.names, spec.schemas, spec.schema)
        self._spec = spec
        self._storage = storage
        self._tuple_join = tuple_join
        self._policy = policy
        self._reactive = reactive
        self.counters = storage.counters
        self._clock = storage.options.clock
        self._wait_seconds = storage.options.wait_seconds
        self._max_new = storage.options.max_new
        self._buffer: deque[tuple[int, pa.RecordBatch]] = deque()
        self._buffer_rows = 0
        self._placement: Placement | None = None
        self._is_finishing = False
        self._cleanup: Cleanup | None = None

    # What starts the phases.

    def _push(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._put_in_buffer(side, batch)
        yield from self._arriving_phase()

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        end = self._clock.now() + seconds
        yield from self._arriving_phase()
        if seconds >= self._wait_seconds:
            self._clock.sleep(self._wait_seconds)
            yield from self._arriving_phase()
            while self._can_react() and self._clock.now() < end:
                yield from self._reactive_phase(end)
                yield from self._arriving_phase()
        self._clock.sleep(max(0.0, end - self._clock.now()))

    def _paced(self, arrivals: Iterable[Arrival]) -> Iterable[Arrival | None]:
        if not isinstance(self._clock, SystemClock):
            return arrivals
        return paced(arrivals, lambda: self._wait_seconds if self._can_react() else None)

    def _waited(self) -> Iterator[pa.RecordBatch]:
        """Nothing has arrived for `wait_seconds`: do a unit of reactive work, and look again."""
        yield from self._arriving_phase()
        yield from self._reactive_phase(self._clock.now())

    def _finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._arriving_phase()
        self._is_finishing = True
        yield from self._cleanup_phase()
        self._ended = True

    # Arriving phase (Algorithm 1).

    def _arriving_phase(self) -> Iterator[pa.RecordBatch]:
        """Empty the input buffer: join every row with the tuples in memory, and keep it there."""
        yield from self._resume()
        while self._buffer:
            side, batch = self._buffer.popleft()
            self._buffer_rows -= batch.num_rows
            piece = batch.slice(0, self._piece_rows(side, batch))
            if piece.num_rows < batch.num_rows:
                self._put_back(side, batch.slice(piece.num_rows))
            yield from self._arrive(side, piece)
        self._storage.budget.set("input", 0)
        if self._storage.input_bytes and self._storage.has_tuples and self._storage.lacks(0):
            yield from self._before_flush()
            self._flush_while(lambda: self._storage.lacks(0))

    def _resume(self) -> Iterator[pa.RecordBatch]:
        """Complete what a `StorageError` interrupted: a unit of reactive work, or a placement."""
        if self._reactive.is_interrupted:
            yield from self._reactive_work()
        if self._placement is not None:
            self._place(self._placement)

    def _arrive(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Stamp rows, probe the other inputs with them, and keep them."""
        rows, keys = self._spec.keyed(side, piece)
        placement = Placement(side, self._storage.stamped(side, rows), keys)
        yield from self._probe(side, rows, keys)
        self._place(placement)

    def _probe(self, side: int, rows: pa.RecordBatch, keys: KeyIntervals) -> Iterator[pa.RecordBatch]:
        for batch in self._tuple_join.probe(side, rows, keys, self._policy):
            self.counters.results_online += batch.num_rows
            yield batch

    def _place(self, placement: Placement) -> None:
        """Keep tuples in memory, a block at a time; others are flushed while it is full.

        Raises:
            StorageError: The disk is full; `_placement` has the tuples that are left, for `_resume`.
        """
        self._placement, side = placement, placement.side
        sizes = row_bytes(placement.tuples)
        for begin, end in self._storage.blockfuls(side, sizes):
            self._make_room(side, sizes[begin:end])
            part = placement.part(begin, end)
            self._storage.inputs[side].add(part.tuples, part.keys, marks=part.marks)
            self._policy.added(side, part.keys)
            self._reactive.arrived(side, part.keys[0][0])
            self._placement = placement.part(end)
            self._storage.account()
        self._placement = None

    def _make_room(self, side: int, sizes: Array) -> None:
        self._flush_while(lambda: not self._storage.has_room(side, sizes))
        assert self._storage.has_room(side, sizes), "a block always has room once all tuples have left"

    def _flush_while(self, is_full: Callable[[], bool]) -> None:
        """Apply the flush policy as long as memory is full and closing up gains nothing."""
        while is_full() and self._storage.has_tuples:
            if not self._storage.close_up():
                self._flush()

    def _flush(self) -> None:
        """Write the tuples to disk that the flush policy chooses (Algorithm 2)."""
        for leaving in self._policy.choose(self._storage.shortage(self._has_ended)):
            self._write(leaving)

    def _write(self, leaving: Leaving) -> None:
        written = self._storage.write(leaving)
        self._policy.flushed(leaving.side, written.keys, self._storage.inputs[leaving.side])
        self._reactive.flushed(leaving.side, written.blocks)

    def _before_flush(self) -> Iterator[pa.RecordBatch]:
        """Results due before tuples leave memory; none in joins that return all of them on arrival."""
        yield from ()

    # Reactive phase (Algorithm 4).

    def _can_react(self) -> bool:
        """Whether blocks on disk can be joined now; once the cleanup phase has begun, it joins them."""
        return not self._is_finishing and self._reactive.has_more()

    def _reactive_phase(self, end: float) -> Iterator[pa.RecordBatch]:
        """Join blocks on disk, a unit of work at a time, until rows have arrived or time is over."""
        while self._can_react():
            yield from self._reactive_work()
            if self._buffer_rows > self._max_new or self._clock.now() >= end:
                break
        self.counters.handed_over(self._buffer_rows)

    def _reactive_work(self) -> Iterator[pa.RecordBatch]:
        """Do a unit of work; before the first one, set memory aside for it, a step at a time."""
        # Nothing may leave memory before what was interrupted is done.
        if not self._reactive.is_interrupted and self._makes_room_for_reactive_phases():
            return
        try:
            for batch in self._reactive.work():
                self.counters.results_reactive += batch.num_rows
                yield batch
        finally:
            self._storage.account()

    def _makes_room_for_reactive_phases(self) -> bool:
        """Whether a block of tuples had to leave so that memory could be set aside.

        Called until nothing is missing, so that arrivals need not wait while many blocks are written.
        """
        missing_bytes = self._storage.missing_reactive_bytes
        if not missing_bytes:
            return False
        is_full = self._storage.has_tuples and self._storage.lacks(missing_bytes)
        if is_full and not self._storage.close_up():
            self._flush()
        self._storage.reserve_for_reactive_phases(has_flushed=is_full)
        return is_full

    # Cleanup phase.

    def _cleanup_phase(self) -> Iterator[pa.RecordBatch]:
        """Write what is in memory, then join the remaining blocks with all memory."""
        if self._cleanup is None:
            self._cleanup = self._begin_cleanup()
        for batch in self._cleanup.run():
            self.counters.results_cleanup += batch.num_rows
            yield batch

    def _begin_cleanup(self) -> Cleanup:
        storage = self._storage
        self._reactive.close()
        storage.budget.set("reactive", 0)
        if storage.has_blocks:  # else all tuples have met in memory
            self._write_all()
        cleanup = self._tuple_join.cleanup(self._reactive)
        storage.budget.set("reactive", storage.budget.free_bytes)
        return cleanup

    def _write_all(self) -> None:
        for side, tuples in enumerate(self._storage.inputs):
            while len(tuples):
                self._write(Leaving(side, tuples.index.lowest(self._storage.block_rows(side))))

    # Input buffer.

    def offer(self, side: str, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer; returns False if they do not fit.

        Unlike `push`, this may be called while results are being consumed. The first call reserves a part of
        the memory for such rows.
        """
        self._check_open()
        number = self._checked(side, batch)
        rows = compact(plain_columns(batch))
        self._storage.reserve_for_input()
        fits = self._storage.takes_input(rows.nbytes)
        if fits:
            self._put_in_buffer(number, rows)
        return fits

    def _put_in_buffer(self, side: int, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._buffer.append((side, batch))
            self._buffer_rows += batch.num_rows
            self.counters.buffered(batch.num_rows, self._buffer_rows)

    def _put_back(self, side: int, piece: pa.RecordBatch) -> None:
        """Put rows at the head of the input buffer."""
        self._buffer.appendleft((side, piece))
        self._buffer_rows += piece.num_rows

    def _piece_rows(self, side: int, batch: pa.RecordBatch) -> int:  # noqa: ARG002
        """How many rows of the batch to take at a time: as many as one step may copy."""
        sizes = self._storage.sizes
        rows = min(batch.num_rows, sizes.piece_rows)
        while rows > 1 and batch.slice(0, rows).nbytes > sizes.work_bytes // 2:
            rows //= 2
        return rows

    def _checked(self, side: str, batch: pa.RecordBatch) -> int:
        number, storage = super()._checked(side, batch), self._storage
        largest_bytes = storage.sizes.row_bytes[number] - STAMP_BYTES
        found = row_larger_than(largest_bytes, batch)
        if found is not None:
            row, size = found
            raise BudgetError(
                f"row {row} of this batch of the {side} input takes {size:,} bytes; with "
                f"memory={storage.budget.total_bytes} the largest that fits has {largest_bytes:,}; nothing "
                f"of the batch was taken; give {storage.plan.enough_for(size + STAMP_BYTES)}"
            )
        self._spec.orders.note_columns(batch, number)
        return number

    # Metrics, snapshots, the end.

    def metrics(self) -> dict[str, Any]:
        """Counters since the start.

        `rows_in`, `rows_out`; results by phase: `results_online`, `results_reactive`, `results_cleanup`;
        `blocks_flushed`; rows in the input buffer: `input_buffer_rows_max`, and at the end of reactive phases
        `input_buffer_rows_at_handover` (the sum over all `reactive_phases`) and
        `input_buffer_rows_at_handover_max`; reads: `pages_read` (blocks), `seeks`, `bytes_read`;
        memory: `memory_bytes` (the budget), `peak_bytes` (the most ever accounted), `used_bytes` now,
        `index_bytes` of them for indexes; `largest_row_bytes`: the largest row that fits, see `SpillingJoin`;
        where tuples are: `rows_in_memory`, `rows_on_disk`.
        """
        storage = self._storage
        return {
            **vars(self.counters),
            "rows_out": self._rows_out,
            "memory_bytes": storage.budget.total_bytes,
            "peak_bytes": storage.budget.peak_bytes,
            "used_bytes": storage.budget.used_bytes,
            "largest_row_bytes": storage.sizes.largest_row_bytes,
            "index_bytes": sum(tuples.index_bytes for tuples in storage.inputs),
            "rows_in_memory": sum(map(len, storage.inputs)),
            "rows_on_disk": sum(blocks.rows for blocks in storage.blocks),
            **self._tuple_join.metrics(),
        }

    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        """The whole state, between two calls, as named values for `restore`.

        It is the state at the moment when the first value is consumed; consume all before the next call.
        """
        self._check_between_calls()
        return Results(self._dumped())

    def _check_between_calls(self) -> None:
        self._check_open()
        if self._busy or self._buffer or self._is_unfinished():
            raise AdjoinError(
                "a snapshot is taken between two calls, with an empty input buffer and nothing left over "
                "from a call that failed"
            )

    def _is_unfinished(self) -> bool:
        """Whether something was interrupted."""
        return self._placement is not None or self._reactive.is_interrupted or self._cleanup is not None

    def _dumped(self) -> Iterator[tuple[str, bytes]]:
        self._check_between_calls()
        self._busy = True
        try:
            for value in snapshots.dump(self._facts(), self._spec, self._storage):
                yield value
                self._check_open()
        finally:
            self._busy = False

    def restore(self, values: Iterable[tuple[str, bytes]]) -> None:
        """Continue from a snapshot of an operator with the same arguments; this one must be new.

        Raises:
            CorruptionError: A value is missing or damaged.
            OptionError: The snapshot is of a join with other arguments.
            SchemaError: It is of a join with other columns.
        """
        self._check_open()
        if self._storage.moments.now or self._buffer or self._busy:
            raise AdjoinError("only a new operator can be restored; make one")
        snapshot = snapshots.Snapshot(values)
        snapshot.check(self._identity())
        try:
            snapshot.load(self._spec, self._storage)
            self._restore(snapshot.facts)
        except BaseException:
            self._ended = True
            raise

    def _identity(self) -> dict[str, Any]:
        described = {**self._spec.described, **self._reactive.described}
        return snapshots.identity(type(self).__name__, self._spec, self._storage, described)

    def _facts(self) -> dict[str, Any]:
        return {
            "join": self._identity(),
            "now": self._storage.moments.now,
            "rows_out": self._rows_out,
            "has_ended": list(self._has_ended),
            "reactive": self._reactive.to_json(),
            "counts": dict(vars(self.counters)),
            "input_bytes": self._storage.input_bytes,
            "policy": self._policy.to_json(),
            **self._tuple_join.to_json(),
        }

    def _restore(self, facts: dict[str, Any]) -> None:
        self._storage.moments.now, self._rows_out = facts["now"], facts["rows_out"]
        self._has_ended[:] = facts["has_ended"]
        self._reactive.restore(facts["reactive"])
        vars(self.counters).update(facts["counts"])
        self._storage.input_bytes = facts["input_bytes"]
        self._policy.restore(facts["policy"])
        self._tuple_join.restore(facts)
        self._storage.account()

    def _close(self) -> None:
        self._storage.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._storage.check_invariants()
        self._policy.check_invariants(self._storage.inputs)
        self._reactive.check_invariants()
        assert self._buffer_rows == sum(batch.num_rows for _, batch in self._buffer)
