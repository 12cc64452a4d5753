"""Rows find their pages in the index, and are joined at once with those that are cached."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.errors import BudgetError
from adjoin.kernels.grouping import make_pairs
from adjoin.kernels.search import expand
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.operators.portions import portions
from adjoin.semistream.base.answers import Answerer
from adjoin.semistream.base.buffers import Arrivals, Rows
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.read_ahead import read_in_waves
from adjoin.semistream.pages.resident import ResidentPages


@dataclass(frozen=True)
class Needs:
    """Pairs of a row and a page that may match it.

    Attributes:
        row: The row of each pair.
        page: Its page.
        is_swept: Whether all pairs belong to one row that matches too many pages to become pending: these
            are read at once.
    """

    row: Array
    page: Array
    is_swept: bool = False


@dataclass(frozen=True)
class Missing:
    """Rows with the pages that they still need: pairs `page << 32 | row`."""

    rows: Rows
    pairs: Array


class Lookup:
    """Finds the pages of a batch of rows, and joins the rows with those that are cached.

    Args:
        spec: The join specification.
        pages: The resident pages.
        answerer: Answers the rows.
        arrived: The rows.
        most_pairs: The most pairs of a row and a page that are handled at a time.
        max_scan: The most pages that one scan reads.

    Attributes:
        rows: The rows.
        is_pending: Which of them need a page that is not cached.
    """

    def __init__(
        self,
        spec: JoinSpec,
        pages: ResidentPages,
        answerer: Answerer,
        arrived: Arrivals,
        most_pairs: int,
        max_scan: int,
    ) -> None:
        self._spec = spec
        self._pages = pages
        self._answerer = answerer
        self._most_pairs = most_pairs
        self._max_scan = max_scan
        self._swept_rows = 0
        self.rows, self._valid = answerer.rows_of(arrived)
        self.is_pending: Array = np.zeros(len(self.rows), bool)

    def needs(self) -> Iterator[Needs]:
        """The pages of all rows, found in one pass over the index."""
        order = self._search_order()
        start, stop = self._pages.index.locate(self.rows.low[order], self.rows.high[order])
        for begin, end in portions(stop - start, self._most_pairs):
            count = stop[begin:end] - start[begin:end]
            if count[0] > self._most_pairs:
                yield from self._sweep(order[begin], int(start[begin]), int(stop[begin]))
            else:
                owner, page = expand(start[begin:end], count, int(count.sum()))
                yield Needs(order[begin:end][owner], page)

    def _sweep(self, row: int, start: int, stop: int) -> Iterator[Needs]:
        self._swept_rows += 1
        for first in range(start, stop, self._most_pairs):
            page = np.arange(first, min(first + self._most_pairs, stop), dtype=np.int32)
            yield Needs(np.full(len(page), row, np.int32), page, is_swept=True)

    def _search_order(self) -> Array:
        """Rows that may have a match, by ascending key."""
        low, valid, filter_ = self.rows.low, self._valid, self._pages.filter
        if filter_ is not None and self._spec.predicate.is_equality:
            possible = filter_.contains(low)
            valid = possible if valid is None else valid & possible
        if valid is None:
            return argsort_keys(low)
        candidates = np.flatnonzero(valid).astype(np.int32)
        return candidates[argsort_keys(low[candidates])]

    def join_cached(self, needs: Needs) -> Generator[pa.RecordBatch, None, Missing | None]:
        """Join rows with the pages that are cached now; returns what they still need, if anything."""
        pages, matcher = self._pages, self._answerer.matcher
        pages.cache.credit(needs.page)
        slot = pages.cache.slot_of(needs.page)
        cached = slot >= 0
        with pages.frozen():
            yield from matcher.join(self.rows, needs.row[cached], slot[cached])
        missing = np.flatnonzero(~cached)
        if needs.is_swept:
            row = needs.row[missing]
            for wave in read_in_waves(pages, needs.page[missing], self._max_scan):
                yield from matcher.join(self.rows, row[wave.chosen], wave.slots)
            return None
        if not self._spec.gives_master_columns:
            missing = missing[~self.rows.matched[needs.row[missing]]]
        return self._missing(needs, missing) if len(missing) else None

    def _missing(self, needs: Needs, missing: Array) -> Missing:
        here = np.zeros(len(self.rows), bool)
        here[needs.row[missing]] = True
        number = np.cumsum(here, dtype=np.int32) - np.int32(1)
        pairs = make_pairs(needs.row, needs.page, missing, number)
        self.is_pending |= here
        return Missing(self.rows.select(np.flatnonzero(here)), pairs)

    def count_hits(self) -> None:
        """Count the rows that needed no read."""
        hits = len(self.rows) - int(self.is_pending.sum()) - self._swept_rows
        self._answerer.counts.cache_hits += hits


def most_pairs(pages: ResidentPages, pair_bytes: int) -> int:
    """How many pairs are handled at a time, given the bytes of a pair whose row becomes pending.

    That many fit into the memory of a step, and into that of pending rows.
    """
    split = pages.split
    return max(1, min(split.step_rows, split.stream_bytes // 4 // pair_bytes))


def no_room(memory_bytes: int, wanted_bytes: int) -> BudgetError:
    """The error for pending rows that do not fit although nothing else takes memory."""
    return BudgetError(
        f"pending rows do not fit in memory={memory_bytes}; give memory={memory_bytes + 2 * wanted_bytes} "
        "or more"
    )
