"""Stream rows that wait: some for their turn, some for pages from disk."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.kernels.grouping import count_groups, group_pairs
from adjoin.kernels.types import Array
from adjoin.parts.copying import compact, join_arrays, join_batches, take_rows

_MOST_PARTS = 64
"""So many parts become one: a part has a price beside its bytes, which many small ones must not add up to."""


@dataclass
class Rows:
    """Stream rows and what is known of each.

    Attributes:
        batch: The rows.
        arrived: When the first of them arrived, in seconds.
        due: When each must be answered, in seconds; None without deadlines.
        low: Least master key that matches each row, encoded.
        high: Greatest master key that matches it (the same array for equality).
        matched: Whether a match was found already.
        sizes: Bytes of each row; None where all columns have a fixed width.
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
        """Bytes that these rows take while they wait, and once more their widest column to join the parts."""
        widest = max((column.nbytes for column in self.batch.columns), default=0)
        return int(self.batch.nbytes) + max(widest, 8 * len(self)) + self.state_bytes * len(self)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of a row."""
        arrays = (self.high is not self.low, self.due is not None, self.sizes is not None)
        return 9 + 8 * sum(arrays)

    def select(self, rows: Array) -> "Rows":
        low = self.low[rows]
        return Rows(
            take_rows(self.batch, rows),
            self.arrived,
            None if self.due is None else self.due[rows],
            low,
            low if self.high is self.low else self.high[rows],
            self.matched[rows],
            None if self.sizes is None else self.sizes[rows],
        )


@dataclass(frozen=True)
class Arrivals:
    """Rows as they came: when, and by when each must be answered (None: no deadlines)."""

    batch: pa.RecordBatch
    arrived: float
    due: Array | None

    @property
    def bytes(self) -> int:
        """Bytes that the rows take in the input buffer, and once more when parts become one."""
        return 2 * int(self.batch.nbytes) + (0 if self.due is None else 16 * self.batch.num_rows)

    @property
    def waiting_bytes(self) -> int:
        """More than the rows take among those that wait if all of them have to."""
        return 2 * int(self.batch.nbytes) + 48 * self.batch.num_rows

    @property
    def earliest_due(self) -> float:
        return float(np.inf if self.due is None else self.due.min(initial=np.inf))


class InputBuffer:
    """Rows that arrived and were not looked at yet, served by the nearest deadline."""

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
        if self._small == _MOST_PARTS:
            self._parts[-_MOST_PARTS:] = [_one(self._parts[-_MOST_PARTS:])]
            self._small = 0

    def take(self, rows: int, waiting_bytes: int) -> Arrivals:
        """Remove rows, those whose deadline is nearest; the oldest among equals.

        Args:
            rows: The most rows.
            waiting_bytes: The most they may take where they wait; one row is taken however large it is.
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


class StreamBuffer:
    """Rows that wait for pages, with the inverted index: for every such page, the rows that want it.

    Args:
        pages: Number of pages of the master.
    """

    pair_bytes = 16
    wanted_page_bytes = 80
    pair_cost = pair_bytes + wanted_page_bytes
    """Most that one more pair costs: the pair, twice while parts are joined, and its page in a read plan."""

    def __init__(self, pages: int) -> None:
        self._parts: list[Rows] = []
        self._pairs: list[Array] = []
        self._is_wanted: Array = np.zeros(pages, bool)
        self._reset()

    def _reset(self) -> None:
        self._small = 0
        self.rows = 0
        self.pairs = 0
        self.wanted_pages = 0
        self.stream_bytes = 0
        self.earliest_due = np.inf

    @property
    def inverted_bytes(self) -> int:
        return self.pairs * self.pair_bytes + self.wanted_pages * self.wanted_page_bytes

    def add(self, rows: Rows, pairs: Array) -> None:
        """Rows that wait; a pair is `page << 32 | row`, rows counted from the first of `rows`."""
        self._parts.append(rows)
        self._pairs.append(pairs + self.rows)
        self._is_wanted[pairs >> 32] = True
        self.rows += len(rows)
        self.pairs += len(pairs)
        self.wanted_pages = int(np.count_nonzero(self._is_wanted))
        self.stream_bytes += rows.waiting_bytes
        if rows.due is not None:
            self.earliest_due = min(self.earliest_due, rows.due.min(initial=np.inf))
        self._small += 1
        if self._small == _MOST_PARTS:
            self._join_last(_MOST_PARTS)
            self._small = 0

    def check_invariants(self) -> None:
        assert self.rows == sum(len(part) for part in self._parts)
        assert self.pairs == sum(len(pairs) for pairs in self._pairs)
        assert self.wanted_pages == np.count_nonzero(self._is_wanted)
        for pairs in self._pairs:
            assert self._is_wanted[pairs >> 32].all()
            assert ((pairs & 0xFFFFFFFF) < self.rows).all()

    def _join_last(self, count: int) -> None:
        few, self._parts[-count:] = self._parts[-count:], []
        self._parts.append(join_rows(few))
        self._pairs[-count:] = [np.concatenate(self._pairs[-count:])]

    def join_parts(self) -> tuple[Rows, "InvertedIndex"]:
        """All rows as one, and the inverted index over them; the buffer is empty afterwards."""
        parts, all_pairs = self._parts, self._pairs
        self._parts, self._pairs = [], []
        self._is_wanted[:] = False
        self._reset()
        return join_rows(parts), InvertedIndex(np.concatenate(all_pairs))


def join_rows(parts: list[Rows]) -> Rows:
    """One of all these; takes them out of the list, so that each column is freed once it is joined."""
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


class InvertedIndex:
    """For every wanted page, the rows that want it.

    Attributes:
        pairs: `page << 32 | row`, sorted.
        pages: The wanted pages, ascending.
        begin: Where each page's pairs begin, one entry more than pages.
    """

    def __init__(self, pairs: Array) -> None:
        pairs.sort()
        self.pairs = pairs
        self.pages, self.begin = group_pairs(pairs, count_groups(pairs))

    def check_invariants(self) -> None:
        assert (np.diff(self.pairs) > 0).all()
        assert (np.diff(self.pages) > 0).all()
        assert self.begin[0] == 0
        assert self.begin[-1] == len(self.pairs)
