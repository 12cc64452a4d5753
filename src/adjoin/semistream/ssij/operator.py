"""SSIJ, the semi-streamed index join: the operator, its buffers and its deadlines."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arguments import MOST_SECONDS
from adjoin.kernels.types import Array
from adjoin.keys.predicate import Distance
from adjoin.master.device import Device
from adjoin.master.master import Master
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock, Pause, SystemClock
from adjoin.operators.late_input import arrivals
from adjoin.semistream.base.buffered import BufferedJoin
from adjoin.semistream.base.buffers import MOST_STREAM_BYTES, InputBuffer
from adjoin.semistream.base.paged import check_master
from adjoin.semistream.base.spec import On, make_spec
from adjoin.semistream.ssij.options import Deadline, Options
from adjoin.semistream.ssij.phases import Phases

_INPUT_ROWS = 16_384
_STREAM_SHARE, _OFFERED_SHARE = 0.85, 0.5
"""Part of the memory that rows and pages share which rows may fill before pages are read for them. Where rows
are offered, the rest is for those that arrive meanwhile."""
_DEADLINE_MARGIN = 1.25


class SSIJ(BufferedJoin):
    """Joins a stream with an indexed master that is larger than memory.

    How it works:
        1. *Pending*: rows collect in the input buffer.
        2. *Online*: the collected rows are sorted by key, find their pages in one pass over the
           index, and are joined with the pages that are cached. A row with a page that is not
           cached goes to the stream buffer; the inverted index notes which pages it waits for.
        3. *Join*: once enough rows wait, the pages they want are read along the cheapest plan,
           several reads in flight, and joined through the inverted index. The pages most in
           demand stay in the cache.

        Rows and cached pages share one budget: pages are evicted when rows need the room, the
        least useful first, and the cache takes back what rows leave free.

    Args:
        master: The master; `vacuum` leaves its version alone until `refresh` or `close`.
        on: Key: a name, a list of names, or `{"stream column": "master column"}`.
        how: "inner", "left", "semi" or "anti".
        memory: Budget of the whole operator: bytes, or text such as "64MB".
        columns: Master columns to put out, in this order; all by default.
        within: Range join: master key between stream key - within and stream key + within.
        between: Range join: master key between these two stream columns; `on` names the master's key.
        suffix: Appended to a master column whose name the stream has too.
        deadline: Seconds within which every row is answered, or the name of a stream column with
            the moment by which the row must be answered (a timestamp, without time zone taken as UTC,
            or seconds since 1970; null: any time); rows are answered as late as that allows,
            because the more wait together, the fewer pages are read. With none, rows wait until the
            stream buffer is full, the input pauses or the stream ends.
        input_rows: Rows that start an online phase (IB_thresh); by default 16,384, or what a step holds.
        stream_rows: Waiting rows that start a join phase (SB_thresh); by default, as many as fill
            most of the memory that rows and pages share, or half of it once rows are offered.
        max_scan: Most pages that one scan reads (maxScan).
        decay: What remains of a page's utility after a join phase; 0 clears it, as in the paper.
        device: What the master lies on; the file system by default.
        clock: Tells the time; the system's by default.
        pages: Where cached pages lie: by default in memory of this operator alone. In a `PageFile` the
            next operator with the same options finds them again, in another process and at another
            version too.
        shared_index: Use the index of `master`, mapped from its file and shared by all who do so, which
            then is not part of `memory`.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.SSIJ(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 7, 'pen'), (3, 5, 'pad')]

    Cost:
        Time O(n log n) for n rows of an online phase, plus one binary search in a page per row and
        page; O(p log p) for p pages of a join phase. Reads at most one page per row and page it
        matches, fewer the more rows wait together. Memory never more than `memory`.

    Reference:
        Bornea, Deligiannakis, Kotidis, Vassalos: Semi-Streamed Index Join for Near-Real Time
        Execution of ETL Transformations, ICDE 2011. Algorithms 1 and 2, sections IV and V.

        ========== ==================================== ==========================
        symbol     meaning                              here
        ========== ==================================== ==========================
        M          memory of the operator               memory
        CR         cached pages                         Residence.cache
        IB, SB     input buffer, stream buffer          InputBuffer, StreamBuffer
        II_p       rows that wait for page p            InvertedIndex
        P_u        pages to read                        Wanted.pages
        S, T       seconds to position, per page        Cost
        maxScan    longest scan                         max_scan
        ========== ==================================== ==========================

    Departures:
        - Rows are joined with the pages that were cached when the online phase began, so that a
          page evicted within the phase is not joined twice (Algorithm 1, lines 3, 9 and 18).
        - When rows find no room and no page is left to evict, a join phase is forced.
        - An update drops the cached pages it replaced and loads the new index.
        - Utilities fade instead of being cleared, and are kept for pages outside the cache, which
          also settles ties.
        - The index knows first and last key of every page: a key between two pages is known to be
          absent without a read; one inside a page costs a read, unless the filter excludes it.
        - The plan is exact in O(pages), by a sliding-window minimum.
        - Reads overlap with joining.
    """

    keeps_deadlines = True

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        columns: Sequence[str] | None = None,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_master",
        deadline: float | datetime.timedelta | str | None = None,
        input_rows: int | None = None,
        stream_rows: int | None = None,
        max_scan: int = 200,
        decay: float = 0.9,
        device: Device | None = None,
        clock: Clock | None = None,
        pages: PageMemory | None = None,
        shared_index: bool = False,
    ) -> None:
        check_master(master)
        self._options = Options(input_rows, stream_rows, max_scan, decay, Deadline(deadline))
        super().__init__(
            master,
            make_spec(master, on, how, columns, within, between, suffix),
            memory,
            decay=decay,
            device=device,
            clock=clock,
            pages=pages,
            shared_index=shared_index,
        )
        self._stage: Phases = Phases(self._spec, self._pages, self._budget, self._clock, max_scan)
        self._input = InputBuffer()

    def metrics(self) -> dict[str, Any]:
        """Those of every operator; also `deadlines_missed`, `online_phases` and `join_phases`."""
        return super().metrics()

    def _paced(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterable[pa.RecordBatch | Pause | None]:
        if not self._options.deadline.is_set or not isinstance(self._clock, SystemClock):
            return items
        return arrivals(items, self._patience_seconds)

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        super().check_invariants()
        self._stage.waiting.check_invariants()
        assert self._budget.account("stream") >= self._stage.waiting.stream_bytes
        assert self._budget.account("inverted") >= self._stage.waiting.inverted_bytes

    def _begin(self, stream: pa.Schema) -> None:
        self._options.deadline.check(stream)
        super()._begin(stream)

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        end = self._clock.now() + seconds
        if not self._options.deadline.is_set:
            yield from self._drain()
        while (left := self._seconds_to_act()) <= end - self._clock.now():
            self._clock.sleep(max(0.0, left))
            yield from self._act()
        self._clock.sleep(max(0.0, end - self._clock.now()))

    def _work(self) -> Iterator[pa.RecordBatch]:
        """Run the phases whose time has come."""
        while True:
            if self._is_due():
                yield from self._act()
            elif self._input_is_enough():
                yield from self._look_up()
            elif self._stream_buffer_is_full():
                yield from self._stage.relieve()
            else:
                return

    def _input_is_enough(self) -> bool:
        enough = self._options.input_rows or min(_INPUT_ROWS, self._pages.split.step_rows)
        return self._input.rows >= enough or self._input_is_large

    def _stream_buffer_is_full(self) -> bool:
        held = self._stage.waiting.stream_bytes + self._stage.waiting.inverted_bytes
        if self._options.stream_rows is not None:
            return self._stage.waiting.rows >= self._options.stream_rows or held >= MOST_STREAM_BYTES
        share = _OFFERED_SHARE if self._is_offered else _STREAM_SHARE
        return held >= min(share * self._pages.split.stream_bytes, MOST_STREAM_BYTES)

    # Deadlines.

    def _due(self, batch: pa.RecordBatch, now: float) -> Array | None:
        return self._options.deadline.due(batch, now)

    def _seconds_to_act(self) -> float:
        """How long the phases can still be put off before a deadline is missed."""
        earliest = min(self._input.earliest_due, self._stage.waiting.earliest_due)
        if earliest == np.inf:
            return np.inf
        more_pages = self._stage.pages_per_row * self._input.rows
        pages = min(self._stage.waiting.wanted_pages + round(more_pages), len(self._pages.index))
        return float(earliest - self._clock.now() - _DEADLINE_MARGIN * self._stage.estimate.seconds(pages))

    def _act(self) -> Iterator[pa.RecordBatch]:
        """Look up what came, after which it is known how long reading takes; then read."""
        if self._input.rows:
            yield from self._look_up()
        else:
            yield from self._stage.relieve()

    def _is_due(self) -> bool:
        return self._seconds_to_act() <= 0

    def _patience_seconds(self) -> float | None:
        seconds = self._seconds_to_act()
        return None if seconds > MOST_SECONDS else max(0.0, seconds)
