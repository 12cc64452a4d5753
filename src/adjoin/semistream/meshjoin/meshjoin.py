"""MESHJOIN: the master passes by in a circle, and every row stays for one round."""

from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.search import expand
from adjoin.kernels.types import Array
from adjoin.master.master import Master
from adjoin.memory.budget import MemoryBudget
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock
from adjoin.semistream.base.answering import Answering
from adjoin.semistream.base.buffers import Arrivals, Rows
from adjoin.semistream.base.queue import RowQueue
from adjoin.semistream.base.queued import LoadCounts, QueuedJoin, QueueRoom
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.meshjoin.keyed_rows import KeyedRows
from adjoin.semistream.pages.read_ahead import read_in_waves
from adjoin.semistream.pages.resident import Residence

_ROW_COST = KeyedRows.row_bytes + RowQueue.state_bytes


class Scan(Answering):
    """Reads the master portion by portion in a circle, and joins every portion with all rows that wait.

    Args:
        spec: The join.
        pages: What of the master is in memory.
        budget: The operator's budget; this class keeps its accounts "stream" and "inverted".
        clock: Tells the time.
        room: How much memory rows may have.
        is_even: Rows are taken in evenly, as many before each portion as leave after it.

    Attributes:
        queue: The rows that wait.
    """

    def __init__(
        self,
        spec: JoinSpec,
        pages: Residence,
        budget: MemoryBudget,
        clock: Clock,
        room: QueueRoom,
        *,
        is_even: bool,
    ) -> None:
        super().__init__(spec, pages, budget, clock)
        self.counts: LoadCounts = LoadCounts()
        self.queue = RowQueue()
        self._keys = KeyedRows()
        self._room = room
        self._is_even = is_even
        self._chunks: deque[list[int]] = deque()
        self._lay_out()

    def _lay_out(self) -> None:
        """The order in which pages lie on the disk, cut into portions."""
        index = self._pages.index
        positions = [np.empty(0, np.int64), *map(self._pages.reader.position, index.parts())]
        self._order = np.argsort(np.concatenate(positions)).astype(np.int32)
        size = self._pages.split.wave_pages
        if self._is_even and len(index):
            size = -(-len(index) // -(-len(index) // size))
        self._portion_pages = size
        self._portions = max(1, -(-len(index) // size))
        self._position = 0

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, on the master version that is in memory."""
        super().begin(stream)
        self._lay_out()

    @property
    def rows_waiting(self) -> int:
        """Rows that wait now."""
        return self.queue.rows

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self.queue.check_invariants()
        self._keys.check_invariants()
        assert sum(rows for _, rows in self._chunks) == self.queue.rows
        assert self._budget.account("stream") >= self.queue.held_bytes
        assert self._budget.account("inverted") >= len(self._keys) * KeyedRows.row_bytes

    def online(self, taken: Arrivals) -> Iterator[pa.RecordBatch]:
        """Rows that can match something wait for the master to pass by; the others are answered."""
        rows, valid = self._rows_of(taken)
        possible = rows.low <= rows.high
        if valid is not None:
            possible &= valid
        chosen = np.flatnonzero(possible)
        while len(chosen):
            waiting = rows.select(chosen[: self._rows_before_next_portion(rows)])
            if len(waiting) and self._hold(waiting):
                chosen = chosen[len(waiting) :]
            elif self.queue.rows:
                yield from self.relieve()
            else:
                raise self._no_room(waiting.waiting_bytes + _ROW_COST * len(waiting))
        impossible = np.flatnonzero(~possible)
        self.counts.cache_hits += len(impossible)
        yield from self._answer(rows, impossible)

    def _hold(self, rows: Rows) -> bool:
        more_bytes = rows.waiting_bytes + len(rows) * _ROW_COST
        if not self._room.has(more_bytes) and self.queue.is_loose:
            self._close_up()
        if not self._room.has(more_bytes) and (self.queue.rows or not self._pages.make_room(more_bytes)):
            return False
        self._budget.add("stream", more_bytes)
        self._keys.add(rows.low, rows.high, self.queue.all_rows)
        self.queue.add(rows, np.ones(len(rows), np.int32))
        if self._entered_rows:
            self._chunks[-1][1] += len(rows)
        else:
            self._chunks.append([self._position, len(rows)])
        self._account()
        return True

    @property
    def _entered_rows(self) -> int:
        """Rows that entered before the next portion already."""
        return self._chunks[-1][1] if self._chunks and self._chunks[-1][0] == self._position else 0

    def _rows_before_next_portion(self, rows: Rows) -> int:
        """How many more rows like these may enter before the next portion is read."""
        if not self._is_even:
            return len(rows)
        row_bytes = rows.waiting_bytes / len(rows) + _ROW_COST
        share = max(1, int(self._room.bytes / row_bytes / self._portions))
        return max(0, share - self._entered_rows)

    def _close_up(self) -> None:
        least = int(self.queue.oldest(1)[0])
        self._keys.renumber(self.queue.close_up(), least)
        self._account()

    def _account(self) -> None:
        self._room.account(self.queue.held_bytes, len(self._keys) * KeyedRows.row_bytes)

    def relieve(self) -> Iterator[pa.RecordBatch]:
        """One iteration: read the next portion, join it, and let the rows go that have seen all portions."""
        self.counts.iterations += 1
        first = self._position * self._portion_pages
        portion = self._order[first : first + self._portion_pages]
        for wave in read_in_waves(self._pages, portion, self._portion_pages):
            yield from self._join_pages(wave.slots)
        self._position = (self._position + 1) % self._portions
        while self._chunks and self._chunks[0][0] == self._position:
            yield from self._expire(self._chunks[0][1])
            self._chunks.popleft()
        if not self.queue.rows:
            self._keys.clear()
        self._account()

    def _join_pages(self, slots: Array) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the rows whose keys lie between those of the page."""
        first, last = self._pages.key_range(slots)
        begin, count = self._keys.between(first, last)
        oldest = int(self.queue.oldest(1)[0])
        while True:
            some = np.diff(np.minimum(np.cumsum(count), self._pages.split.step_rows), prepend=0)
            which, at = expand(begin, some, int(some.sum()))
            if len(at) == 0:
                return
            begin, count = begin + some, count - some
            numbers = self._keys.numbers[at]
            here = numbers >= oldest
            order = np.argsort(numbers[here], kind="stable")
            numbers, slot = numbers[here][order], slots[which[here][order]]
            for part, chosen, row in self.queue.parts_of(numbers):
                yield from self._matcher.join(part.rows, row, slot[chosen])

    def _expire(self, rows: int) -> Iterator[pa.RecordBatch]:
        numbers = self.queue.oldest(rows)
        arrived = self.queue.arrival_of(int(numbers[0]))
        for part, _, row in list(self.queue.parts_of(numbers)):
            yield from self._answer(part.rows, row, arrived)
            self.queue.leave(part, row)


class MeshJoin(QueuedJoin):
    """Joins a stream with a master that is read from beginning to end, again and again.

    How it works:
        1. Before each portion of the master is read, as many rows come in as left after the one before.
        2. The portion is joined with all rows that wait.
        3. The rows that have seen every portion since they came leave.

        Neither an index nor any order of the master is needed, and the reads are the same whatever the
        stream asks for: the rate depends on memory and size of the master alone.

    See `QueuedJoin` for the arguments; `disk_pages` are the pages of a portion.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.MeshJoin(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 7, 'pen'), (3, 5, 'pad')]

    Cost:
        Reads the whole master once for every memory full of rows. A row waits for one round at most.
        Memory never more than `memory`.

    Reference:
        Polyzotis, Skiadopoulos, Vassiliadis, Simitsis, Frantzell: Meshing Streaming Updates with Persistent
        Data in an Active Data Warehouse, IEEE TKDE 20(7), 2008.

    Departures:
        - Waiting rows are found by the range of keys on a page, not by a hash table; ranges can be joined.
        - Chunks of rows have the size the stream gives them, and leave as chunks.
        - With nothing coming in the scan goes on until every row is answered.
    """

    _is_even = True

    @classmethod
    def least_memory(
        cls,
        master: Master,
        *,
        pages: type[PageMemory] = PageMemory,
        shared_index: bool = True,  # noqa: ARG003
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        return super().least_memory(master, pages=pages, shared_index=True)

    def _shares_index(self, asked: bool) -> bool:  # noqa: ARG002
        """Of the index only the places of pages are looked at: it need not be in memory."""
        return True

    def _make_stage(self) -> Scan:
        return Scan(self._spec, self._pages, self._budget, self._clock, self._room, is_even=self._is_even)
