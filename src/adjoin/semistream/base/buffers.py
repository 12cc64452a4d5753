"""Stream rows in memory: those that have arrived, and those whose keys are known."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import compact, join_arrays, join_batches, take_rows
from adjoin.kernels.types import Array

MOST_STREAM_BYTES = 1 << 30
"""Arrow's string offsets end at 2 GiB; rows that are joined into one batch stay well below."""
MOST_PARTS = 64
"""This many small parts are joined into one: each has an overhead that must not add up."""
_LEAST_STATE_BYTES = 9
"""Of the state of a row: its key, and whether it has a match."""


@dataclass
class Rows:
    """Stream rows and what is known of each.

    Attributes:
        batch: The rows.
        arrived: When the first of them arrived, in seconds.
        due: When each must be answered, in seconds; None without deadlines.
        low: The least master key that each row matches, encoded.
        high: The greatest master key that it matches (the same array for equality).
        matched: Whether a match has been found.
        sizes: Bytes of each row; None if all columns have a fixed width.
    """

    batch: pa.RecordBatch
    arrived: float
    due: Array | None
    low: Array
    high: Array
    matched: Array
    sizes: Array | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that these rows take while they are pending, plus what joining parts takes for a moment.

        The latter is the widest column or the keys, and all other states. A column without nulls counts the
        bitmap that it gets when it is joined with one that has nulls.
        """
        widest = max((column.nbytes for column in self.batch.columns), default=0)
        bitmaps = sum(column.null_count == 0 for column in self.batch.columns) * (len(self) // 8 + 1)
        states = (2 * self.state_bytes - _LEAST_STATE_BYTES) * len(self)
        return int(self.batch.nbytes) + bitmaps + max(widest, 8 * len(self)) + states

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of a row."""
        arrays = (self.high is not self.low, self.due is not None, self.sizes is not None)
        return _LEAST_STATE_BYTES + 8 * sum(arrays)

    def select(self, rows: Array) -> "Rows":
        return self.with_batch(take_rows(self.batch, rows), rows)

    def with_batch(self, batch: pa.RecordBatch, rows: Array) -> "Rows":
        """This batch, with the states of these rows."""
        low = self.low[rows]
        return Rows(
            batch,
            self.arrived,
            None if self.due is None else self.due[rows],
            low,
            low if self.high is self.low else self.high[rows],
            self.matched[rows],
            None if self.sizes is None else self.sizes[rows],
        )


def join_rows(parts: list[Rows]) -> Rows:
    """All these rows as one; empties the list, so that each column is freed once it is joined."""
    equality = parts[0].high is parts[0].low
    low = np.concatenate([part.low for part in parts])
    high = low if equality else np.concatenate([part.high for part in parts])
    arrived = min(part.arrived for part in parts)
    due = _join_states([part.due for part in parts])
    matched = np.concatenate([part.matched for part in parts])
    sizes = _join_states([part.sizes for part in parts])
    columns = [list(part.batch.columns) for part in parts]
    schema = parts[0].batch.schema
    parts.clear()
    joined = []
    for i in range(len(schema)):
        joined.append(join_arrays([column[i] for column in columns]))
        for column in columns:
            column[i] = None
    batch = pa.RecordBatch.from_arrays(joined, schema=schema)
    return Rows(batch, arrived, due, low, high, matched, sizes)


def _join_states(states: list[Array | None]) -> Array | None:
    arrays = [state for state in states if state is not None]
    return np.concatenate(arrays) if arrays else None


@dataclass(frozen=True)
class Arrivals:
    """Rows as they arrived: when, and by when each must be answered (None: no deadlines)."""

    batch: pa.RecordBatch
    arrived: float
    due: Array | None

    @property
    def bytes(self) -> int:
        """Bytes that the rows take in the input buffer, and once more when parts are joined."""
        return 2 * int(self.batch.nbytes) + (0 if self.due is None else 16 * self.batch.num_rows)

    @property
    def waiting_bytes(self) -> int:
        """An upper bound for what the rows take if all of them become pending."""
        return 2 * int(self.batch.nbytes) + 72 * self.batch.num_rows

    @property
    def earliest_due(self) -> float:
        return float(np.inf if self.due is None else self.due.min(initial=np.inf))


class InputBuffer:
    """Rows that have arrived and not been looked up yet, served in the order of their deadlines."""

    def __init__(self) -> None:
        self._parts: list[Arrivals] = []
        self._small = 0
        self.rows = 0
        self.bytes = 0
        self.earliest_due = np.inf

    def add(self, part: Arrivals) -> None:
        self._parts.append(part)
        self.rows += part.batch.num_rows
        self.bytes += part.bytes
        self.earliest_due = min(self.earliest_due, part.earliest_due)
        self._small += 1
        if self._small == MOST_PARTS:
            self._parts[-MOST_PARTS:] = [_one(self._parts[-MOST_PARTS:])]
            self._small = 0

    def take(self, rows: int, waiting_bytes: int) -> Arrivals:
        """Remove the rows whose deadline is nearest, the oldest first where there is no difference.

        Args:
            rows: The most rows.
            waiting_bytes: The most bytes that they may take if they become pending; one row is always taken,
                however large it is.
        """
        parts, self._parts = self._parts, []
        whole = parts[0] if len(parts) == 1 else _one(parts)
        taken, count = whole, min(rows, whole.batch.num_rows)
        while count < taken.batch.num_rows or (count > 1 and taken.waiting_bytes > waiting_bytes):
            count = count if count < taken.batch.num_rows else count // 2
            taken, rest = _earliest(whole, count)
            self._parts = [rest]
        self._recount()
        return taken

    def check_invariants(self) -> None:
        assert self.rows == sum(part.batch.num_rows for part in self._parts)
        assert all(part.due is None or len(part.due) == part.batch.num_rows for part in self._parts)
        assert self.earliest_due == min((part.earliest_due for part in self._parts), default=np.inf)

    def _recount(self) -> None:
        self._small = 0
        self.rows = sum(part.batch.num_rows for part in self._parts)
        self.bytes = sum(part.bytes for part in self._parts)
        self.earliest_due = min((part.earliest_due for part in self._parts), default=np.inf)


def _one(parts: list[Arrivals]) -> Arrivals:
    batch = join_batches([part.batch for part in parts])
    dues = [part.due for part in parts if part.due is not None]
    return Arrivals(batch, min(part.arrived for part in parts), np.concatenate(dues) if dues else None)


def _earliest(part: Arrivals, rows: int) -> tuple[Arrivals, Arrivals]:
    """The rows to serve now, and the rest."""
    if part.due is None:
        now, later = part.batch.slice(0, rows), compact(part.batch.slice(rows))
        return Arrivals(now, part.arrived, None), Arrivals(later, part.arrived, None)
    order = np.argsort(part.due, kind="stable")
    now, later = (
        Arrivals(take_rows(part.batch, chosen), part.arrived, part.due[chosen])
        for chosen in (order[:rows], order[rows:])
    )
    return now, later
