"""SSIJ, the semi-streamed index join."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from adjoin.arguments import MOST_SECONDS, share
from adjoin.keys.predicate import Distance
from adjoin.master.device import Device
from adjoin.master.master import Master
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock, Pause, SystemClock
from adjoin.operators.late_input import arrivals
from adjoin.operators.on import On
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import SemiStreamJoin, make_parts, require_master
from adjoin.semistream.base.spec import make_spec
from adjoin.semistream.ssij.deadline import Deadline
from adjoin.semistream.ssij.phases import Phases, Thresholds


class SSIJ(SemiStreamJoin):
    """Joins a stream with an indexed master that is larger than memory.

    How it works:
        1. *Pending*: rows collect in the input buffer.
        2. *Online*: the rows are sorted by key, find their pages in one pass over the index, and are
           joined with the pages that are cached. A row that needs another page goes to the stream buffer;
           the inverted index notes which pages it needs.
        3. *Join*: once enough rows are pending, the pages they want are read along the cheapest plan,
           several reads in flight, and joined through the inverted index. The pages most in demand stay in
           the cache.

        Rows and cached pages share one budget: pages are evicted when rows need the room, the least useful
        first, and the cache takes back what rows leave free.

    Args:
        master: The master; `vacuum` keeps its version until `refresh` or `close`.
        on: The key: a name, a list of names, or `{"stream column": "master column"}`.
        how: "inner", "left", "semi" or "anti".
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        columns: Master columns to emit, in this order; all by default.
        within: Range join: the master key lies between stream key - within and stream key + within.
        between: Range join: the master key, which `on` names, lies between these two stream columns.
        suffix: Appended to a master column if the stream has a column of the same name.
        deadline: Seconds within which every row is answered, or the name of a stream column with the time
            by which the row must be answered (a timestamp, taken as UTC if it has no time zone, or seconds
            since 1970; null: any time). Rows are answered as late as the deadline allows, because fewer
            pages are read when more rows are pending together. Without a deadline, rows are pending until
            the stream buffer is full, the input pauses or the stream ends.
        input_rows: Rows that start an online phase (IB_thresh); by default 16,384, or as many as a step can
            handle if that is fewer.
        stream_rows: Pending rows that start a join phase (SB_thresh); by default, as many as fill most of
            the memory that rows and pages share, or half of it once `offer` has been called.
        max_scan: The most pages that one scan reads (maxScan).
        decay: What remains of a page's utility after a join phase; 0 clears it, as in the paper.
        device: What the master is stored on; the file system by default.
        clock: Tells the time; the system clock by default.
        pages: Memory for cached pages; private to this operator by default. In a `PageFile`, the next
            operator with the same options finds the pages again, even in another process and for another
            version.
        shared_index: Use the index of `master`, mapped from its file and shared by all operators that do so,
            instead of a copy that is part of `memory`.

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
        Time O(n log n) for n rows of an online phase, plus one binary search for each row and page;
        O(p log p) for p pages of a join phase. Reads each page that a row matches at most once for that
        row, and fewer pages the more rows are pending together. Memory never exceeds `memory`.

    Reference:
        Bornea, Deligiannakis, Kotidis, Vassalos: Semi-Streamed Index Join for Near-Real Time
        Execution of ETL Transformations, ICDE 2011. Algorithms 1 and 2, sections IV and V.

        ========== ==================================== ============================
        symbol     meaning                              here
        ========== ==================================== ============================
        M          memory of the operator               memory
        CR         cached pages                         ResidentPages.cache
        IB, SB     input buffer, stream buffer          InputBuffer, StreamBuffer
        IB_thresh  rows that start an online phase      input_rows
        SB_thresh  rows that start a join phase         stream_rows
        II_p       pending rows that need page p        InvertedIndex
        P_u        pages to read                        `unread` in Phases.join_phase
        S, T       seconds to position, per page        Cost
        maxScan    longest scan                         max_scan
        ========== ==================================== ============================

    Departures:
        - Whether a page is cached is decided once, before anything is evicted, so that a page evicted within
          the phase is not joined twice (Algorithm 1, lines 3, 9 and 18).
        - When rows do not fit and no page is left to evict, a join phase is forced.
        - An update drops the cached pages that it replaced and loads the new index.
        - Utilities fade instead of being cleared, and are kept for pages outside the cache, too, which breaks
          ties.
        - The index knows the first and last key of every page: a key between two pages is known to be absent
          without a read; one inside a page costs a read, unless the filter excludes it.
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
        require_master(master)
        by = Deadline(deadline)
        thresholds = Thresholds(input_rows, stream_rows, max_scan)
        parts = make_parts(
            master,
            make_spec(master, on, how, columns, within, between, suffix),
            memory,
            decay=share("decay", decay),
            device=device,
            clock=clock,
            pages=pages,
            shared_index=shared_index,
            kind=type(self).__name__,
        )
        intake = Intake(parts.pages, parts.budget, parts.clock, due=by.due)
        self._phases = Phases(parts, intake, by, thresholds)
        self._has_deadline = by.is_set
        super().__init__(parts, intake, self._phases)

    def metrics(self) -> dict[str, Any]:
        """The metrics of every operator; also `deadlines_missed`, `online_phases` and `join_phases`."""
        return super().metrics()

    def paced(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterable[pa.RecordBatch | Pause | None]:
        """The items, with a None wherever rows must be answered before the next item arrives."""
        if not self._has_deadline or not isinstance(self.parts.clock, SystemClock):
            return items
        return arrivals(items, self._patience_seconds)

    def _patience_seconds(self) -> float | None:
        seconds = self._phases.seconds_to_act()
        return None if seconds > MOST_SECONDS else max(0.0, seconds)

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        clock, end = self.parts.clock, self.parts.clock.now() + seconds
        if not self._has_deadline:
            yield from self._answer_all()
        while (left := self._phases.seconds_to_act()) <= end - clock.now():
            clock.sleep(max(0.0, left))
            yield from self._phases.act()
        clock.sleep(max(0.0, end - clock.now()))
