"""Arriving rows: checked for size, cut into pieces that fit, kept in the input buffer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from adjoin.arrow.copying import compact, plain_columns
from adjoin.arrow.row_sizes import row_larger_than
from adjoin.errors import BudgetError
from adjoin.kernels.types import Array
from adjoin.memory.budget import MemoryBudget
from adjoin.operators.clock import Clock
from adjoin.semistream.base.buffers import Arrivals, InputBuffer
from adjoin.semistream.base.queue import QueueRoom
from adjoin.semistream.pages.resident import ResidentPages

_STATE_BYTES = 96
"""An upper bound for the state of one row, in the input buffer and pending."""
_COPIES = 4
"""Copies of a row: one in the input buffer and one pending, each with another while it is moved."""
_ROW_SHARE = 2
"""A single row may take the memory of rows divided by this."""
_COLUMN_BYTES = 32
"""Overhead of a column, for its buffers."""


def _never(batch: pa.RecordBatch, now: float) -> None:
    """No row has a deadline."""


class Intake:
    """Takes rows into the input buffer, within the budget, and hands them out for an online phase.

    Args:
        pages: The resident pages, some of which are evicted when rows need the room.
        budget: The operator's budget; this class keeps its account "input".
        clock: Tells the time.
        room: The memory of the queue of pending rows; None if these take whatever is free.
        due: When each row of a batch that arrives now must be answered; by default at any time.

    Attributes:
        rows_in: Rows taken since the start.
        is_offered: Whether rows have been offered, and so may arrive while others are joined.
    """

    def __init__(
        self,
        pages: ResidentPages,
        budget: MemoryBudget,
        clock: Clock,
        room: QueueRoom | None = None,
        due: Callable[[pa.RecordBatch, float], Array | None] = _never,
    ) -> None:
        self._pages = pages
        self._budget = budget
        self._clock = clock
        self._room = room
        self._due = due
        self._buffer = InputBuffer()
        self.rows_in = 0
        self.is_offered = False

    @property
    def rows(self) -> int:
        """Rows in the input buffer."""
        return self._buffer.rows

    @property
    def earliest_due(self) -> float:
        """When the first of them must be answered."""
        return self._buffer.earliest_due

    @property
    def is_large(self) -> bool:
        """Whether the rows must be looked up now, since more would not fit if all of them became pending."""
        return _buffer_bytes(self._buffer.bytes // 2, self.rows) > self._pages.split.stream_bytes // 4

    def largest_row_bytes(self, columns: int) -> int:
        """The largest row that fits, of a stream with this many columns."""
        room = self._pages.split.stream_bytes // _ROW_SHARE
        return max(0, (room - _buffer_bytes(0, 1)) // _COPIES - _COLUMN_BYTES * columns)

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""
        columns = len(batch.schema)
        largest = self.largest_row_bytes(columns)
        found = row_larger_than(largest, batch)
        if found is not None:
            row, size = found
            stream_bytes = _ROW_SHARE * _buffer_bytes(size + _COLUMN_BYTES * columns, 1)
            raise BudgetError(
                f"row {row} of this batch takes {size:,} bytes; with memory={self._budget.total_bytes} the "
                f"largest that fits has {largest:,}; nothing of the batch was taken; give "
                f"memory={self._pages.enough_for(stream_bytes)} or more"
            )

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in pieces, each of which fits once the input buffer is empty and no row is pending."""
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

    def put(self, batch: pa.RecordBatch) -> bool:
        """Add rows to the input buffer, evicting pages for them; returns False if there is no room."""
        now = self._clock.now()
        arrived = Arrivals(compact(batch), now, self._due(batch, now))
        is_first = self.rows + batch.num_rows == 1
        if not is_first and self._buffer.bytes + arrived.bytes > self._most_bytes:
            return False
        is_urgent = self._room is None or not self._room.queue.rows
        if not self._pages.make_room(arrived.bytes, ask_borrower=is_urgent):
            return False
        self._budget.add("input", arrived.bytes)
        self._buffer.add(arrived)
        self.rows_in += batch.num_rows
        return True

    @property
    def _most_bytes(self) -> int:
        """What the input buffer may take; the other half is for pending rows."""
        return (self._pages.split.stream_bytes if self._room is None else self._room.shared_bytes) // 2

    @contextmanager
    def taken(self) -> Iterator[Arrivals]:
        """Rows for one online phase, after which their memory is free."""
        split = self._pages.split
        yield self._buffer.take(split.step_rows, split.stream_bytes // 4)
        self._budget.set("input", self._buffer.bytes)

    def emptied(self, online_phase: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Run online phases until all rows that are here now have been taken; rows offered later can wait."""
        rows_in = self.rows_in
        while self.rows and self.rows_in - self.rows < rows_in:
            yield from online_phase()

    def no_room(self, row_bytes: int) -> BudgetError:
        """The error for a row that does not fit although nothing else takes memory."""
        enough = self._budget.total_bytes + 2 * _buffer_bytes(row_bytes, 1)
        return BudgetError(
            f"a stream row of {row_bytes:,} bytes does not fit in memory={self._budget.total_bytes}; "
            f"give memory={enough} or more"
        )

    def check_invariants(self) -> None:
        self._buffer.check_invariants()
        assert self._budget.account("input") >= self._buffer.bytes


def _buffer_bytes(stream_bytes: int, rows: int) -> int:
    """What rows take in the input buffer, and later if all of them become pending."""
    return _COPIES * stream_bytes + _STATE_BYTES * rows
