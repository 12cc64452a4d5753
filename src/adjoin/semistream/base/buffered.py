"""What joins that take rows in as they come have in common: an input buffer, and rows that wait behind it."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from adjoin.arrow.copying import compact, plain_columns
from adjoin.arrow.row_sizes import row_larger_than
from adjoin.errors import BudgetError
from adjoin.kernels.types import Array
from adjoin.master.master import Master
from adjoin.semistream.base.answering import Counts
from adjoin.semistream.base.buffers import Arrivals, InputBuffer
from adjoin.semistream.base.paged import PagedJoin

_STATE_BYTES = 96
"""More than the state of one row takes, in both buffers."""
_COPIES = 4
"""Of a row: in both buffers, and once more while it goes from one to another."""
_ROW_SHARE = 2
"""A row has this part of the memory of rows, at most, in both buffers."""
_COLUMN_BYTES = 32
"""Beside its rows, for the buffers of a column."""


class Stage(Protocol):
    """The part of an algorithm behind the input buffer."""

    @property
    def counts(self) -> Counts:
        """What has happened since the start."""

    @property
    def rows_waiting(self) -> int:
        """Rows that wait now."""

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, on the master version that is in memory."""

    def online(self, taken: Arrivals) -> Iterator[pa.RecordBatch]:
        """Answer what can be answered now; the other rows wait."""

    def relieve(self) -> Iterator[pa.RecordBatch]:
        """Make room by answering rows that wait."""


