"""One version of the master as an operator holds it: index, filter, and the pages in memory."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from adjoin.kernels.types import Array
from adjoin.master.device import Device
from adjoin.master.filter import KeyFilter
from adjoin.master.index import PageIndex
from adjoin.master.master import Master
from adjoin.master.reader import PageReader, ReadCounts
from adjoin.parts.arena import BLOCK_BYTES, Arena
from adjoin.parts.budget import MemoryBudget
from adjoin.parts.columns import Column, PageColumns, columns_of
from adjoin.parts.pagecache import ABSENT, CachedPages, PageCache
from adjoin.semistream.split import Demand, least_bytes, split_memory

_TYPICAL = 0.99
"""Slots are made for so large a share of the pages; larger pages go through the oversize region."""


class Residence:
    """What of a master version is in memory, within a budget.

    The cache takes all memory that nobody else needs and gives it back on request, page by page,
    the least useful first.

    Args:
        master: The version.
        names: Master columns whose values are needed.
        budget: The operator's budget; this class keeps its accounts "index", "pages" and "work".
        device: What the master lies on.
        decay: See `PageCache`.
    """

    def __init__(
        self, master: Master, names: Collection[str], budget: MemoryBudget, device: Device, decay: float
    ) -> None:
        self._budget = budget
        self._device = device
        self._decay = decay
        self._names = tuple(names)
        self._columns_by_name: dict[str, Column] = {}
        self._is_frozen = False
        self._load(master)
        self._settle()

    def column(self, name: str) -> Column:
        return self._columns_by_name[name]

    @property
    def encoded_key(self) -> Column:
        return self._columns_by_name[self.master.key_column]

    @property
    def counts(self) -> ReadCounts:
        return self.reader.counts

    def is_oversize(self, pages: Array) -> Array:
        return self.index.blocks[pages] * BLOCK_BYTES > self.split.slot_bytes

    def make_room(self, wanted_bytes: int) -> bool:
        """Free so many bytes of the budget, evicting pages if need be; False if it cannot be done."""
        lacking = wanted_bytes - self._budget.free_bytes
        if lacking <= 0:
            return True
        arena = self.arena
        slots = -(-lacking // (self.split.slot_cost * arena.grain)) * arena.grain
        if self._is_frozen or min(slots, arena.capacity) * self.split.slot_cost < lacking:
            return False
        self.cache.shrink(min(slots, arena.capacity))
        self._account_pages()
        return True

    def spread(self) -> None:
        """Let the cache have all memory that is free now."""
        self.arena.grow(self._budget.free_bytes // self.split.slot_cost)
        self._account_pages()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Meanwhile no page moves or goes: somebody works on the slots as they are."""
        self._is_frozen = True
        try:
            yield
        finally:
            self._is_frozen = False

    def replace(self, master: Master) -> None:
        """Go on with another version: pages that both have stay in memory."""
        growth = _index_bytes_bound(master) - self._budget.account("index")
        has_room = self.make_room(growth)
        cached = self.cache.snapshot()
        place = _Place(
            self.index.first[cached.pages],
            _renumber(self.master, master)[self.index.file[cached.pages]],
            self.index.block[cached.pages],
        )
        counts = self.reader.counts
        self.reader.close()
        self.master.close()
        self._drop_index()
        self._load(master)
        if has_room and self._pages_fit():
            self._carry_over(cached, place)
            self._open_reader()
        else:
            self._settle()
        self.reader.counts = counts

    def close(self) -> None:
        self.reader.close()
        self.master.close()
        self.arena.close()

    def check_invariants(self) -> None:
        self._budget.check_invariants()
        self.arena.check_invariants()
        self.cache.check_invariants()

    def _load(self, master: Master) -> None:
        self.master = master.at(master.version)  # a pin of its own, whatever the caller does with his
        self.index: PageIndex = self.master.load_index()
        self.filter = self.master.load_filter()

    def _drop_index(self) -> None:
        self.index = PageIndex.empty()
        self.filter = None
        self.cache = PageCache(self.arena, self.columns, 0, self._decay)

    def _settle(self) -> None:
        """Split the budget for this version and make an empty arena."""
        self._columns_by_name = dict(
            zip(self.master.stored_schema.names, columns_of(self.master.stored_schema), strict=True)
        )
        wanted = [self._columns_by_name[name] for name in {*self._names, self.master.key_column}]
        demand = _demand(self.index, self.filter, self.master.page_bytes, wanted)
        self.split = split_memory(self._budget.total_bytes, demand)
        split = self.split
        self._budget.set("index", 0)
        self._budget.set("pages", 0)
        self._budget.set("work", split.work_bytes)
        self._budget.set("index", _index_bytes(self.index, self.filter))
        self.arena = Arena(
            split.landing_slots, split.slots, split.slot_bytes, split.oversize_bytes, split.scratch_bytes
        )
        self.columns = PageColumns(self.arena, wanted)
        self.cache = PageCache(self.arena, self.columns, len(self.index), self._decay)
        self._account_pages()
        self._open_reader()

    def _open_reader(self) -> None:
        self.reader = PageReader(self.master, self.index, self.arena, self.columns, self._device)

    def _account_pages(self) -> None:
        slots_bytes = (self.split.landing_slots + self.arena.capacity + 1) * self.split.slot_cost
        self._budget.set("pages", slots_bytes + self.split.oversize_bytes + self.split.scratch_bytes)

    def _pages_fit(self) -> bool:
        return _largest_page_bytes(self.index) <= max(self.split.slot_bytes, self.split.oversize_bytes)

    def _carry_over(self, cached: CachedPages, place: "_Place") -> None:
        self._budget.set("index", _index_bytes(self.index, self.filter))
        pages = _find(self.index, place)
        here = pages != ABSENT
        self.cache = PageCache(self.arena, self.columns, len(self.index), self._decay)
        self.cache.adopt(CachedPages(pages[here], cached.slots[here], cached.utility[here]))
        self.arena.free(cached.slots[~here])


