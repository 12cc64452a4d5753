"""The two phases of SSIJ that do the work: online and join."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.errors import BudgetError, SchemaError
from adjoin.kernels.grouping import collect_needs, make_pairs
from adjoin.kernels.search import expand, locate_pages
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.parts.arena import BLOCK_BYTES
from adjoin.parts.budget import MemoryBudget
from adjoin.parts.clock import Clock
from adjoin.parts.copying import can_be_taken, plain_columns
from adjoin.parts.costmodel import JoinTimeEstimate
from adjoin.parts.portions import portions
from adjoin.parts.streambuffer import Arrivals, InvertedIndex, Rows, StreamBuffer
from adjoin.semistream.matching import Matcher
from adjoin.semistream.output import Output, can_be_measured, sizes_of
from adjoin.semistream.readahead import read_in_waves
from adjoin.semistream.residence import Residence
from adjoin.semistream.spec import JoinSpec


@dataclass
class Counts:
    """What has happened since the start."""

    rows_in: int = 0
    cache_hits: int = 0
    rows_unmatched: int = 0
    seconds_waiting_max: float = 0.0
    deadlines_missed: int = 0
    online_phases: int = 0
    join_phases: int = 0


class Phases:
    """Looks rows up, keeps those that wait for pages, and reads these pages.

    Args:
        spec: The join.
        pages: What of the master is in memory.
        budget: The operator's budget; this class keeps its accounts "stream" and "inverted".
        clock: Tells the time.
        max_scan: Most pages that one scan reads.

    Attributes:
        waiting: The stream buffer with its inverted index.
        estimate: How long a join phase takes.
    """

    def __init__(
        self, spec: JoinSpec, pages: Residence, budget: MemoryBudget, clock: Clock, max_scan: int
    ) -> None:
        self._spec = spec
        self._pages = pages
        self._budget = budget
        self._clock = clock
        self._max_scan = max_scan
        self.counts = Counts()
        self.waiting = StreamBuffer(len(pages.index))
        cost = pages.reader.cost
        page_seconds = pages.split.slot_bytes / BLOCK_BYTES * cost.block_seconds
        self.estimate = JoinTimeEstimate(cost.positioning_seconds + page_seconds)

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, on the master version that is in memory."""
        pages, split = self._pages, self._pages.split
        schema = self._spec.output_schema(stream, pages.master.schema)
        for field in stream:
            if not can_be_taken(field.type) or not can_be_measured(field.type):
                raise SchemaError(
                    f"the stream's column {field.name!r} of type {field.type} cannot pass; cast it"
                )
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in stream], schema=stream)
        self._spec.predicate.bounds(plain_columns(nothing))
        layout = [pages.column(name) for name in self._spec.columns]
        keys = [pages.column(name) for name in self._spec.verified]
        self._output = Output(schema, pages.columns, layout, split.output_bytes)
        self._matcher = Matcher(self._spec, pages, keys, self._output, split.step_rows)
        self.waiting = StreamBuffer(len(pages.index))

    def online(self, taken: Arrivals) -> Iterator[pa.RecordBatch]:
        """Online phase: answer the rows whose pages are all cached; the others wait."""
        self.counts.online_phases += 1
        low, high, valid = self._spec.predicate.bounds(taken.batch)
        unmatched = np.zeros(len(low), bool)
        rows = Rows(taken.batch, taken.arrived, taken.due, low, high, unmatched, sizes_of(taken.batch))
        order = self._search_order(rows, valid)
        index = self._pages.index
        start, stop = locate_pages(low[order], high[order], index.first, index.last)
        waits = np.zeros(len(rows), bool)
        swept = 0
        limit = self._limit_needs
        for begin, end in portions(stop - start, limit):
            count = stop[begin:end] - start[begin:end]
            if count[0] > limit:
                swept += 1
                yield from self._sweep(
                    rows, order[begin], range(start[begin], stop[begin], limit), stop[begin]
                )
                continue
            owner, page = expand(start[begin:end], count, int(count.sum()))
            yield from self._look_up(rows, order[begin:end][owner], page, waits)
        self.counts.cache_hits += int(len(rows) - waits.sum()) - swept
        yield from self._answer(rows, np.flatnonzero(~waits))

    def _sweep(self, rows: Rows, row: int, firsts: range, stop: int) -> Iterator[pa.RecordBatch]:
        """Answer a row that matches more pages than can be noted at once, some pages at a time."""
        yield from self.join()
        for first in firsts:
            page = np.arange(first, min(first + firsts.step, stop), dtype=np.int32)
            yield from self._look_up(rows, np.full(len(page), row, np.int32), page, np.zeros(len(rows), bool))
            if self.waiting.rows:
                joined = yield from self._join_pages()
                rows.matched[row] |= joined.matched[0]

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
        slot = self._pages.cache.slot_of_page[page]
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
            if not self.waiting.rows:
                enough = self._budget.total_bytes + 2 * (
                    waiting.waiting_bytes + StreamBuffer.pair_cost * len(pairs)
                )
                raise BudgetError(
                    f"rows that wait for pages find no room in memory={self._budget.total_bytes}; "
                    f"give memory={enough} or more"
                )
            yield from self.join()
        waits |= here

    def _hold(self, rows: Rows, pairs: Array) -> bool:
        """Put rows into the stream buffer; False if no room could be made."""
        stream_bytes, pair_bytes = rows.waiting_bytes, len(pairs) * StreamBuffer.pair_cost
        if not self._pages.make_room(stream_bytes + pair_bytes):
            return False
        self._budget.add("stream", stream_bytes)
        self._budget.add("inverted", pair_bytes)
        self.waiting.add(rows, pairs)
        self._budget.set("inverted", self.waiting.inverted_bytes)
        return True

    def join(self) -> Iterator[pa.RecordBatch]:
        """Join phase: read what rows wait for, and answer them."""
        if self.waiting.rows:
            rows = yield from self._join_pages()
            yield from self._answer(rows, np.arange(len(rows)))

    def _join_pages(self) -> Generator[pa.RecordBatch, None, Rows]:
        """Join all waiting rows with the pages they wait for; returns them."""
        self.counts.join_phases += 1
        began = self._clock.now()
        rows, inverted = self.waiting.join_parts()
        pages = self._pages
        pages.spread()
        slot = pages.cache.slot_of_page[inverted.pages]
        cached = np.flatnonzero(slot >= 0)
        with pages.frozen():
            yield from self._join_wave(rows, inverted, cached, slot[cached])
        unread = np.flatnonzero(slot < 0)
        for wave in read_in_waves(pages, inverted.pages[unread], self._max_scan):
            yield from self._join_wave(rows, inverted, unread[wave.chosen], wave.slots)
        pages.cache.fade()
        self.estimate.observe(len(unread), self._clock.now() - began)
        self._budget.set("stream", 0)
        self._budget.set("inverted", 0)
        return rows

    def _join_wave(
        self, rows: Rows, inverted: InvertedIndex, groups: Array, slots: Array
    ) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the rows that the inverted index has for them."""
        ends = np.cumsum(inverted.begin[groups + 1] - inverted.begin[groups])
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, self._limit_needs):
            stop = min(start + self._limit_needs, total)
            row, slot = collect_needs(inverted.pairs, inverted.begin, groups, slots, ends, start, stop)
            yield from self._matcher.join(rows, row, slot)

    def _answer(self, rows: Rows, chosen: Array) -> Iterator[pa.RecordBatch]:
        """These rows are finished: put out those without a match where the join wants them."""
        if len(chosen) == 0:
            return
        unmatched = chosen[~rows.matched[chosen]]
        self.counts.rows_unmatched += len(unmatched)
        if self._spec.keeps_unmatched and len(unmatched):
            yield from self._output.alone(rows, unmatched)
        now = self._clock.now()
        self.counts.seconds_waiting_max = max(self.counts.seconds_waiting_max, now - rows.arrived)
        if rows.due is not None:
            self.counts.deadlines_missed += int((rows.due[chosen] < now).sum())

    @property
    def _limit_needs(self) -> int:
        """Needs handled at a time: they fit the work of a step, and the buffers if all must wait."""
        split = self._pages.split
        return max(1, min(split.step_rows, split.stream_bytes // 4 // StreamBuffer.pair_cost))
