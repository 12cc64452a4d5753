"""Which pending rows need which pages."""

import numpy as np

from adjoin.kernels.merging import cut_ranges, merge_sorted
from adjoin.kernels.search import expand
from adjoin.kernels.types import Array

_ROW = 0xFFFFFFFF


class PageNeeds:
    """Pairs of a page and the number of a row that needs it, ordered by page.

    >>> needs = PageNeeds()
    >>> needs.add(np.array([7 << 32 | 0, 3 << 32 | 1, 7 << 32 | 2]))
    >>> needs.take(np.array([5, 7]), limit=10)
    (array([0, 2]), array([1, 1], dtype=int32))
    >>> len(needs)
    1
    """

    pair_bytes = 24
    """Of a pair: itself, a copy while pairs are merged, and another while it is taken."""

    def __init__(self) -> None:
        self._pairs: Array = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pairs: Array) -> None:
        """Add pairs `page << 32 | row`, in any order."""
        self._pairs = merge_sorted(self._pairs, np.sort(pairs))

    def take(self, pages: Array, limit: int) -> tuple[Array, Array]:
        """Remove up to `limit` pairs of these (ascending) pages: their rows, and which page each needs."""
        wanted = pages.astype(np.int64)
        begin = np.searchsorted(self._pairs, wanted << 32)
        end = np.searchsorted(self._pairs, (wanted + 1) << 32)
        count = np.diff(np.minimum(np.cumsum(end - begin), limit), prepend=0)
        which, at = expand(begin, count, int(count.sum()))
        rows = self._pairs[at] & _ROW
        if len(rows):
            self._pairs = cut_ranges(self._pairs, begin, begin + count)
        return rows, which

    def wanted(self, pages: Array) -> Array:
        """Those of the pages that some row needs."""
        first = pages.astype(np.int64) << 32
        count = np.searchsorted(self._pairs, first + (1 << 32)) - np.searchsorted(self._pairs, first)
        return pages[count > 0]

    def has(self, row: int, pages: Array) -> Array:
        """Whether the row needs each of these pages."""
        if len(self._pairs) == 0:
            return np.zeros(len(pages), bool)
        pairs = (pages.astype(np.int64) << 32) | row
        at = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.asarray(self._pairs[at] == pairs)

    def renumber(self, number: Array) -> None:
        """Give rows new numbers, in the same order."""
        self._pairs = (self._pairs & ~np.int64(_ROW)) | number[self._pairs & _ROW]

    def check_invariants(self) -> None:
        assert (np.diff(self._pairs) > 0).all()
