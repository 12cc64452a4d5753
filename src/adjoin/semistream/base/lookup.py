"""Stream rows that find their pages in the index: joined with what is cached, waiting for what is not."""

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.grouping import make_pairs
from adjoin.kernels.search import expand
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.operators.portions import portions
from adjoin.semistream.base.answering import Answering
from adjoin.semistream.base.buffers import Arrivals, Rows
from adjoin.semistream.pages.read_ahead import read_in_waves


class Lookup(Answering):
    """Looks rows up in the index; what becomes of those that wait for pages is the algorithm's own."""

    pair_cost: int
    """Most that one more pair of a row and a page costs while it waits."""

    @property
    def most_scan_pages(self) -> int:
        """Most pages that one scan reads."""
        return self._pages.split.wave_pages

    def online(self, taken: Arrivals) -> Iterator[pa.RecordBatch]:
        """Answer the rows whose pages are all cached; the others wait."""
        rows, valid = self._rows_of(taken)
        order = self._search_order(rows, valid)
        start, stop = self._pages.index.locate(rows.low[order], rows.high[order])
        waits = np.zeros(len(rows), bool)
        swept = 0
        limit = self._limit_needs
        for begin, end in portions(stop - start, limit):
            count = stop[begin:end] - start[begin:end]
            if count[0] > limit:
                swept += 1
                yield from self._sweep(rows, order[begin], int(start[begin]), int(stop[begin]))
                continue
            owner, page = expand(start[begin:end], count, int(count.sum()))
            yield from self._look_up(rows, order[begin:end][owner], page, waits)
        self.counts.cache_hits += int(len(rows) - waits.sum()) - swept
        yield from self._answer(rows, self._answered(waits))

    def _answered(self, waits: Array) -> Array:
        """The rows that are finished, given which have pages that were not cached."""
        return np.flatnonzero(~waits)

    @abstractmethod
    def _hold(self, rows: Rows, pairs: Array) -> bool:
        """Let rows wait for pages; False if no room could be made. A pair is `page << 32 | row`."""

    @abstractmethod
    def relieve(self) -> Iterator[pa.RecordBatch]:
        """Make room by answering rows that wait."""

    @property
    @abstractmethod
    def rows_waiting(self) -> int:
        """Rows that wait now."""

    def _sweep(self, rows: Rows, row: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Answer a row that matches more pages than can be noted at once: it passes over them all."""
        pages, limit = self._pages, self._limit_needs
        for first in range(start, stop, limit):
            page = np.arange(first, min(first + limit, stop), dtype=np.int32)
            pages.cache.credit(page)
            slot = pages.cache.slot_of(page)
            cached = slot[slot >= 0]
            with pages.frozen():
                yield from self._matcher.join(rows, np.full(len(cached), row, np.int32), cached)
            for wave in read_in_waves(pages, page[slot < 0], self.most_scan_pages):
                yield from self._matcher.join(rows, np.full(len(wave.slots), row, np.int32), wave.slots)

    def _search_order(self, rows: Rows, valid: Array | None) -> Array:
        """Rows that may have a match, by ascending key."""
        low = rows.low
        filter_ = self._pages.filter
        if filter_ is not None and self._spec.predicate.is_equality:
            possible = filter_.contains(low)
            valid = possible if valid is None else valid & possible
        if valid is None:
            return argsort_keys(low)
        candidates = np.flatnonzero(valid).astype(np.int32)
        return candidates[argsort_keys(low[candidates])]

    def _look_up(self, rows: Rows, row: Array, page: Array, waits: Array) -> Iterator[pa.RecordBatch]:
        """Join needs whose page is cached now; the others wait. Notes in `waits` which rows do."""
        self._pages.cache.credit(page)
        slot = self._pages.cache.slot_of(page)
        cached = slot >= 0
        with self._pages.frozen():
            yield from self._matcher.join(rows, row[cached], slot[cached])
        missing = np.flatnonzero(~cached)
        if not self._spec.gives_master_columns:
            missing = missing[~rows.matched[row[missing]]]
        if len(missing):
            yield from self._wait(rows, row, page, missing, waits)

    def _wait(
        self, rows: Rows, row: Array, page: Array, missing: Array, waits: Array
    ) -> Iterator[pa.RecordBatch]:
        here = np.zeros(len(rows), bool)
        here[row[missing]] = True
        chosen = np.flatnonzero(here)
        number = np.cumsum(here, dtype=np.int32) - np.int32(1)
        pairs = make_pairs(row, page, missing, number)
        waiting = rows.select(chosen)
        while not self._hold(waiting, pairs):
            if not self.rows_waiting:
                raise self._no_room(waiting.waiting_bytes + self.pair_cost * len(pairs))
            yield from self.relieve()
        waits |= here

    @property
    def _limit_needs(self) -> int:
        """Needs handled at a time: they fit the work of a step, and the buffers if all must wait."""
        split = self._pages.split
        return max(1, min(split.step_rows, split.stream_bytes // 4 // self.pair_cost))
