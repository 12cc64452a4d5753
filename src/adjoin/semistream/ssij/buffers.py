"""The buffers of SSIJ: the stream buffer, and the inverted index over the rows in it."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adjoin.kernels.grouping import group_pairs
from adjoin.kernels.types import Array
from adjoin.semistream.base.buffers import MOST_PARTS, MOST_STREAM_BYTES, Rows, join_rows

_PLAN_SHARE = 1 / 16
"""Part of the memory of rows that planning may take."""
_LEAST_PLANNED_PAGES = 256


class StreamBuffer:
    """Pending rows, and the pairs of each page and the rows that want it.

    Args:
        pages: Number of pages of the master.
        most_bytes: The most that rows and pairs will take.
    """

    pair_bytes = 8
    wanted_page_bytes = 80
    """Of a page that will be read, in the inverted index and in a read plan."""
    pair_cost = pair_bytes + wanted_page_bytes
    """The most that one more pair costs."""

    def __init__(self, pages: int, most_bytes: int) -> None:
        self._parts: list[Rows] = []
        self._pairs = PairLog(min(most_bytes, 2 * MOST_STREAM_BYTES) // self.pair_bytes)
        self._is_wanted: Array = np.zeros(pages, bool)
        self._planned_pages = max(
            _LEAST_PLANNED_PAGES, int(_PLAN_SHARE * most_bytes) // self.wanted_page_bytes
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
        """What the pairs take, and the pages that are planned for at a time."""
        planned_pages = min(self.wanted_pages, self._planned_pages)
        return len(self._pairs) * self.pair_bytes + planned_pages * self.wanted_page_bytes

    @property
    def held_bytes(self) -> int:
        """What rows and pairs take."""
        return self.stream_bytes + self.inverted_bytes

    def has_room_for(self, pairs: int) -> bool:
        """Whether this many more pairs fit, apart from the budget."""
        return len(self._pairs) + pairs <= self._pairs.most and self.held_bytes < MOST_STREAM_BYTES

    def cost_of(self, pairs: int) -> int:
        """The most that this many pairs add to the bytes of the inverted index."""
        more_pages = min(pairs, max(0, self._planned_pages - self.wanted_pages))
        return pairs * self.pair_bytes + more_pages * self.wanted_page_bytes

    def add(self, rows: Rows, pairs: Array) -> None:
        """Add rows and their pairs, each `page << 32 | row`, rows being numbered from the first of `rows`."""
        self._parts.append(rows)
        self._pairs.add(pairs + self.rows)
        self._is_wanted[pairs >> 32] = True
        self.rows += len(rows)
        self.wanted_pages = int(np.count_nonzero(self._is_wanted))
        self.stream_bytes += rows.waiting_bytes
        if rows.due is not None:
            self.earliest_due = min(self.earliest_due, rows.due.min(initial=np.inf))
        self._small += 1
        if self._small == MOST_PARTS:
            few, self._parts[-MOST_PARTS:] = self._parts[-MOST_PARTS:], []
            self._parts.append(join_rows(few))
            self._small = 0

    def take(self) -> tuple[Rows, "InvertedIndex"]:
        """Remove all rows; returns them, and the inverted index over them until rows are added again."""
        parts, self._parts = self._parts, []
        self._reset()
        return join_rows(parts), InvertedIndex(self._pairs, self._is_wanted, self._planned_pages)

    def check_invariants(self) -> None:
        assert self.rows == sum(len(part) for part in self._parts)
        if self.rows == 0:  # the inverted index over the rows that were taken may be in use
            return
        assert self.wanted_pages == np.count_nonzero(self._is_wanted)
        pairs = self._pairs.all()
        assert self._is_wanted[pairs >> 32].all()
        assert ((pairs & 0xFFFFFFFF) < self.rows).all()


@dataclass(frozen=True)
class Wanted:
    """Some of the wanted pages, and the rows that want each.

    Attributes:
        pages: The pages, ascending.
        pairs: `page << 32 | row`, sorted.
        begin: Where each page's pairs begin, with one entry more than there are pages.
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
    """For every wanted page, the rows that want it.

    Args:
        pairs: The pairs, which this object clears when it is closed.
        is_wanted: Whether each page of the master is still wanted.
        planned_pages: The most pages that are planned for at a time.
    """

    def __init__(self, pairs: "PairLog", is_wanted: Array, planned_pages: int) -> None:
        self._pairs = pairs
        self._is_wanted = is_wanted
        self._planned_pages = planned_pages
        pairs.all().sort()

    def in_page_order(self) -> Iterator[Wanted]:
        """The pages with their rows, as many at a time as are planned for."""
        rest = self._pairs.all()
        while len(rest):
            pages, begin = group_pairs(rest, self._planned_pages)
            some, rest = rest[: begin[-1]], rest[begin[-1] :]
            yield Wanted(pages, some, begin)

    def is_wanted(self, pages: Array) -> Array:
        """Which of the pages have not been joined yet."""
        return self._is_wanted[pages]

    def drop(self, pages: Array) -> None:
        """These pages have been joined."""
        self._is_wanted[pages] = False

    def close(self) -> None:
        """Forget all pairs and pages."""
        self._is_wanted[:] = False
        self._pairs.clear()


class PairLog:
    """Pairs in one array that never moves: memory is reserved for the most, and taken as pairs come.

    Args:
        most: The most pairs that there can be.
    """

    def __init__(self, most: int) -> None:
        # Private, because only private memory is given back by MADV_DONTNEED.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, 8 * max(most, 1), flags=private)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            self._mapping.madvise(mmap.MADV_NOHUGEPAGE)
        self._pairs: Array = np.frombuffer(self._mapping, np.int64)
        self.most = len(self._pairs)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, pairs: Array) -> None:
        self._pairs[self._length : self._length + len(pairs)] = pairs
        self._length += len(pairs)

    def all(self) -> Array:
        """The pairs, in place."""
        return self._pairs[: self._length]

    def clear(self) -> None:
        """Forget all pairs and give their memory back."""
        self._length = 0
        self._mapping.madvise(mmap.MADV_DONTNEED)