@dataclass(frozen=True)
class _Place:
    """Where pages lie, which is the same in every version; files as the new version counts them."""

    first: Array
    file: Array
    block: Array


def _renumber(old: Master, new: Master) -> Array:
    """For every file of the old version its number in the new one, or ABSENT."""
    numbers = {file.name: number for number, file in enumerate(new.files)}
    return np.array([numbers.get(file.name, ABSENT) for file in old.files], np.int32)


def _find(index: PageIndex, place: _Place) -> Array:
    """Numbers of the pages at these places, ABSENT for those the index does not have.

    Several pages can begin with the same key, so the search goes on from page to page while they do.
    """
    found = np.full(len(place.first), ABSENT, np.int32)
    candidate = np.searchsorted(index.first, place.first)
    sought = np.flatnonzero(candidate < len(index))
    while len(sought):
        page = candidate[sought]
        same_key = index.first[page] == place.first[sought]
        same_place = (index.file[page] == place.file[sought]) & (index.block[page] == place.block[sought])
        hit = same_key & same_place
        found[sought[hit]] = page[hit]
        sought = sought[same_key & ~hit]
        candidate[sought] += 1
        sought = sought[candidate[sought] < len(index)]
    return found


def least_memory(master: Master) -> int:
    """The least budget that works for an operator that needs all columns of the master."""
    index, filter_ = master.load_index(), master.load_filter()
    return least_bytes(_demand(index, filter_, master.page_bytes, columns_of(master.stored_schema)))


def _demand(index: PageIndex, filter_: KeyFilter | None, page_bytes: int, columns: list[Column]) -> Demand:
    return Demand(
        index_bytes=_index_bytes(index, filter_),
        slot_bytes=_slot_bytes(index, page_bytes),
        largest_page_bytes=_largest_page_bytes(index),
        bookkeeping_bytes=PageColumns.bytes_per_slot(columns) + PageCache.bytes_per_slot,
    )


def _index_bytes_bound(master: Master) -> int:
    """At most so much memory will index, filter and counters of a version take."""
    return master.index_file_bytes + master.pages * PageCache.bytes_per_page


def _index_bytes(index: PageIndex, filter_: KeyFilter | None) -> int:
    return index.nbytes + (filter_.nbytes if filter_ else 0) + len(index) * PageCache.bytes_per_page


def _slot_bytes(index: PageIndex, page_bytes: int) -> int:
    """A slot that holds nearly every page."""
    if len(index) == 0:
        return page_bytes
    return int(np.quantile(index.blocks, _TYPICAL, method="higher")) * BLOCK_BYTES


def _largest_page_bytes(index: PageIndex) -> int:
    return int(index.blocks.max(initial=1)) * BLOCK_BYTES
