"""X-HYBRIDJOIN: HYBRIDJOIN with the hottest pages pinned in memory."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.keys.predicate import Distance
from adjoin.master.device import Device
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import JoinParts
from adjoin.semistream.base.queue import QueueRoom
from adjoin.semistream.base.queued import check_pages
from adjoin.semistream.hybridjoin.hybridjoin import HybridJoin, Loads
from adjoin.semistream.models.popularity import coarser
from adjoin.semistream.models.setting import CostConstants, Setting
from adjoin.semistream.models.xhybridjoin import tune

_ROWS_PER_PAGE = 4
"""Stream rows, for every page of the master, that are seen before the number of pages is chosen."""
_ROUNDS_BETWEEN = 8
_ALMOST_ALL = 0.9


class PinnedLoads(Loads):
    """The algorithm of X-HYBRIDJOIN: loads that keep the pages which the stream wants most."""

    def __init__(self, parts: JoinParts, intake: Intake, room: QueueRoom) -> None:
        super().__init__(parts, intake, room)
        self._is_tuned = True
        self._rows_to_tune = 0
        self._rows_to_fade = 0
        self._wants_head = False

    def keep(self, pinned_pages: int | None) -> None:
        """Keep this many pages from now on; None starts with the pages of one load and tunes the number."""
        self._is_tuned = pinned_pages is None
        self._pin(pinned_pages or self._pages.split.wave_pages)
        self._grow()
        self._rows_to_tune = _ROWS_PER_PAGE * len(self._pages.index)
        self._rows_to_fade = 0
        self._wants_head = False

    def _pin(self, wanted_pages: int) -> None:
        """Keep about this many pages: memory for them comes in whole grains."""
        grain = self._pages.arena.grain
        self._pages.pinned_slots = min(-(-wanted_pages // grain) * grain, self._most_pinned)

    def _grow(self) -> None:
        self._pages.grow(max(0, self._pages.pinned_slots - self._pages.arena.capacity))

    @property
    def _most_pinned(self) -> int:
        split, grain = self._pages.split, self._pages.arena.grain
        most = min(split.stream_bytes // 2 // split.slot_cost, len(self._pages.index) + grain - 1)
        return most - most % grain

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """One iteration; from time to time, pages fade and their number is chosen again."""
        pages = self._pages
        yield from super().join_phase()
        self._grow()
        rows_in = self._intake.rows_in
        if rows_in >= self._rows_to_fade:
            pages.cache.fade()
            self._rows_to_fade = rows_in + max(self.queue.rows, 1)
        if self._is_tuned and rows_in >= self._rows_to_tune and self.queue.rows:
            self._rows_to_tune = rows_in + _ROUNDS_BETWEEN * self.queue.rows
            self._tune()
            self._wants_head = True
        if self._wants_head and pages.arena.capacity >= pages.pinned_slots:
            self._wants_head = False
            yield from self._read_head()

    def _tune(self) -> None:
        """Choose the number of pinned pages from what the stream has wanted, in the memory of a step."""
        pages, split = self._pages, self._pages.split
        wanted, together = coarser(pages.cache.utility(slice(None)), split.work_bytes)
        weights = without_chance(wanted / pages.cache.unit)
        if not weights.any():
            return
        cost = pages.reader.cost
        setting = Setting(
            self.room.bytes + (pages.pinned_slots + split.wave_pages) * split.slot_cost,
            len(pages.index),
            split.slot_cost,
            self.room.row_bytes,
        )
        if together * split.slot_cost > setting.memory_bytes / 2:
            return  # pages are seen too coarsely to tell
        constants = CostConstants(cost.positioning_seconds, cost.block_seconds / BLOCK_BYTES)
        load = max(1, split.wave_pages // together)
        tuning = tune(setting, constants, weights, swappable_pages=load, pinned_rows_wait=False)
        self._pin(together * tuning.pinned_pages)

    def _read_head(self) -> Iterator[pa.RecordBatch]:
        """If the first pages of the master are its hottest, read those that are not cached in one go."""
        pages = self._pages
        head = np.arange(min(pages.pinned_slots, len(pages.index)), dtype=np.int32)
        utility = pages.cache.utility(slice(None))
        if len(head) == 0 or utility.nbytes > pages.split.work_bytes:
            return
        others = len(utility) - len(head)
        hottest = np.partition(utility, others)[others:] if others else utility
        if utility[head].sum() < _ALMOST_ALL * hottest.sum():
            return
        missing = head[pages.cache.slot_of(head) < 0]
        yield from self._load(missing, len(missing))
        self._account()


def without_chance(counts: Array) -> Array:
    """What the stream wanted, with the differences that chance alone explains taken out.

    >>> without_chance(np.array([3.0, 5.0, 4.0]))
    array([4., 4., 4.])
    """
    mean, variance = counts.mean(), counts.var()
    real = max(variance - mean, 0.0)
    return np.asarray(mean + (counts - mean) * (real / variance if variance else 0.0))


class XHybridJoin(HybridJoin):
    """HYBRIDJOIN that answers rows of the hottest pages from memory.

    How it works: as `HybridJoin`, but some memory holds the pages that the stream wants most. A row is joined
    with them as it arrives and waits for other pages only. Which pages these are is learned from the stream:
    a page of a load stays if it is wanted more than one of those that are kept. How many are kept is chosen
    by the cost model from what the stream has wanted so far, and chosen again from time to time.

    Args:
        pinned_pages: Pages that stay in memory; the best number by default.
        disk_pages: Pages that one load reads; by default where reading and memory are in balance.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.XHybridJoin(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 7, 'pen'), (3, 5, 'pad')]

    Cost:
        As `HybridJoin` for rows that no pinned page answers.

    Reference:
        Naeem, Dobbie, Weber: Efficient Processing of Streaming Updates with Archived Master Data in
        Near-Real-Time Data Warehousing, Knowledge and Information Systems, 2013. Algorithm 1, section 6.

        ========== ==================================== ==========================
        symbol     meaning                              here
        ========== ==================================== ==========================
        k          swappable pages                      disk_pages
        l          pinned (non-swappable) pages         pinned_pages
        ========== ==================================== ==========================

    Departures:
        - The master need not be sorted by frequency. If it is, its first pages are read in one go.
        - New rows are joined with the pinned pages once; the paper joins all pending rows with them in every
          iteration.
        - All rows that are available are taken in (line 4 waits for more), and an empty queue loads nothing.
        - Sizes are chosen by the corrected model: the paper's equation 9 is three to five times too low.
    """

    algorithm = PinnedLoads
    _algorithm: PinnedLoads

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        pinned_pages: int | None = None,
        columns: Sequence[str] | None = None,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_master",
        disk_pages: int | None = None,
        device: Device | None = None,
        clock: Clock | None = None,
        pages: PageMemory | None = None,
        shared_index: bool = False,
    ) -> None:
        check_pages("pinned_pages", pinned_pages)
        super().__init__(
            master,
            on,
            how,
            memory,
            columns=columns,
            within=within,
            between=between,
            suffix=suffix,
            disk_pages=disk_pages,
            device=device,
            clock=clock,
            pages=pages,
            shared_index=shared_index,
        )
        self._pinned_pages = pinned_pages
        self._algorithm.keep(pinned_pages)

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        yield from super()._refresh(master)
        self._algorithm.keep(self._pinned_pages)