class BufferedJoin(PagedJoin):
    """A join whose rows come into an input buffer, and from there to the stage that answers them.

    What fits: a memory that the constructor accepts is enough for streams of any length, skew and order, as
    long as every stream row fits. A row takes the bytes of its values, 4 more for each string, binary or list
    (8 for large ones) and a bit for each nullable value; `metrics()["largest_row_bytes"]` says how many it
    may take: an eighth of what rows can have at all, which is 2 % of the memory or more. A batch with a
    larger row is refused as a whole with a `BudgetError` that names the memory which is enough; the join goes
    on without it. Master rows of any size fit once the constructor has accepted the memory.

    The constructor of the algorithm makes the stage.
    """

    _stage: Stage
    _input: InputBuffer
    _is_finishing = False
    _is_offered = False

    def metrics(self) -> dict[str, Any]:
        """Counters since the start.

        Rows: `rows_in`, `rows_out`, `rows_unmatched` (stream rows without a match), `cache_hits` (rows
        answered without a read), `rows_waiting` now. Reads: `pages_read`, `seeks` (scans),
        `bytes_read`. Time: `seconds_waiting_max`. Memory: `memory_bytes` (the budget), `peak_bytes` (the
        most ever accounted), `used_bytes` now and its parts, such as `index_bytes`, `pages_bytes`,
        `work_bytes`, `input_bytes` and `stream_bytes`; `largest_row_bytes`, the largest stream row that fits;
        `pages_cached`. Also `master_version`, and the
        algorithm's own.
        """
        return {
            **vars(self._stage.counts),
            "rows_out": self._rows_out,
            "memory_bytes": self._budget.total_bytes,
            "peak_bytes": self._budget.peak_bytes,
            **vars(self._pages.counts),
            "rows_waiting": self._input.rows + self._stage.rows_waiting,
            "pages_cached": len(self._pages.cache),
            "master_version": self._pages.master.version,
            "used_bytes": self._budget.used_bytes,
            "largest_row_bytes": self._largest_row_bytes(),
            **{f"{name}_bytes": held for name, held in self._budget.accounts().items()},
        }

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        super().check_invariants()
        self._input.check_invariants()
        assert self._budget.account("input") >= self._input.bytes

    def offer(self, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer, evicting pages for them; False if there is no room.

        Unlike `push`, this can be called while results are being consumed. Rows have at most half of the
        memory that they can have at all while they are in the input buffer; the other half is for those that
        wait. Nothing is taken once `finish` has been called.
        """
        self._check_open()
        self._check_batch(batch)
        self._is_offered = True
        return not self._is_finishing and self._put(plain_columns(batch))

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""
        largest = self._largest_row_bytes(batch.schema)
        found = row_larger_than(largest, batch)
        if found is not None:
            row, size = found
            stream_bytes = _ROW_SHARE * _buffer_bytes(size + _COLUMN_BYTES * len(batch.schema), 1)
            raise BudgetError(
                f"row {row} of this batch takes {size:,} bytes; with memory={self._budget.total_bytes} the "
                f"largest that fits has {largest:,}; nothing of the batch was taken; give "
                f"memory={self._pages.enough_for(stream_bytes)} or more"
            )

    def _largest_row_bytes(self, stream: pa.Schema | None = None) -> int:
        """The largest row of such a stream, or of the one that came before, that fits."""
        columns = len(stream or self._stream_schema or ())
        room = self._pages.split.stream_bytes // _ROW_SHARE
        return max(0, (room - _buffer_bytes(0, 1)) // _COPIES - _COLUMN_BYTES * columns)

    # The contract.

    def _begin(self, stream: pa.Schema) -> None:
        self._stage.begin(stream)

    def _push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for piece in self._pieces(batch):
            while not self._put(piece):
                yield from self._relieve(piece.nbytes)
            yield from self._work()

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        end = self._clock.now() + seconds
        yield from self._drain()
        self._clock.sleep(max(0.0, end - self._clock.now()))

    def _join_all(self) -> Iterator[pa.RecordBatch]:
        while self._stage.rows_waiting:
            yield from self._stage.relieve()

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        while self._input.rows and not self._pages.has_room_for(master):
            yield from self._look_up()
        yield from super()._refresh(master)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        self._is_finishing = True
        yield from self._drain()
        self._ended = True

    # Rows that came.

    @abstractmethod
    def _work(self) -> Iterator[pa.RecordBatch]:
        """Do what has become necessary since the last rows came."""

    def _due(self, batch: pa.RecordBatch, now: float) -> Array | None:  # noqa: ARG002
        """When each row must be answered; None without deadlines."""
        return None

    def _put(self, batch: pa.RecordBatch) -> bool:
        now = self._clock.now()
        arrived = Arrivals(compact(batch), now, self._due(batch, now))
        is_first = self._input.rows + batch.num_rows == 1
        if not is_first and self._input.bytes + arrived.bytes > self._most_input_bytes:
            return False
        if not self._make_room(arrived.bytes):
            return False
        self._budget.add("input", arrived.bytes)
        self._input.add(arrived)
        self._stage.counts.rows_in += batch.num_rows
        return True

    @property
    def _most_input_bytes(self) -> int:
        """What rows may take in the input buffer: the other half is for those that wait."""
        return self._pages.split.stream_bytes // 2

    def _make_room(self, more_bytes: int) -> bool:
        return self._pages.make_room(more_bytes)

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in pieces that find room in the buffers once these are empty."""
        split = self._pages.split
        start, size = 0, split.step_rows
        while start < batch.num_rows:
            piece = plain_columns(batch.slice(start, size))
            if piece.num_rows > 1 and _buffer_bytes(piece.nbytes, piece.num_rows) > split.stream_bytes // 4:
                size = piece.num_rows // 2
            else:
                yield piece
                start += piece.num_rows
                size = min(2 * size, split.step_rows)

    def _relieve(self, row_bytes: int) -> Iterator[pa.RecordBatch]:
        """Make room by answering rows."""
        if self._stage.rows_waiting:
            yield from self._stage.relieve()
        elif self._input.rows:
            yield from self._look_up()
        else:
            enough = self._budget.total_bytes + 2 * _buffer_bytes(row_bytes, 1)
            raise BudgetError(
                f"a stream row of {row_bytes:,} bytes finds no room in memory={self._budget.total_bytes}; "
                f"give memory={enough} or more"
            )

    def _look_up(self) -> Iterator[pa.RecordBatch]:
        split = self._pages.split
        yield from self._stage.online(self._input.take(split.step_rows, split.stream_bytes // 4))
        self._budget.set("input", self._input.bytes)

    def _look_all_up(self) -> Iterator[pa.RecordBatch]:
        """Look up the rows that have come until now; those that are offered meanwhile have time."""
        rows_in = self._stage.counts.rows_in
        while self._input.rows and self._stage.counts.rows_in - self._input.rows < rows_in:
            yield from self._look_up()

    def _drain(self) -> Iterator[pa.RecordBatch]:
        yield from self._look_all_up()
        yield from self._join_all()

    @property
    def _input_is_large(self) -> bool:
        """So many rows that they must find room if all have to wait."""
        held = _buffer_bytes(self._input.bytes // 2, self._input.rows)
        return held > self._pages.split.stream_bytes // 4


def _buffer_bytes(stream_bytes: int, rows: int) -> int:
    """What rows take in the input buffer, and among those that wait if all have to."""
    return _COPIES * stream_bytes + _STATE_BYTES * rows
