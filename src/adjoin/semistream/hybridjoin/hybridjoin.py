"""HYBRIDJOIN: the oldest row decides which pages are read, and they answer all rows that want them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import JoinParts
from adjoin.semistream.base.lookup import Lookup, Missing, most_pairs, no_room
from adjoin.semistream.base.queue import QueueRoom, RowQueue
from adjoin.semistream.base.queued import QueuedJoin
from adjoin.semistream.hybridjoin.page_needs import PageNeeds
from adjoin.semistream.pages.read_ahead import read_in_waves


class Loads:
    """The algorithm of HYBRIDJOIN: rows fill a queue, and its oldest row decides which pages are loaded.

    Args:
        parts: What the join is made of.
        intake: The input buffer.
        room: The queue of pending rows, and how much memory it may have.
    """

    pair_cost = PageNeeds.pair_bytes + RowQueue.state_bytes

    def __init__(self, parts: JoinParts, intake: Intake, room: QueueRoom) -> None:
        self._spec = parts.spec
        self._pages = parts.pages
        self._budget = parts.budget
        self._answerer = parts.answerer
        self._intake = intake
        self._needs = PageNeeds()
        self.room = room
        self.queue = room.queue

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, against the master version that is in memory."""
        self._answerer.begin(stream)

    @property
    def rows_pending(self) -> int:
        """Rows in the queue."""
        return self.queue.rows

    def metrics(self) -> dict[str, Any]:
        """Iterations so far."""
        return {"iterations": self.room.iterations}

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._needs.check_invariants()
        self.room.check_invariants(self._notes_bytes)

    def pending(self) -> Iterator[pa.RecordBatch]:
        """Rows enter the queue as they come."""
        yield from self._intake.emptied(self.online_phase)

    def online_phase(self) -> Iterator[pa.RecordBatch]:
        """Join rows with the pages that are cached; rows that need others enter the queue."""
        with self._intake.taken() as arrived:
            lookup = Lookup(
                self._spec,
                self._pages,
                self._answerer,
                arrived,
                self._most_pairs,
                self._pages.split.wave_pages,
            )
            for needs in lookup.needs():
                missing = yield from lookup.join_cached(needs)
                if missing is not None:
                    yield from self._wait(missing)
            lookup.count_hits()
            yield from self._answerer.finish(lookup.rows, np.flatnonzero(~lookup.is_pending))

    @property
    def _most_pairs(self) -> int:
        return most_pairs(self._pages, self.pair_cost)

    def _wait(self, missing: Missing) -> Iterator[pa.RecordBatch]:
        """Put rows into the queue, after as many iterations as it takes to make room."""
        rows, pairs = missing.rows, missing.pairs
        more_bytes = rows.waiting_bytes + len(rows) * RowQueue.state_bytes + len(pairs) * self.pair_cost
        while not self.room.admit(more_bytes, self._close_up):
            if not self.rows_pending:
                wanted_bytes = rows.waiting_bytes + self.pair_cost * len(pairs)
                raise no_room(self._budget.total_bytes, wanted_bytes)
            yield from self.join_phase()
        self._needs.add(pairs + self.queue.all_rows)
        left = np.bincount(pairs & 0xFFFFFFFF, minlength=len(rows)).astype(np.int32)
        self.queue.add(rows, left)
        self._account()

    def _close_up(self) -> None:
        self._needs.renumber(self.queue.close_up())
        self._account()

    @property
    def _notes_bytes(self) -> int:
        return len(self._needs) * PageNeeds.pair_bytes

    def _account(self) -> None:
        self.room.account(self._notes_bytes)

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """One iteration: load what rows want around the page that the oldest of them wants."""
        self.room.iterations += 1
        pages = self._pages
        wanted = self._needs.wanted(self._pages_around(self._page_of_oldest()))
        slot = pages.cache.slot_of(wanted)
        cached = slot >= 0
        with pages.frozen():
            yield from self._join_pages(wanted[cached], slot[cached])
        yield from self._load(wanted[~cached], pages.split.wave_pages)
        self._account()

    def _load(self, unread: Array, max_scan: int) -> Iterator[pa.RecordBatch]:
        """Read pages, and join them with the pending rows that need them."""
        for wave in read_in_waves(self._pages, unread, max_scan):
            order = np.argsort(wave.chosen)
            yield from self._join_pages(unread[wave.chosen[order]], wave.slots[order])

    def _page_of_oldest(self) -> int:
        """The first page that the oldest row still needs."""
        number = self.queue.oldest(1)
        ((part, _, row),) = self.queue.parts_of(number)
        start, stop = self._pages.index.locate(part.rows.low[row], part.rows.high[row])
        pages = np.arange(start[0], stop[0])
        return int(pages[np.argmax(self._needs.has(int(number[0]), pages))])

    def _pages_around(self, page: int) -> Array:
        """The partition of the master that the page belongs to."""
        size = self._pages.split.wave_pages
        first = page - page % size
        return np.arange(first, min(first + size, len(self._pages.index)), dtype=np.int32)

    def _join_pages(self, pages: Array, slots: Array) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the pending rows that need them; rows that need no others leave."""
        while True:
            numbers, which = self._needs.take(pages, self._most_pairs)
            if len(numbers) == 0:
                return
            order = np.argsort(numbers, kind="stable")
            numbers, slot = numbers[order], slots[which[order]]
            for part, chosen, row in self.queue.parts_of(numbers):
                yield from self._answerer.matcher.join(part.rows, row, slot[chosen])
                np.subtract.at(part.left, row, 1)
                done = np.unique(row[part.left[row] == 0])
                if len(done):
                    oldest = self.queue.arrival_of(int(numbers[chosen][row == done[0]][0]))
                    yield from self._answerer.finish(part.rows, done, oldest)
                    self.queue.leave(part, done)


class HybridJoin(QueuedJoin):
    """Joins a stream with an indexed master: the oldest pending row decides what is read next.

    How it works:
        1. Rows fill the memory. A queue keeps them in the order of arrival, together with the pages that
           each row needs.
        2. Each iteration loads the part of the master in which the oldest row has its match, and joins it
           with all rows that need one of its pages. These leave, wherever in the queue they are.
        3. Rows from the stream take their place.

        So no page is read unless a row wants it, and a page that many rows want answers all of them at once.
        A page is not read again before as many rows as the memory holds have passed.

    Args:
        disk_pages: Pages that one load reads; by default where reading and memory are in balance.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.HybridJoin(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 7, 'pen'), (3, 5, 'pad')]

    Cost:
        At most one load per stream row and page it matches, and no more than MESHJOIN: between two loads of
        a page, at least as many rows are answered as the queue holds. Memory never exceeds `memory`.

    Reference:
        Naeem, Dobbie, Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 7(4), 2011. Figure 5
        (algorithm), section 4.4 (cost).

        ========== ==================================== ==========================
        symbol     meaning                              here
        ========== ==================================== ==========================
        v_P        disk buffer                          disk_pages
        H, h_S     pending rows, their number           RowQueue
        Q          queue of their keys                  numbers of rows in it
        w          rows answered by an iteration        rows_in / iterations
        ========== ==================================== ==========================

    Departures:
        - The queue is filled before the first load, and an empty queue loads nothing (line 2).
        - Rows are taken in as long as there is room, so that all matches of an iteration count, and a stream
          may bring fewer rows than an iteration has answered (lines 8 and 13).
        - A row without a match leaves when its pages have been seen.
        - A row with matches on several pages stays until all of them have been seen, so keys may repeat.
        - Of the part of the master that is loaded, pages that no row wants are skipped at both ends, and
          in between where that is cheaper than reading on.
    """

    algorithm = Loads
