"""The three phases of SSIJ: pending, online and join."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.kernels.grouping import collect_needs
from adjoin.kernels.types import Array
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.semistream.base.buffers import MOST_STREAM_BYTES, Rows
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import JoinParts
from adjoin.semistream.base.lookup import Lookup, Missing, most_pairs, no_room
from adjoin.semistream.pages.read_ahead import read_in_waves
from adjoin.semistream.ssij.buffers import InvertedIndex, StreamBuffer, Wanted
from adjoin.semistream.ssij.deadline import Deadline, JoinTimeEstimate

_INPUT_ROWS = 16_384
_STREAM_SHARE, _OFFERED_SHARE = 0.85, 0.5
"""How much of the memory that rows and pages share is filled by pending rows when a join phase starts. Less
once rows have been offered: the rest is for those that arrive during the phase."""
_DEADLINE_MARGIN = 1.25
_RECENT = 0.9
"""The estimate of pages that a row adds keeps at least this share with every online phase."""


@dataclass(frozen=True)
class Thresholds:
    """When a phase starts, and how much a scan reads; see `SSIJ`."""

    input_rows: int | None
    stream_rows: int | None
    max_scan: int

    def __post_init__(self) -> None:
        for name, value in (("input_rows", self.input_rows), ("stream_rows", self.stream_rows)):
            if value is not None:
                whole_number(name, value, 1)
        whole_number("max_scan", self.max_scan, 1)


@dataclass
class PhaseCounts:
    """What has happened since the start."""

    deadlines_missed: int = 0
    online_phases: int = 0
    join_phases: int = 0


class Phases:
    """The algorithm of SSIJ.

    Rows collect in the input buffer (*pending*), are joined with the cached pages (*online*), and those that
    need other pages collect in the stream buffer until these are read (*join*).

    Args:
        parts: What the join is made of; this class keeps the accounts "stream" and "inverted" of the budget.
        intake: The input buffer.
        deadline: By when rows must be answered.
        thresholds: When a phase starts.

    Attributes:
        stream_buffer: The pending rows, and the pages they want.
        estimate: How long a join phase takes.
    """

    room = None

    def __init__(self, parts: JoinParts, intake: Intake, deadline: Deadline, thresholds: Thresholds) -> None:
        self._spec = parts.spec
        self._pages = parts.pages
        self._budget = parts.budget
        self._clock = parts.clock
        self._answerer = parts.answerer
        self._intake = intake
        self._deadline = deadline
        self._thresholds = thresholds
        self._counts = PhaseCounts()
        self._pages_per_row = 1.0
        cost, split = self._pages.reader.cost, self._pages.split
        page_seconds = split.slot_bytes / BLOCK_BYTES * cost.block_seconds
        self.estimate = JoinTimeEstimate(cost.positioning_seconds + page_seconds)
        self.stream_buffer = StreamBuffer(len(self._pages.index), split.stream_bytes)

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, against the master version that is in memory."""
        self._deadline.check(stream)
        self._answerer.begin(stream)
        self.stream_buffer = StreamBuffer(len(self._pages.index), self._pages.split.stream_bytes)

    @property
    def rows_pending(self) -> int:
        """Rows in the stream buffer."""
        return self.stream_buffer.rows

    def metrics(self) -> dict[str, Any]:
        """Phases so far, and deadlines that were missed."""
        return dict(vars(self._counts))

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self.stream_buffer.check_invariants()
        assert self._budget.account("stream") >= self.stream_buffer.stream_bytes
        assert self._budget.account("inverted") >= self.stream_buffer.inverted_bytes

    # The pending phase.

    def pending(self) -> Iterator[pa.RecordBatch]:
        """Run the phases whose time has come: by deadline, by IB_thresh, by SB_thresh."""
        while True:
            if self.seconds_to_act() <= 0:
                yield from self.act()
            elif self._input_is_enough():
                yield from self.online_phase()
            elif self._stream_buffer_is_full():
                yield from self.join_phase()
            else:
                return

    def _input_is_enough(self) -> bool:
        enough = self._thresholds.input_rows or min(_INPUT_ROWS, self._pages.split.step_rows)
        return self._intake.rows >= enough or self._intake.is_large

    def _stream_buffer_is_full(self) -> bool:
        held_bytes = self.stream_buffer.held_bytes
        if self._thresholds.stream_rows is not None:
            return self.stream_buffer.rows >= self._thresholds.stream_rows or held_bytes >= MOST_STREAM_BYTES
        share = _OFFERED_SHARE if self._intake.is_offered else _STREAM_SHARE
        return held_bytes >= min(share * self._pages.split.stream_bytes, MOST_STREAM_BYTES)

    def seconds_to_act(self) -> float:
        """How long the next phase can be put off before a deadline is missed."""
        earliest = min(self._intake.earliest_due, self.stream_buffer.earliest_due)
        if earliest == np.inf:
            return np.inf
        more_pages = round(self._pages_per_row * self._intake.rows)
        pages = min(self.stream_buffer.wanted_pages + more_pages, len(self._pages.index))
        return float(earliest - self._clock.now() - _DEADLINE_MARGIN * self.estimate.seconds(pages))

    def act(self) -> Iterator[pa.RecordBatch]:
        """Run the phase that a deadline asks for: online first, after which it is known what must be read."""
        if self._intake.rows:
            yield from self.online_phase()
        else:
            yield from self.join_phase()

    # The online phase (Algorithm 1).

    def online_phase(self) -> Iterator[pa.RecordBatch]:
        """Join rows with the pages that are cached; rows that need others go to the stream buffer."""
        self._counts.online_phases += 1
        pages_before = self.stream_buffer.wanted_pages
        with self._intake.taken() as arrived:
            lookup = Lookup(
                self._spec, self._pages, self._answerer, arrived, self._most_pairs, self._thresholds.max_scan
            )
            for needs in lookup.needs():  # lines 1, 2
                missing = yield from lookup.join_cached(needs)  # lines 3-6
                if missing is not None:
                    yield from self._wait(missing)  # lines 13-20
            lookup.count_hits()
            yield from self._finish(lookup.rows, np.flatnonzero(~lookup.is_pending))  # lines 9-12
        more_pages = self.stream_buffer.wanted_pages - pages_before
        self._pages_per_row = max(_RECENT * self._pages_per_row, more_pages / len(lookup.rows))

    @property
    def _most_pairs(self) -> int:
        return most_pairs(self._pages, StreamBuffer.pair_cost)

    def _wait(self, missing: Missing) -> Iterator[pa.RecordBatch]:
        """Put rows into the stream buffer; if no page is left to evict for them, a join phase makes room."""
        while not self._buffer(missing.rows, missing.pairs):
            if not self.rows_pending:
                wanted_bytes = missing.rows.waiting_bytes + StreamBuffer.pair_cost * len(missing.pairs)
                raise no_room(self._budget.total_bytes, wanted_bytes)
            yield from self.join_phase()

    def _buffer(self, rows: Rows, pairs: Array) -> bool:
        stream_bytes, pair_bytes = rows.waiting_bytes, self.stream_buffer.cost_of(len(pairs))
        if not self.stream_buffer.has_room_for(len(pairs)):
            return False
        if not self._pages.make_room(stream_bytes + pair_bytes):
            return False
        self._budget.add("stream", stream_bytes)
        self._budget.add("inverted", pair_bytes)
        self.stream_buffer.add(rows, pairs)
        self._budget.set("inverted", self.stream_buffer.inverted_bytes)
        return True

    # The join phase (Algorithm 2).

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """Read the pages that rows in the stream buffer want, and answer all of these rows."""
        if not self.stream_buffer.rows:
            return
        self._counts.join_phases += 1
        began = self._clock.now()
        rows, inverted = self.stream_buffer.take()
        self._pages.spread()
        pages_read = 0
        with closing(inverted):
            for wanted in inverted.in_page_order():
                yield from self._join_cached(rows, inverted, wanted)
            for wanted in inverted.in_page_order():
                unread = np.flatnonzero(inverted.is_wanted(wanted.pages))  # P_u
                pages_read += len(unread)
                # Lines 1-9 and 11-13: which pages to keep, the read plan, and its scans, wave by wave.
                for wave in read_in_waves(self._pages, wanted.pages[unread], self._thresholds.max_scan):
                    yield from self._join_wave(rows, wanted, unread[wave.chosen], wave.slots)  # line 10
        self._pages.cache.fade()  # line 18
        self.estimate.observe(pages_read, self._clock.now() - began)
        self._budget.set("inverted", 0)
        step = self._most_pairs
        for begin in range(0, len(rows), step):
            yield from self._finish(rows, np.arange(begin, min(begin + step, len(rows))))
        self._budget.set("stream", 0)  # line 17

    def _join_cached(self, rows: Rows, inverted: InvertedIndex, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Join pages that have been cached since their rows were looked up."""
        slot = self._pages.cache.slot_of(wanted.pages)
        cached = np.flatnonzero(slot >= 0)
        with self._pages.frozen():
            yield from self._join_wave(rows, wanted, cached, slot[cached])
        inverted.drop(wanted.pages[cached])

    def _join_wave(self, rows: Rows, wanted: Wanted, groups: Array, slots: Array) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the rows that want them."""
        ends = np.cumsum(wanted.begin[groups + 1] - wanted.begin[groups])
        total = int(ends[-1]) if len(ends) else 0
        step = self._most_pairs
        for start in range(0, total, step):
            stop = min(start + step, total)
            row, slot = collect_needs(wanted.pairs, wanted.begin, groups, slots, ends, start, stop)
            yield from self._answerer.matcher.join(rows, row, slot)

    def _finish(self, rows: Rows, chosen: Array) -> Iterator[pa.RecordBatch]:
        yield from self._answerer.finish(rows, chosen)
        if rows.due is not None:
            self._counts.deadlines_missed += int((rows.due[chosen] < self._clock.now()).sum())
