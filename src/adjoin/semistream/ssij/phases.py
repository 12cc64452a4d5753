"""The two phases of SSIJ that do the work: online and join."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.kernels.grouping import collect_needs
from adjoin.kernels.types import Array
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.budget import MemoryBudget
from adjoin.operators.clock import Clock
from adjoin.semistream.base.answering import Counts
from adjoin.semistream.base.buffers import Arrivals, InvertedIndex, Rows, StreamBuffer, Wanted
from adjoin.semistream.base.lookup import Lookup
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.read_ahead import read_in_waves
from adjoin.semistream.pages.resident import Residence
from adjoin.semistream.ssij.join_time import JoinTimeEstimate

_RECENT = 0.9
"""What remains of the most pages that rows wanted, with every online phase."""


@dataclass
class PhaseCounts(Counts):
    """What has happened since the start."""

    deadlines_missed: int = 0
    online_phases: int = 0
    join_phases: int = 0


class Phases(Lookup):
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
        pages_per_row: Pages that a row of an online phase adds to those that are wanted, at most of late.
    """

    pair_cost = StreamBuffer.pair_cost

    def __init__(
        self, spec: JoinSpec, pages: Residence, budget: MemoryBudget, clock: Clock, max_scan: int
    ) -> None:
        super().__init__(spec, pages, budget, clock)
        self._max_scan = max_scan
        self.counts: PhaseCounts = PhaseCounts()
        self.waiting = StreamBuffer(len(pages.index), pages.split.stream_bytes)
        cost = pages.reader.cost
        page_seconds = pages.split.slot_bytes / BLOCK_BYTES * cost.block_seconds
        self.pages_per_row = 1.0
        self.estimate = JoinTimeEstimate(cost.positioning_seconds + page_seconds)

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, on the master version that is in memory."""
        super().begin(stream)
        self.waiting = StreamBuffer(len(self._pages.index), self._pages.split.stream_bytes)

    def online(self, taken: Arrivals) -> Iterator[pa.RecordBatch]:
        """Online phase: answer the rows whose pages are all cached; the others wait."""
        self.counts.online_phases += 1
        before = self.waiting.wanted_pages
        yield from super().online(taken)
        more_pages = self.waiting.wanted_pages - before
        self.pages_per_row = max(_RECENT * self.pages_per_row, more_pages / taken.batch.num_rows)

    @property
    def most_scan_pages(self) -> int:
        """Most pages that one scan reads."""
        return self._max_scan

    @property
    def rows_waiting(self) -> int:
        """Rows that wait now."""
        return self.waiting.rows

    def _hold(self, rows: Rows, pairs: Array) -> bool:
        stream_bytes, pair_bytes = rows.waiting_bytes, self.waiting.cost_of(len(pairs))
        if not self.waiting.has_room_for(len(pairs)) or not self._pages.make_room(stream_bytes + pair_bytes):
            return False
        self._budget.add("stream", stream_bytes)
        self._budget.add("inverted", pair_bytes)
        self.waiting.add(rows, pairs)
        self._budget.set("inverted", self.waiting.inverted_bytes)
        return True

    def relieve(self) -> Iterator[pa.RecordBatch]:
        """Join phase: read what rows wait for, and answer them."""
        if not self.waiting.rows:
            return
        self.counts.join_phases += 1
        began = self._clock.now()
        rows, inverted = self.waiting.take()
        self._pages.spread()
        pages_read = 0
        with closing(inverted):
            for wanted in inverted.portions():
                yield from self._join_cached(rows, inverted, wanted)
            for wanted in inverted.portions():
                unread = np.flatnonzero(inverted.is_wanted(wanted.pages))
                pages_read += len(unread)
                for wave in read_in_waves(self._pages, wanted.pages[unread], self.most_scan_pages):
                    yield from self._join_wave(rows, wanted, unread[wave.chosen], wave.slots)
        self._pages.cache.fade()
        self.estimate.observe(pages_read, self._clock.now() - began)
        self._budget.set("inverted", 0)
        for begin in range(0, len(rows), self._limit_needs):
            yield from self._answer(rows, np.arange(begin, min(begin + self._limit_needs, len(rows))))
        self._budget.set("stream", 0)

    def _join_cached(self, rows: Rows, inverted: InvertedIndex, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Join pages that have come into the cache since their rows did."""
        slot = self._pages.cache.slot_of(wanted.pages)
        cached = np.flatnonzero(slot >= 0)
        with self._pages.frozen():
            yield from self._join_wave(rows, wanted, cached, slot[cached])
        inverted.was_joined(wanted.pages[cached])

    def _join_wave(self, rows: Rows, wanted: Wanted, groups: Array, slots: Array) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the rows that want them."""
        ends = np.cumsum(wanted.begin[groups + 1] - wanted.begin[groups])
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, self._limit_needs):
            stop = min(start + self._limit_needs, total)
            row, slot = collect_needs(wanted.pairs, wanted.begin, groups, slots, ends, start, stop)
            yield from self._matcher.join(rows, row, slot)

    def _answer(self, rows: Rows, chosen: Array, arrived: float | None = None) -> Iterator[pa.RecordBatch]:
        yield from super()._answer(rows, chosen, arrived)
        if rows.due is not None:
            self.counts.deadlines_missed += int((rows.due[chosen] < self._clock.now()).sum())
