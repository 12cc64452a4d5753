"""MESHJOIN: the master is read over and over, and every row stays for one round."""

from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from adjoin.kernels.search import expand
from adjoin.kernels.types import Array
from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import JoinParts
from adjoin.semistream.base.lookup import no_room
from adjoin.semistream.base.queue import QueueRoom, RowQueue
from adjoin.semistream.base.queued import QueueAlgorithm, QueuedJoin
from adjoin.semistream.meshjoin.keyed_rows import KeyedRows
from adjoin.semistream.pages.read_ahead import read_in_waves

_ROW_COST = KeyedRows.row_bytes + RowQueue.state_bytes


class Scan:
    """The algorithm of MESHJOIN: read the master in portions, cyclically, each joined with all pending rows.

    Args:
        parts: What the join is made of.
        intake: The input buffer.
        room: The queue of pending rows, and how much memory it may have.
        is_even: Rows enter evenly, as many before each portion as leave after it.
    """

    def __init__(self, parts: JoinParts, intake: Intake, room: QueueRoom, *, is_even: bool = True) -> None:
        self._pages = parts.pages
        self._budget = parts.budget
        self._answerer = parts.answerer
        self._intake = intake
        self._keys = KeyedRows()
        self._is_even = is_even
        self._chunks: deque[list[int]] = deque()
        self.room = room
        self.queue = room.queue
        self._lay_out()

    def _lay_out(self) -> None:
        """Cut the pages into portions, in disk order."""
        index = self._pages.index
        positions = [np.empty(0, np.int64), *map(self._pages.reader.position, index.parts())]
        self._order = np.argsort(np.concatenate(positions)).astype(np.int32)
        size = self._pages.split.wave_pages
        if self._is_even and len(index):
            size = -(-len(index) // -(-len(index) // size))
        self._portion_pages = size
        self._portions_per_round = max(1, -(-len(index) // size))
        self._position = 0

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, against the master version that is in memory."""
        self._answerer.begin(stream)
        self._lay_out()

    @property
    def rows_pending(self) -> int:
        """Rows in the queue."""
        return self.queue.rows

    def metrics(self) -> dict[str, Any]:
        """Iterations so far."""
        return {"iterations": self.room.iterations}

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._keys.check_invariants()
        assert sum(rows for _, rows in self._chunks) == self.queue.rows
        self.room.check_invariants(self._notes_bytes)

    def pending(self) -> Iterator[pa.RecordBatch]:
        """Rows enter the queue as they come."""
        yield from self._intake.emptied(self.online_phase)

    def online_phase(self) -> Iterator[pa.RecordBatch]:
        """Rows that can match something wait for the master to pass by; the others are answered."""
        with self._intake.taken() as arrived:
            rows, valid = self._answerer.rows_of(arrived)
            possible = rows.low <= rows.high
            if valid is not None:
                possible &= valid
            chosen = np.flatnonzero(possible)
            while len(chosen):
                waiting = rows.select(chosen[: self._rows_before_next_portion(rows)])
                if len(waiting) and self._enter(waiting):
                    chosen = chosen[len(waiting) :]
                elif self.queue.rows:
                    yield from self.join_phase()
                else:
                    wanted_bytes = waiting.waiting_bytes + _ROW_COST * len(waiting)
                    raise no_room(self._budget.total_bytes, wanted_bytes)
            impossible = np.flatnonzero(~possible)
            self._answerer.counts.cache_hits += len(impossible)
            yield from self._answerer.finish(rows, impossible)

    def _enter(self, rows: Rows) -> bool:
        """Put rows into the queue, in the chunk of those that enter before the next portion."""
        if not self.room.admit(rows.waiting_bytes + len(rows) * _ROW_COST, self._close_up):
            return False
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
        """Rows that have already entered before the next portion."""
        return self._chunks[-1][1] if self._chunks and self._chunks[-1][0] == self._position else 0

    def _rows_before_next_portion(self, rows: Rows) -> int:
        """How many more rows like these may enter before the next portion is read."""
        if not self._is_even:
            return len(rows)
        row_bytes = rows.waiting_bytes / len(rows) + _ROW_COST
        share = max(1, int(self.room.bytes / row_bytes / self._portions_per_round))
        return max(0, share - self._entered_rows)

    def _close_up(self) -> None:
        least = int(self.queue.oldest(1)[0])
        self._keys.renumber(self.queue.close_up(), least)
        self._account()

    @property
    def _notes_bytes(self) -> int:
        return len(self._keys) * KeyedRows.row_bytes

    def _account(self) -> None:
        self.room.account(self._notes_bytes)

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """One iteration: read and join the next portion; rows that have seen all portions leave."""
        self.room.iterations += 1
        first = self._position * self._portion_pages
        portion = self._order[first : first + self._portion_pages]
        for wave in read_in_waves(self._pages, portion, self._portion_pages):
            yield from self._join_pages(wave.slots)
        self._position = (self._position + 1) % self._portions_per_round
        while self._chunks and self._chunks[0][0] == self._position:
            yield from self._expire(self._chunks[0][1])
            self._chunks.popleft()
        if not self.queue.rows:
            self._keys.clear()
        self._account()

    def _join_pages(self, slots: Array) -> Iterator[pa.RecordBatch]:
        """Join pages in memory with the rows whose keys lie within the page."""
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
                yield from self._answerer.matcher.join(part.rows, row, slot[chosen])

    def _expire(self, rows: int) -> Iterator[pa.RecordBatch]:
        numbers = self.queue.oldest(rows)
        arrived = self.queue.arrival_of(int(numbers[0]))
        for part, _, row in list(self.queue.parts_of(numbers)):
            yield from self._answerer.finish(part.rows, row, arrived)
            self.queue.leave(part, row)


class MeshJoin(QueuedJoin):
    """Joins a stream with a master that is read from beginning to end, over and over.

    How it works:
        1. Before a portion of the master is read, as many rows enter as left after the previous one.
        2. The portion is joined with all pending rows.
        3. The rows that have seen every portion since they entered leave.

        Neither an index nor any order of the master is needed, and the reads do not depend on what the
        stream asks for: the rate depends only on the memory and the size of the master.

    Args:
        disk_pages: Pages of a portion; by default where reading and memory are in balance.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`. The index is never part of `memory`, whatever `shared_index` says.

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
        Reads the whole master once for as many rows as memory holds. A row is pending for at most one round.
        Memory never exceeds `memory`.

    Reference:
        Polyzotis, Skiadopoulos, Vassiliadis, Simitsis, Frantzell: Meshing Streaming Updates with Persistent
        Data in an Active Data Warehouse, IEEE TKDE 20(7), 2008.

    Departures:
        - Pending rows are found by the range of keys on a page instead of a hash table, which allows range
          joins.
        - Chunks of rows have the size that the stream gives them, and leave as chunks.
        - Without input, the scan continues until every row is answered.
    """

    algorithm: ClassVar[QueueAlgorithm] = Scan
    needs_index = False
