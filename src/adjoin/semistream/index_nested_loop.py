"""The index nested loop join: every stream row reads its own pages."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import JoinParts
from adjoin.semistream.base.lookup import Lookup, most_pairs
from adjoin.semistream.base.queue import QueueRoom
from adjoin.semistream.base.queued import QueuedJoin
from adjoin.semistream.pages.read_ahead import read_each

_PAIR_BYTES = 8


class Probes:
    """The algorithm of the index nested loop join: reads the pages of every row at once, so that none waits.

    Args:
        parts: What the join is made of.
        intake: The input buffer.
        room: The queue of pending rows, which stays empty.
    """

    rows_pending = 0

    def __init__(self, parts: JoinParts, intake: Intake, room: QueueRoom) -> None:
        self._spec = parts.spec
        self._pages = parts.pages
        self._answerer = parts.answerer
        self._intake = intake
        self.room = room

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, against the master version that is in memory."""
        self._answerer.begin(stream)

    def metrics(self) -> dict[str, Any]:
        """Pages read so far, one for each iteration."""
        return {"iterations": self.room.iterations}

    def check_invariants(self) -> None:
        """Nothing is kept that could contradict itself."""

    def pending(self) -> Iterator[pa.RecordBatch]:
        """Rows are answered as they come."""
        yield from self._intake.emptied(self.online_phase)

    def online_phase(self) -> Iterator[pa.RecordBatch]:
        """Read the pages of rows, and answer the rows."""
        pages, answerer = self._pages, self._answerer
        with self._intake.taken() as arrived:
            pairs = most_pairs(pages, _PAIR_BYTES)
            lookup = Lookup(self._spec, pages, answerer, arrived, pairs, pages.split.wave_pages)
            for needs in lookup.needs():
                if needs.is_swept:
                    yield from lookup.join_cached(needs)
                    continue
                self.room.iterations += len(needs.page)
                lookup.is_pending[needs.row] = True
                for wave in read_each(pages, needs.page):
                    yield from answerer.matcher.join(lookup.rows, needs.row[wave.chosen], wave.slots)
            lookup.count_hits()
            yield from answerer.finish(lookup.rows, np.arange(len(lookup.rows)))

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """No row waits."""
        return iter(())


class IndexNestedLoopJoin(QueuedJoin):
    """Joins a stream with an indexed master, row by row: what all other joins are measured against.

    How it works: every row finds its pages in the index and reads them, even if another row has just read the
    same page. Several reads are in flight at a time; nothing is cached.

    Args:
        disk_pages: Pages in flight at a time; by default where reading and memory are in balance.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.IndexNestedLoopJoin(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 7, 'pen'), (3, 5, 'pad')]

    Cost:
        One positioning and one page for every stream row and page it matches. Memory for index, work and
        the pages in flight; more memory is not used.

    Reference:
        Naeem, Dobbie, Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 7(4), 2011, section 3.
    """

    algorithm = Probes
