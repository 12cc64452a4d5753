"""Which pages stay in memory: the most useful ones, by counters that fade instead of being cleared."""

from dataclasses import dataclass

import numpy as np

from adjoin.kernels.page_utility import credit_pages
from adjoin.kernels.pages import find_slots, move_pages
from adjoin.kernels.types import Array
from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import PageColumns
from adjoin.memory.trust import SlotTrust

ABSENT = -1
_RESCALE_ABOVE = 1e12
_LEAST_DECAY = 1e-6
"""Small enough that the past only breaks ties."""
_ROOM_TIMES, _ROOM_PAGES = 4, 1 << 16
"""How far the number of pages may grow with later versions; memory that is not used costs nothing."""


@dataclass(frozen=True)
class CachedPages:
    """Pages with their slots and utilities."""

    pages: Array
    slots: Array
    utility: Array


class PageCache:
    """Pages of a master in the slots of an arena, each page with a utility.

    The utility of a page counts the stream rows that wanted it, cached or not, and fades by the factor
    `decay` with every join phase. A decay of 0 clears it, as in the paper, except that the past still breaks
    ties.

    Args:
        arena: The slots.
        columns: Where the buffers of the pages are.
        pages: Number of pages of the master.
        decay: What remains of a utility after a join phase, from 0 to 1.
        unit: Continue with what was left in the arena's memory, where this was the unit; None starts empty.

    Attributes:
        unit: How much a stream row counts now; utilities fade because it grows.
        trust: Which slots have been verified, where other processes may write to them.
    """

    bytes_per_page = 9
    """Utility and slot of a page, and whether a stream buffer wants it."""
    bytes_per_slot = 4
    """The page of a slot."""

    def __init__(
        self, arena: Arena, columns: PageColumns, pages: int, decay: float, unit: float | None = None
    ) -> None:
        self._arena = arena
        self._columns = columns
        self._decay = max(decay, _LEAST_DECAY)
        self.unit = unit or 1.0
        memory, room = arena.memory, _ROOM_TIMES * pages + _ROOM_PAGES
        self._utility: Array = memory.array("utility", pages, np.float32, room)
        self._slot_of_page: Array = memory.array("slot_of_page", pages, np.int32, room)
        self._page_of_slot: Array = memory.held("page_of_slot", arena.all_slots, np.int32)
        watched = arena.all_slots if memory.outlives else 0
        self._is_new: Array = np.zeros(watched, bool)
        self.trust = SlotTrust(arena, columns)
        if unit is None:
            self._utility.fill(0)
            self._slot_of_page.fill(ABSENT)
            self._page_of_slot.fill(ABSENT)

    def __len__(self) -> int:
        return len(self.slots())

    def slots(self) -> Array:
        return np.flatnonzero(self._page_of_slot >= 0).astype(np.int32)

    def pages(self) -> Array:
        return self._page_of_slot[self._page_of_slot >= 0]

    def slot_of(self, pages: Array) -> Array:
        """The slot of each of these pages, or ABSENT.

        Raises:
            CorruptionError: Another process has overwritten this in shared memory.
        """
        slots: Array = np.empty(len(pages), np.int32)
        if not find_slots(self._slot_of_page, self._page_of_slot, pages, slots):
            raise self._arena.memory.damage("what was noted on pages")
        return slots

    def page_of(self, slots: Array) -> Array:
        """The page in each of these slots, or ABSENT."""
        return self._page_of_slot[slots]

    def new_slots(self) -> Array:
        """Slots that have received a page since this object was made."""
        return np.flatnonzero(self._is_new & (self._page_of_slot >= 0)).astype(np.int32)

    def is_cached(self, slots: Array) -> Array:
        """Whether the page in each slot is cached; those in the landing are not."""
        cached: Array = self._page_of_slot[slots] >= 0
        return cached

    def utility(self, pages: Array | slice) -> Array:
        return self._utility[pages]

    def credit(self, pages: Array) -> None:
        """Count one more stream row for each of these pages (repeats count)."""
        credit_pages(self._utility, pages, self.unit)

    def fade(self) -> None:
        """Let all utilities lose weight against later ones."""
        self.unit /= self._decay
        if self.unit > _RESCALE_ABOVE:
            self._utility /= np.float32(self.unit)
            self.unit = 1.0

    def put(self, pages: Array, slots: Array) -> None:
        """These slots hold these pages from now on."""
        self._slot_of_page[pages] = slots
        self._page_of_slot[slots] = pages
        self.trust.doubt(slots)
        if self._arena.memory.outlives:
            self._is_new[slots] = True

    def keep(self, pages: Array, landed: Array) -> None:
        """Cache pages that have been read into these slots of the landing; that many slots must be free."""
        slots = self._arena.take(len(pages))
        self._move(landed, slots)
        self.put(pages, slots)

    def shrink(self, count: int) -> None:
        """Give up this many slots: evict the least useful pages and close the gaps."""
        self.drop_least_useful(count - self._arena.free_slots)
        source, target = self._arena.shrink(count)
        self._columns.move(source, target)
        pages = self._page_of_slot[source]
        self._page_of_slot[source] = ABSENT
        self.put(pages, target)

    def _move(self, source: Array, target: Array) -> None:
        move_pages(self._arena.bytes, self._arena.slot_base, source, target, self._arena.slot_bytes)
        self._columns.move(source, target)

    def drop(self, pages: Array) -> None:
        """Evict these cached pages; their slots become free."""
        slots = self.slot_of(pages)
        self._slot_of_page[pages] = ABSENT
        self._page_of_slot[slots] = ABSENT
        self._arena.free(slots)

    def drop_least_useful(self, count: int) -> int:
        """Evict up to `count` pages, those of least utility; returns how many."""
        pages = self.pages()
        count = max(count, 0)
        if count < len(pages):
            pages = pages[np.argpartition(self._utility[pages], count)[:count]]
        self.drop(pages)
        return len(pages)

    def rank(self, unread: Array, room: int) -> tuple[Array, Array]:
        """Which pages the cache should hold after the unread ones have been read, with room for this many.

        Returns:
            A mask over `unread`: those to keep; and the cached pages to remove for them, the least
            useful first.
        """
        cached = self.pages()
        if len(cached) + len(unread) <= room:
            return np.ones(len(unread), bool), cached[:0]
        utility = np.concatenate([self._utility[cached], self._utility[unread]])
        chosen = np.zeros(len(utility), bool)
        if room > 0:
            chosen[np.argpartition(utility, -room)[-room:]] = True
        losers = cached[~chosen[: len(cached)]]
        return chosen[len(cached) :], losers[np.argsort(self._utility[losers], kind="stable")]

    def snapshot(self) -> "CachedPages":
        """What is cached, for a cache over another version of the master."""
        slots = self.slots()
        pages = self._page_of_slot[slots]
        return CachedPages(pages, slots, self._utility[pages] / np.float32(self.unit))

    def adopt(self, cached: "CachedPages") -> None:
        """Take over pages that are already in the arena."""
        self.put(cached.pages, cached.slots)
        self._utility[cached.pages] = cached.utility

    def fits(self, pages: int) -> bool:
        """Whether there is room for notes on this many pages."""
        return self._arena.memory.has_room("slot_of_page", pages, np.int32)

    def close(self) -> None:
        """Release the memory; only `len` and `pages` work afterwards."""
        self._page_of_slot = self._page_of_slot.copy()
        self._utility = self._utility[:0].copy()
        self._slot_of_page = self._slot_of_page[:0].copy()
        self._is_new = self._is_new[:0]

    def check_invariants(self) -> None:
        pages = self.pages()
        assert (self._slot_of_page[pages] == self.slots()).all()
        assert (self._slot_of_page >= 0).sum() == len(pages)
        assert len(pages) + self._arena.free_slots == self._arena.capacity
        assert np.isfinite(self._utility).all()
