"""The queue of pending rows: they enter in the order of arrival, leave in any order, and fill the memory."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.kernels.types import Array
from adjoin.memory.budget import MemoryBudget
from adjoin.semistream.base.buffers import MOST_STREAM_BYTES, Rows, join_rows
from adjoin.semistream.pages.resident import ResidentPages

_GROWTH = 4
"""A part is joined with the previous one unless that is this many times as long."""
_MOST_ARRIVALS = 512
"""Times of arrival that are kept; rows between two of them count as older than they are."""
_MOST_GONE = 0.125
"""Share of the rows that may have left before the others close up."""
_INPUT_SHARE = 1 / 16
"""Part of the memory of rows that is left to rows that arrive in the meantime."""


@dataclass
class Part:
    """Rows that are stored together.

    Attributes:
        rows: The rows.
        left: How many pages each row still waits for; 0 once it has left.
    """

    rows: Rows
    left: Array


class RowQueue:
    """Pending rows, numbered in the order of arrival.

    Rows are stored in a few parts, each larger than the next. A row that leaves is only marked; `close_up`
    removes the marked rows and renumbers the others.

    Attributes:
        rows: Pending rows.
        all_rows: Pending rows and those that have left but still have a number.
        held_bytes: Bytes of all of these, plus what joining the parts takes for a moment.
    """

    state_bytes = 4
    """Of a row, in addition to what `Rows` counts."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._arrivals: list[tuple[int, float]] = []
        self._front = 0
        self.rows = 0
        self.all_rows = 0
        self.held_bytes = 0

    def add(self, rows: Rows, left: Array) -> None:
        """Add rows at the end, and how many pages each waits for."""
        self._arrivals.append((self.all_rows, rows.arrived))
        if len(self._arrivals) > _MOST_ARRIVALS:
            del self._arrivals[1::2]
        self._parts.append(Part(rows, left))
        self.rows += len(rows)
        self.all_rows += len(rows)
        while len(self._parts) > 1 and len(self._parts[-2].left) < _GROWTH * len(self._parts[-1].left):
            last = self._parts.pop()
            self._parts[-1] = _join(self._parts[-1], last)
        self._recount()

    def parts_of(self, numbers: Array) -> Iterator[tuple[Part, slice, Array]]:
        """The parts that hold these rows, each with its range of the (ascending) numbers and its rows."""
        begin = 0
        for part in self._parts:
            first, last = np.searchsorted(numbers, (begin, begin + len(part.left)))
            if first < last:
                yield part, slice(first, last), (numbers[first:last] - begin).astype(np.int32)
            begin += len(part.left)

    def oldest(self, count: int) -> Array:
        """Numbers of the oldest pending rows, at most `count`."""
        found: list[Array] = []
        begin = 0
        for part in self._parts:
            end = begin + len(part.left)
            if end > self._front and count > 0:
                skipped = max(self._front - begin, 0)
                here = np.flatnonzero(part.left[skipped:])[:count] + skipped + begin
                found.append(here)
                count -= len(here)
            begin = end
        numbers = np.concatenate(found) if found else np.empty(0, np.int64)
        if len(numbers):
            self._front = int(numbers[0])
        return numbers

    def leave(self, part: Part, rows: Array) -> None:
        """These rows of the part are finished."""
        part.left[rows] = 0
        self.rows -= len(rows)
        if self.rows == 0:
            self.clear()

    def arrival_of(self, number: int) -> float:
        """When a row, or an earlier one of the same batch, arrived."""
        return self._arrivals[bisect_right(self._arrivals, (number, np.inf)) - 1][1]

    @property
    def is_loose(self) -> bool:
        """Whether closing up would free a good part of the memory."""
        return self.all_rows - self.rows > _MOST_GONE * self.all_rows

    def close_up(self) -> Array:
        """Remove the rows that have left; returns the new number of every row."""
        whole = self._parts[0]
        for part in self._parts[1:]:
            whole = _join(whole, part)
        self._parts = []
        waits = whole.left > 0
        number = np.zeros(len(waits) + 1, np.int32)
        np.cumsum(waits, out=number[1:])
        chosen = np.flatnonzero(waits)
        self._parts = [Part(_only(whole.rows, chosen), whole.left[chosen])]
        kept = {int(number[first]): arrived for first, arrived in self._arrivals}
        self._arrivals = sorted(kept.items())
        self.all_rows = self.rows
        self._front = 0
        self._recount()
        return number[:-1]

    def clear(self) -> None:
        """Forget all rows: they have left."""
        self._parts, self._arrivals = [], []
        self._front = self.rows = self.all_rows = self.held_bytes = 0

    def check_invariants(self) -> None:
        """Raise AssertionError if the queue contradicts itself."""
        assert self.all_rows == sum(len(part.left) for part in self._parts)
        assert self.rows == sum(int(np.count_nonzero(part.left)) for part in self._parts)
        assert all(len(part.rows) == len(part.left) for part in self._parts)
        assert [first for first, _ in self._arrivals] == sorted(first for first, _ in self._arrivals)
        assert all((part.left >= 0).all() for part in self._parts)

    def _recount(self) -> None:
        states = self.state_bytes * self.all_rows
        self.held_bytes = sum(part.rows.waiting_bytes for part in self._parts) + states


