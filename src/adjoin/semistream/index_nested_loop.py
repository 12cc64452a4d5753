"""The index nested loop join: every stream row reads its own pages."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.lookup import Lookup
from adjoin.semistream.base.queued import LoadCounts, QueuedJoin
from adjoin.semistream.pages.read_ahead import read_each


class Probes(Lookup):
    """Reads the pages of every row at once, so that no row waits."""

    pair_cost = 8
    rows_waiting = 0

    counts: LoadCounts

    def _look_up(self, rows: Rows, row: Array, page: Array, waits: Array) -> Iterator[pa.RecordBatch]:
        self.counts.iterations += len(page)
        waits[row] = True
        for wave in read_each(self._pages, page):
            yield from self._matcher.join(rows, row[wave.chosen], wave.slots)

    def _answered(self, waits: Array) -> Array:
        return np.arange(len(waits))

    def _hold(self, rows: Rows, pairs: Array) -> bool:  # noqa: ARG002
        raise AssertionError("no row waits")

    def relieve(self) -> Iterator[pa.RecordBatch]:
        """Nothing waits."""
        return iter(())

    def check_invariants(self) -> None:
        """Nothing is kept that could contradict itself."""


class IndexNestedLoopJoin(QueuedJoin):
    """Joins a stream with an indexed master, row by row: what all other joins are measured against.

    How it works: every row finds its pages in the index and reads them, whether or not another row has read
    the same page a moment before. Several reads are under way at a time; nothing is cached.

    See `QueuedJoin` for the arguments; `disk_pages` is the number of pages under way at a time.

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
        the pages under way; more memory is not used.

    Reference:
        Naeem, Dobbie, Weber: HYBRIDJOIN for Near-Real-Time Data Warehousing, IJDWM 7(4), 2011, section 3.
    """

    def _make_stage(self) -> Probes:
        stage = Probes(self._spec, self._pages, self._budget, self._clock)
        stage.counts = LoadCounts()
        return stage
