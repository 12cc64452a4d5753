"""Stream rows that wait in the order in which they came, and leave in any order."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.kernels.types import Array
from adjoin.semistream.base.buffers import Rows, join_rows

_GROWTH = 4
"""A part is joined with the one before it unless that is so many times as long."""
_MOST_ARRIVALS = 512
"""So many times of arrival are kept; rows between two of them count as older than they are."""
_MOST_GONE = 0.125
"""Share of the rows that may have left before the others close up."""


@dataclass
class Part:
    """Rows that lie together.

    Attributes:
        rows: The rows.
        left: Of each, for how many things it still waits; 0 when it has left.
    """

    rows: Rows
    left: Array


class RowQueue:
    """Rows with numbers that ascend in the order in which they came.

    Rows lie in few parts, each larger than the next. A row that leaves is only marked; `close_up` removes
    what is marked and numbers the others anew.

    Attributes:
        rows: Rows that wait.
        all_rows: These, and those that left but still have a number.
        held_bytes: Bytes of all of them, and what joining the parts takes for a moment.
    """

    state_bytes = 4
    """Of a row, beside what `Rows` counts."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._arrivals: list[tuple[int, float]] = []
        self._front = 0
        self.rows = 0
        self.all_rows = 0
        self.held_bytes = 0

    def add(self, rows: Rows, left: Array) -> None:
        """Rows that come last, and for how many things each waits."""
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
        """The parts in which these rows lie: each with a range of `numbers` and its rows; numbers ascend."""
        begin = 0
        for part in self._parts:
            first, last = np.searchsorted(numbers, (begin, begin + len(part.left)))
            if first < last:
                yield part, slice(first, last), (numbers[first:last] - begin).astype(np.int32)
            begin += len(part.left)

    def oldest(self, count: int) -> Array:
        """Numbers of the first rows that wait, at most so many."""
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
        """These rows of the part need not wait any more."""
        part.left[rows] = 0
        self.rows -= len(rows)
        if self.rows == 0:
            self.clear()

    def arrival_of(self, number: int) -> float:
        """When a row, or one before it in the same batch, arrived."""
        return self._arrivals[bisect_right(self._arrivals, (number, np.inf)) - 1][1]

    @property
    def is_loose(self) -> bool:
        """Whether closing up would give back a good part of the memory."""
        return self.all_rows - self.rows > _MOST_GONE * self.all_rows

    def close_up(self) -> Array:
        """Remove the rows that left; returns the new number of each row that was there."""
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
        """Forget the rows: all have left."""
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
    """These rows alone; each column is freed once it is copied."""
    columns, schema = list(rows.batch.columns), rows.batch.schema
    rows.batch = _NOTHING.batch
    for i in range(len(columns)):
        columns[i] = take_rows(pa.record_batch([columns[i]], names=[""]), chosen).column(0)
    low = rows.low[chosen]
    return Rows(
        pa.RecordBatch.from_arrays(columns, schema=schema),
        rows.arrived,
        None if rows.due is None else rows.due[chosen],
        low,
        low if rows.high is rows.low else rows.high[chosen],
        rows.matched[chosen],
        None if rows.sizes is None else rows.sizes[chosen],
    )


_NONE = np.empty(0, np.int64)
_NOTHING = Rows(pa.record_batch({"": pa.nulls(0)}), 0.0, None, _NONE, _NONE, np.empty(0, bool))
