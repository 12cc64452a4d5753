"""X-HYBRIDJOIN: HYBRIDJOIN with the hottest pages pinned in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.semistream.base.queued import check_pages
from adjoin.semistream.base.spec import On
from adjoin.semistream.hybridjoin.hybridjoin import HybridJoin, Loads
from adjoin.semistream.models.popularity import coarser
from adjoin.semistream.models.setting import CostConstants, Setting
from adjoin.semistream.models.xhybridjoin import tune
from adjoin.semistream.pages.read_ahead import read_in_waves

_ROWS_PER_PAGE = 4
"""So many stream rows for every page of the master are seen before sizes are chosen by them."""
_ROUNDS_BETWEEN = 8
_ALMOST_ALL = 0.9


class PinnedLoads(Loads):
    """Loads that keep the pages which the stream wants most.

    Attributes:
        chosen_pages: Pages to keep, if the caller chose; None finds the best number.
    """

    chosen_pages: int | None = None

    def start(self) -> None:
        """Keep as many pages as were asked for, or at first as many as a load has."""
        self._pin(self.chosen_pages or self._pages.split.wave_pages)
        self._pages.grow(max(0, self._pages.pinned_slots - self._pages.arena.capacity))
        self._rows_to_tune = _ROWS_PER_PAGE * len(self._pages.index)
        self._rows_to_fade = 0
        self._wants_head = False

    def _pin(self, wanted_pages: int) -> None:
        """Keep about so many pages: memory for them comes in whole grains."""
        grain = self._pages.arena.grain
        self._pages.pinned_slots = min(-(-wanted_pages // grain) * grain, self._most_pinned)

    @property
    def _most_pinned(self) -> int:
        split, grain = self._pages.split, self._pages.arena.grain
        most = min(split.stream_bytes // 2 // split.slot_cost, len(self._pages.index) + grain - 1)
        return most - most % grain

    def relieve(self) -> Iterator[pa.RecordBatch]:
        """One iteration: load what rows want around the page that the oldest of them wants."""
        pages = self._pages
        yield from super().relieve()
        pages.grow(max(0, pages.pinned_slots - pages.arena.capacity))
        if self.counts.rows_in >= self._rows_to_fade:
            pages.cache.fade()
            self._rows_to_fade = self.counts.rows_in + max(self.queue.rows, 1)
        if self.chosen_pages is None and self.counts.rows_in >= self._rows_to_tune and self.queue.rows:
            self._rows_to_tune = self.counts.rows_in + _ROUNDS_BETWEEN * self.queue.rows
            self._tune()
            self._wants_head = True
        if self._wants_head and pages.arena.capacity >= pages.pinned_slots:
            self._wants_head = False
            yield from self._read_head()

    def _tune(self) -> None:
        """Choose the number of pinned pages by what the stream has wanted, in the memory of a step."""
        pages, split = self._pages, self._pages.split
        wanted, together = coarser(pages.cache.utility(slice(None)), split.work_bytes)
        weights = without_chance(wanted / pages.cache.unit)
        if not weights.any():
            return
        cost = pages.reader.cost
        held = self._budget.account("stream") + self._budget.account("inverted")
        setting = Setting(
            self._room.bytes + (pages.pinned_slots + split.wave_pages) * split.slot_cost,
            len(pages.index),
            split.slot_cost,
            held / self.queue.rows,
        )
        if together * split.slot_cost > setting.memory_bytes / 2:
            return  # seen so coarsely, pages say nothing
        constants = CostConstants(cost.positioning_seconds, cost.block_seconds / BLOCK_BYTES)
        load = max(1, split.wave_pages // together)
        tuning = tune(setting, constants, weights, swappable_pages=load, pinned_rows_wait=False)
        self._pin(together * tuning.pinned_pages)

    def _read_head(self) -> Iterator[pa.RecordBatch]:
        """Where the first pages of the master are its hottest, read those that are missing in one go."""
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
        for wave in read_in_waves(pages, missing, len(missing)):
            order = np.argsort(wave.chosen)
            yield from self._join_pages(missing[wave.chosen[order]], wave.slots[order])
        self._account()


def without_chance(counts: Array) -> Array:
    """Counts of what the stream wanted, drawn to their mean as far as chance alone explains the differences.

    >>> without_chance(np.array([3.0, 5.0, 4.0]))
    array([4., 4., 4.])
    """
    mean, variance = counts.mean(), counts.var()
    real = max(variance - mean, 0.0)
    return np.asarray(mean + (counts - mean) * (real / variance if variance else 0.0))


class XHybridJoin(HybridJoin):
    """HYBRIDJOIN that answers rows of the hottest pages from memory.

    How it works: as `HybridJoin`, but some memory holds the pages that the stream wants most. A row is joined
    with them as it comes and waits for other pages only. Which pages these are is learned from the stream:
    of the pages of each load, those stay that are wanted more than one that is there. How many is chosen
    by the cost model, from what the stream has wanted so far, and again from time to time.

    Args:
        master: The master; see `QueuedJoin` for all other arguments.
        on: Key.
        how: "inner", "left", "semi" or "anti".
        memory: Budget of the whole operator.
        pinned_pages: Pages that stay in memory; the best number by default.
        **options: Those of `QueuedJoin`.

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
        - The master need not be sorted by frequency. Where it is, its first pages are read in one go.
        - New rows are joined with the pinned pages, once; the paper joins all waiting rows with them in
          every iteration.
        - As many rows are taken in as are there (line 4 waits for all), and an empty queue loads nothing.
        - Sizes are chosen by the corrected model: the paper's equation 9 is three to five times too low.
    """

    _stage: PinnedLoads

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        pinned_pages: int | None = None,
        **options: Any,
    ) -> None:
        check_pages("pinned_pages", pinned_pages)
        super().__init__(master, on, how, memory, **options)
        self._stage.chosen_pages = pinned_pages
        self._stage.start()

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        yield from super()._refresh(master)
        self._stage.start()

    @property
    def _most_input_bytes(self) -> int:
        split = self._pages.split
        return (split.stream_bytes - self._pages.pinned_slots * split.slot_cost) // 2

    def _make_stage(self) -> PinnedLoads:
        return PinnedLoads(self._spec, self._pages, self._budget, self._clock, self._room)
