"""The contract of every join of streams: its options, its methods, and what it counts."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from adjoin.arguments import kind, local_path, whole_number
from adjoin.arguments import seconds as seconds_of
from adjoin.errors import AdjoinError, OptionError, SchemaError, StorageError
from adjoin.master.device import Cost
from adjoin.memory.budget import parse_bytes
from adjoin.operators.clock import Clock, Pause, clock_of
from adjoin.operators.operator import Operator, Results

Arrival = tuple[str, pa.RecordBatch | None] | Pause
"""The name of an input with a batch of it, or None where it ends; or a pause in which nothing arrives."""


class SpillOptions:
    """The options that every join of streams takes, validated once.

    Args:
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        block_bytes: Size of a block on disk; by default a small fraction of the memory.
        max_outer: Maximum number of outer blocks in a reactive phase (MaxOuterMem); by default as many as fit
            in a twelfth of the memory. That memory is set aside when the first reactive phase begins. If all
            results are complete, as much memory is set aside at once for pages that are read at a time, by
            default a sixteenth, and three times as much for arriving rows and for where pages are.
        least_outer: The number of outer blocks to which `max_outer` may be reduced where memory is small; by
            default it is not reduced.
        max_new: A reactive phase ends when more than this many rows have arrived (MaxNewArr).
        wait_seconds: How long nothing must arrive before a reactive phase begins (WaitThresh).
        spill: Directory for blocks that memory cannot hold; by default the system's temporary directory.
        clock: Tells the time; by default the system's clock.
        disk: What reading and writing cost on a simulated clock.

    Attributes:
        memory_bytes: The budget.
        block_bytes: Size of a block, if it was given.
        outer_blocks: The most and the fewest outer blocks of a reactive phase, if they were given.
        max_new: How many rows end a reactive phase.
        wait_seconds: How long nothing must arrive before one begins.
        folder: The directory for blocks, if it was given.
        clock: Tells the time.
        disk: What reading and writing cost on it, if it is a simulated one.
    """

    def __init__(
        self,
        memory: int | str,
        block_bytes: int | None = None,
        max_outer: int | None = None,
        least_outer: int | None = None,
        max_new: int = 1000,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        self.outer_blocks: tuple[int, int] | None = None
        fewest = None if least_outer is None else whole_number("least_outer", least_outer, 1)
        if max_outer is not None:
            most = whole_number("max_outer", max_outer, 1)
            self.outer_blocks = most, most if fewest is None else fewest
        self.block_bytes = None if block_bytes is None else whole_number("block_bytes", block_bytes, 1)
        self.max_new = whole_number("max_new", max_new, 0)
        self.wait_seconds = seconds_of("wait_seconds", wait_seconds)
        self.folder = None if spill is None else local_path(spill, "spill")
        self.memory_bytes = parse_bytes(memory)
        self.clock = clock_of(clock)
        self.disk = kind("disk", disk, Cost)


@dataclass
class Counters:
    """What a join of streams has done so far."""

    rows_in: int = 0
    results_online: int = 0
    results_reactive: int = 0
    results_cleanup: int = 0
    results_from_disk: int = 0
    rows_expired: int = 0
    rows_unmatched: int = 0
    blocks_flushed: int = 0
    input_buffer_rows_max: int = 0
    input_buffer_rows_at_handover: int = 0
    input_buffer_rows_at_handover_max: int = 0
    reactive_phases: int = 0
    pages_read: int = 0
    seeks: int = 0
    bytes_read: int = 0

    def buffered(self, new_rows: int, buffer_rows: int) -> None:
        """New rows have arrived in the input buffer, which now holds `buffer_rows`."""
        self.rows_in += new_rows
        self.input_buffer_rows_max = max(self.input_buffer_rows_max, buffer_rows)

    def handed_over(self, buffer_rows: int) -> None:
        """A reactive phase has ended with this many rows in the input buffer."""
        self.reactive_phases += 1
        self.input_buffer_rows_at_handover += buffer_rows
        self.input_buffer_rows_at_handover_max = max(self.input_buffer_rows_at_handover_max, buffer_rows)


class StreamJoin(Operator):
    """A join of streams: batches in, batches out; a pause; an input ends; all of them end.

    When the disk has no room for what memory cannot hold, a call raises a `StorageError`. The rows that were
    pushed are not lost: once there is room, the next call resumes where this one stopped.

    Args:
        names: The names of the inputs.
        schemas: Their schemas.
        schema: The schema of the results.
    """

    survives = (StorageError,)

    def __init__(self, names: Sequence[str], schemas: Sequence[pa.Schema], schema: pa.Schema) -> None:
        super().__init__()
        self._names = tuple(names)
        self._schemas = tuple(schemas)
        self.schema = schema
        self._has_ended = [False] * len(self._names)

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch of the named input and return the results that it completes so far."""
        self._check_open()
        return self._alone(self._push(self._checked(side, batch), batch))

    def end(self, side: str) -> None:
        """Declare that this input has ended."""
        self._check_open()
        self._has_ended[self._number(side)] = True

    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Let this much time pass on the operator's clock while nothing arrives."""
        return self._alone(self._idle(seconds_of("seconds", seconds)))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End all inputs and return the remaining results."""
        return self._alone(self._end_all())

    def _end_all(self) -> Iterator[pa.RecordBatch]:
        self._has_ended[:] = [True] * len(self._names)
        yield from self._finish()

    def run(self, arrivals: Iterable[Arrival]) -> Iterator[pa.RecordBatch]:
        """Join whole inputs: `(name, batch)`, `(name, None)` where an input ends, or a pause."""
        return Results(self._run(arrivals))

    def _run(self, arrivals: Iterable[Arrival]) -> Iterator[pa.RecordBatch]:
        self._check_open()
        for item in self._paced(arrivals):
            if item is None:
                yield from self._alone(self._waited())
            elif isinstance(item, Pause):
                yield from self.idle(item.seconds)
            elif not isinstance(item, tuple) or len(item) != 2:
                raise OptionError(
                    f"{item!r:.100} is neither a Pause nor a pair of an input's name and a batch"
                )
            elif item[1] is None:
                self.end(item[0])
            else:
                yield from self.push(item[0], item[1])
        yield from self.finish()

    @abstractmethod
    def _paced(self, arrivals: Iterable[Arrival]) -> Iterable[Arrival | None]:
        """The items, with a None whenever the next one is late and there is something to do meanwhile."""

    @abstractmethod
    def _push(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _waited(self) -> Iterator[pa.RecordBatch]:
        """Do what there is to do when `_paced` returned None."""

    @abstractmethod
    def _finish(self) -> Iterator[pa.RecordBatch]: ...

    def _checked(self, side: str, batch: pa.RecordBatch) -> int:
        """The number of the input, if it takes this batch."""
        number = self._number(side)
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaError(f"push takes a pyarrow.RecordBatch, got {type(batch).__name__}")
        if not batch.schema.equals(self._schemas[number]):
            raise SchemaError(
                f"a batch of the {side} input has the schema {batch.schema.names}, it was declared with "
                f"{self._schemas[number].names} (or other types)"
            )
        if self._has_ended[number]:
            raise AdjoinError(f"the {side} input has ended; nothing more can come from it")
        return number

    def _number(self, side: str) -> int:
        if side not in self._names:
            raise OptionError(f"side={side!r} is not one of {', '.join(self._names)}")
        return self._names.index(side)
