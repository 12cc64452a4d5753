"""HYBRIDJOIN: the oldest row decides which pages are read, and they answer all rows that want them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.memory.budget import MemoryBudget
from adjoin.operators.clock import Clock
from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.lookup import Lookup
from adjoin.semistream.base.queue import RowQueue
from adjoin.semistream.base.queued import LoadCounts, QueuedJoin, QueueRoom
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.hybridjoin.page_needs import PageNeeds
from adjoin.semistream.pages.read_ahead import read_in_waves
from adjoin.semistream.pages.resident import Residence


class Loads(Lookup):
    """Keeps rows in a queue that fills the memory, and loads the pages that its oldest row wants.

    Args:
        spec: The join.
        pages: What of the master is in memory.
        budget: The operator's budget; this class keeps its accounts "stream" and "inverted".
        clock: Tells the time.
        room: How much memory rows may have.

    Attributes:
        queue: The rows that wait.
    """

    pair_cost = PageNeeds.pair_bytes + RowQueue.state_bytes

    def __init__(
        self, spec: JoinSpec, pages: Residence, budget: MemoryBudget, clock: Clock, room: QueueRoom
    ) -> None:
        super().__init__(spec, pages, budget, clock)
        self.counts: LoadCounts = LoadCounts()
        self.queue = RowQueue()
        self._room = room
        self._needs = PageNeeds()

    @property
    def rows_waiting(self) -> int:
        """Rows that wait now."""
        return self.queue.rows

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self.queue.check_invariants()
        self._needs.check_invariants()
        assert self._budget.account("stream") >= self.queue.held_bytes
        assert self._budget.account("inverted") >= len(self._needs) * PageNeeds.pair_bytes

    def _hold(self, rows: Rows, pairs: Array) -> bool:
        more_bytes = rows.waiting_bytes + len(rows) * RowQueue.state_bytes + len(pairs) * self.pair_cost
        if not self._room.has(more_bytes) and self.queue.is_loose:
            self._needs.renumber(self.queue.close_up())
            self._account()
        if not self._room.has(more_bytes) and (self.queue.rows or not self._pages.make_room(more_bytes)):
            return False
        self._budget.add("stream", more_bytes)
        self._needs.add(pairs + self.queue.all_rows)
        left = np.bincount(pairs & 0xFFFFFFFF, minlength=len(rows)).astype(np.int32)
        self.queue.add(rows, left)
        self._account()
        return True

    def _account(self) -> None:
        self._room.account(self.queue.held_bytes, len(self._needs) * PageNeeds.pair_bytes)

    def relieve(self) -> Iterator[pa.RecordBatch]:
        """One iteration: load what rows want around the page that the oldest of them wants."""
        self.counts.iterations += 1
        pages = self._pages
        wanted = self._needs.wanted(self._pages_around(self._page_of_oldest()))
        slot = pages.cache.slot_of(wanted)
        cached = slot >= 0
        with pages.frozen():
            yield from self._join_pages(wanted[cached], slot[cached])
        unread = wanted[~cached]
        for wave in read_in_waves(pages, unread, self.most_scan_pages):
            order = np.argsort(wave.chosen)
            yield from self._join_pages(unread[wave.chosen[order]], wave.slots[order])
        self._account()

    def _page_of_oldest(self) -> int:
        """The first page that the oldest row still waits for."""
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
        """Join pages in memory with the rows that wait for them; rows that wait for nothing else leave."""
        while True:
            numbers, which = self._needs.take(pages, self._limit_needs)
            if len(numbers) == 0:
                return
            order = np.argsort(numbers, kind="stable")
            numbers, slot = numbers[order], slots[which[order]]
            for part, chosen, row in self.queue.parts_of(numbers):
                yield from self._matcher.join(part.rows, row, slot[chosen])
                np.subtract.at(part.left, row, 1)
                done = np.unique(row[part.left[row] == 0])
                if len(done):
                    oldest = self.queue.arrival_of(int(numbers[chosen][row == done[0]][0]))
                    yield from self._answer(part.rows, done, oldest)
                    self.queue.leave(part, done)


class HybridJoin(QueuedJoin):
    """Joins a stream with an indexed master: the oldest waiting row decides what is read next.

    How it works:
        1. Rows fill the memory. A queue keeps them in the order in which they came; for every page it is
           known which rows wait for it.
        2. Each iteration loads the part of the master in which the oldest row has its match, and joins it
           with all rows that wait for one of its pages. They leave, wherever in the queue they are.
        3. Rows from the stream take their place.

        So no page is read that no row wants, and pages that many rows want answer many at once. A page is
        not read again before as many rows as the memory holds have passed.

    See `QueuedJoin` for the arguments.

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
        At most one load per stream row and page it matches, and not more than MESHJOIN: at least as many
        rows as wait are answered between two loads of the same page. Memory never more than `memory`.

    Reference:
        Naeem, Dobbie, Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 7(4), 2011. Figure 5
        (algorithm), section 4.4 (cost).

        ========== ==================================== ==========================
        symbol     meaning                              here
        ========== ==================================== ==========================
        v_P        disk buffer                          disk_pages
        H, h_S     waiting rows, their number           Loads.queue
        Q          queue of their keys                  numbers of rows in it
        w          rows answered by an iteration        rows_in / iterations
        ========== ==================================== ==========================

    Departures:
        - The queue is filled before the first load, and an empty one loads nothing (line 2).
        - As many rows are taken in as there is room for, so all matches of an iteration count, and so does
          a stream that has fewer rows (lines 8 and 13).
        - A row without a match leaves when its pages have been seen.
        - A row with matches on several pages stays until all of them have been seen, so keys may repeat.
        - Of the part of the master that is loaded, pages that no row wants are skipped at its ends, and
          wherever that is cheaper than reading on.
    """

    _stage: Loads

    def _make_stage(self) -> Loads:
        return Loads(self._spec, self._pages, self._budget, self._clock, self._room)
