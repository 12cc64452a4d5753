"""Stream rows that wait: some for their turn, some for pages from disk."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import compact, join_arrays, join_batches, take_rows
from adjoin.kernels.grouping import group_pairs
from adjoin.kernels.types import Array
from adjoin.semistream.base.pair_log import PairLog

MOST_STREAM_BYTES = 1 << 30
"""Arrow's string offsets end at 2 GiB; rows that wait together stay well below."""
_MOST_PARTS = 64
"""So many parts become one: a part has a price beside its bytes, which many small ones must not add up to."""
_LEAST_STATE_BYTES = 9
"""Of the state of a row: its key, and whether it had a match."""
_PLAN_SHARE = 1 / 16
_LEAST_PORTION_PAGES = 256


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
        """Bytes that these rows take while they wait, and once more what joining the parts takes.

        That is the widest column or the keys, and all other states. A column without nulls counts the bitmap
        that it gets beside rows that have some.
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
        return 2 * int(self.batch.nbytes) + 72 * self.batch.num_rows

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
    """Rows that wait for pages, and for every such page the rows that want it.

    Args:
        pages: Number of pages of the master.
        most_bytes: The most that rows and pairs will take.
    """

    pair_bytes = 8
    wanted_page_bytes = 80
    """Of a page that is to be read, in the inverted index and in a read plan."""
    pair_cost = pair_bytes + wanted_page_bytes
    """Most that one more pair costs."""

    def __init__(self, pages: int, most_bytes: int) -> None:
        self._parts: list[Rows] = []
        self._pairs = PairLog(min(most_bytes, 2 * MOST_STREAM_BYTES) // self.pair_bytes)
        self._is_wanted: Array = np.zeros(pages, bool)
        self._portion_pages = max(
            _LEAST_PORTION_PAGES, int(_PLAN_SHARE * most_bytes) // self.wanted_page_bytes
        )
        self._reset()

    def _reset(self) -> None:
        self._small = 0
        self.rows = 0
        self.wanted_pages = 0
        self.stream_bytes = 0
        self.earliest_due = np.inf

    @property
    def inverted_bytes(self) -> int:
        """What pairs take, and the pages that are planned for at a time."""
        planned_pages = min(self.wanted_pages, self._portion_pages)
        return len(self._pairs) * self.pair_bytes + planned_pages * self.wanted_page_bytes

    def has_room_for(self, pairs: int) -> bool:
        """Whether so many more pairs can wait, whatever memory there is for them."""
        held_bytes = self.stream_bytes + self.inverted_bytes
        return len(self._pairs) + pairs <= self._pairs.most and held_bytes < MOST_STREAM_BYTES

    def cost_of(self, pairs: int) -> int:
        """The most by which so many pairs add to the bytes of the inverted index."""
        more_pages = min(pairs, max(0, self._portion_pages - self.wanted_pages))
        return pairs * self.pair_bytes + more_pages * self.wanted_page_bytes

    def add(self, rows: Rows, pairs: Array) -> None:
        """Rows that wait; a pair is `page << 32 | row`, rows counted from the first of `rows`."""
        self._parts.append(rows)
        self._pairs.add(pairs + self.rows)
        self._is_wanted[pairs >> 32] = True
        self.rows += len(rows)
        self.wanted_pages = int(np.count_nonzero(self._is_wanted))
        self.stream_bytes += rows.waiting_bytes
        if rows.due is not None:
            self.earliest_due = min(self.earliest_due, rows.due.min(initial=np.inf))
        self._small += 1
        if self._small == _MOST_PARTS:
            few, self._parts[-_MOST_PARTS:] = self._parts[-_MOST_PARTS:], []
            self._parts.append(join_rows(few))
            self._small = 0

    def check_invariants(self) -> None:
        assert self.rows == sum(len(part) for part in self._parts)
        if self.rows == 0:  # the inverted index of those before may be in use
            return
        assert self.wanted_pages == np.count_nonzero(self._is_wanted)
        pairs = self._pairs.all()
        assert self._is_wanted[pairs >> 32].all()
        assert ((pairs & 0xFFFFFFFF) < self.rows).all()

    def take(self) -> tuple[Rows, "InvertedIndex"]:
        """All rows as one, and the inverted index over them, which is good until rows are added again."""
        parts, self._parts = self._parts, []
        self._reset()
        return join_rows(parts), InvertedIndex(self._pairs, self._is_wanted, self._portion_pages)


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


@dataclass(frozen=True)
class Wanted:
    """Some of the wanted pages, and the rows that want each.

    Attributes:
        pages: The pages, ascending.
        pairs: `page << 32 | row`, sorted.
        begin: Where each page's pairs begin, one entry more than pages.
    """

    pages: Array
    pairs: Array
    begin: Array

    def check_invariants(self) -> None:
        assert (np.diff(self.pairs) > 0).all()
        assert (np.diff(self.pages) > 0).all()
        assert self.begin[0] == 0
        assert self.begin[-1] == len(self.pairs)


class InvertedIndex:
    """For every wanted page the rows that want it, a portion of the pages at a time.

    Args:
        pairs: The pairs; given back when all is done.
        is_wanted: Whether each page of the master is wanted; all are not when all is done.
        portion_pages: Most pages of a portion.
    """

    def __init__(self, pairs: PairLog, is_wanted: Array, portion_pages: int) -> None:
        self._pairs = pairs
        self._is_wanted = is_wanted
        self._portion_pages = portion_pages
        pairs.all().sort()

    def portions(self) -> Iterator[Wanted]:
        """The pages with their rows, in the order of the pages."""
        rest = self._pairs.all()
        while len(rest):
            pages, begin = group_pairs(rest, self._portion_pages)
            some, rest = rest[: begin[-1]], rest[begin[-1] :]
            yield Wanted(pages, some, begin)

    def is_wanted(self, pages: Array) -> Array:
        """Which of the pages were not joined yet."""
        return self._is_wanted[pages]

    def was_joined(self, pages: Array) -> None:
        """These pages are done."""
        self._is_wanted[pages] = False

    def close(self) -> None:
        """Everything is done, or will not be."""
        self._is_wanted[:] = False
        self._pairs.clear()