def _join(part: Part, more: Part) -> Part:
    both = [part.rows, more.rows]
    part.rows = more.rows = _NOTHING
    return Part(join_rows(both), np.concatenate([part.left, more.left]))


def _only(rows: Rows, chosen: Array) -> Rows:
    """Only these rows; each column is freed once it is copied."""
    columns, schema = list(rows.batch.columns), rows.batch.schema
    rows.batch = _NOTHING.batch
    for i in range(len(columns)):
        columns[i] = take_rows(pa.record_batch([columns[i]], names=[""]), chosen).column(0)
    return rows.with_batch(pa.RecordBatch.from_arrays(columns, schema=schema), chosen)


_NONE = np.empty(0, np.int64)
_NOTHING = Rows(pa.record_batch({"": pa.nulls(0)}), 0.0, None, _NONE, _NONE, np.empty(0, bool))


class QueueRoom:
    """The memory of a queue of pending rows.

    A front stage trades with it: rows that are answered from the cache do not wait, and leave their memory
    to the cache.

    Args:
        pages: The resident pages, which the queue shares its memory with.
        budget: The operator's budget; this class keeps its accounts "stream" and "inverted".
        queue: The queue.

    Attributes:
        queue: The queue.
        iterations: How often pages have been read for the queue.
        ceded_bytes: What the queue leaves to the front stage, as soon as enough rows have left.
    """

    def __init__(self, pages: ResidentPages, budget: MemoryBudget, queue: RowQueue) -> None:
        self._pages = pages
        self._budget = budget
        self.queue = queue
        self.iterations = 0
        self.ceded_bytes = 0

    @property
    def bytes(self) -> int:
        """The most that rows may have."""
        split = self._pages.split
        others_bytes = self._pages.pinned_slots * split.slot_cost + self.ceded_bytes
        return min(int((1 - _INPUT_SHARE) * split.stream_bytes) - others_bytes, MOST_STREAM_BYTES)

    @property
    def shared_bytes(self) -> int:
        """What pending rows and the input buffer can have at most."""
        split = self._pages.split
        return split.stream_bytes - self._pages.pinned_slots * split.slot_cost

    @property
    def held_bytes(self) -> int:
        """What rows and the notes on them take now."""
        return self._budget.account("stream") + self._budget.account("inverted")

    @property
    def row_bytes(self) -> float:
        """What a pending row takes; 0 if there is none."""
        return self.held_bytes / max(self.queue.rows, 1)

    @property
    def rows_per_round(self) -> float:
        """As many rows as the queue holds: after these, a page is read again for new rows."""
        return self.bytes / max(self.row_bytes, 1)

    def has(self, more_bytes: int) -> bool:
        """Whether rows may have this many bytes more."""
        is_allowed = self.held_bytes + more_bytes <= self.bytes
        return is_allowed and self._pages.make_room(more_bytes, ask_borrower=False)

    def admit(self, more_bytes: int, close_up: Callable[[], None]) -> bool:
        """Account for more rows; False if there is no room.

        Args:
            more_bytes: What they take.
            close_up: Frees the memory of rows that have left.
        """
        if not self.has(more_bytes) and self.queue.is_loose:
            close_up()
        if not self.has(more_bytes) and (self.queue.rows or not self._pages.make_room(more_bytes)):
            return False
        self._budget.add("stream", more_bytes)
        return True

    def account(self, notes_bytes: int) -> None:
        """Account for the rows as they are now, and for the notes on them; joined columns may have grown."""
        stream_bytes = self.queue.held_bytes
        self._pages.make_room(stream_bytes + notes_bytes - self.held_bytes)
        self._budget.set("inverted", 0)
        self._budget.set("stream", stream_bytes)
        self._budget.set("inverted", notes_bytes)

    def check_invariants(self, notes_bytes: int) -> None:
        self.queue.check_invariants()
        assert self._budget.account("stream") >= self.queue.held_bytes
        assert self._budget.account("inverted") >= notes_bytes
