"""Page memory: one mapping with a landing for pages being read, and slots for pages that stay."""

import mmap

import numpy as np

from adjoin.kernels.pages import move_pages
from adjoin.kernels.types import Array

BLOCK_BYTES = 4096
_HUGE_BYTES = 2 << 20
_HUGE_FROM_BYTES = 16 << 20
"""An arena that can grow so large uses huge pages, and grows and shrinks by whole ones."""


class Arena:
    """Slots of one size for pages, mapped once.

    ```
    | scratch | oversize | landing ......... | slot | slot | slot | ...   not in use   |
                           pages being read    pages that stay     ^ capacity
    ```

    The slots in use are always the first ones: when the arena shrinks, pages of the last slots move
    to free ones before them, and the memory behind goes back to the system. Slots are numbered
    through, the landing first; the oversize region, for a page larger than a slot, counts as the
    last slot.

    Args:
        landing: Slots of the landing.
        slots: The most slots for pages that stay; whole grains of them are used.
        slot_bytes: Size of a slot, whole blocks.
        oversize_bytes: Size of the region for the largest page, 0 if all pages fit a slot.
        scratch_bytes: Size of the region for bytes that nobody wants.

    Attributes:
        grain: Slots by which the arena grows and shrinks.
        slot_base: Where each slot begins.
    """

    bookkeeping_bytes = 12

    def __init__(
        self, landing: int, slots: int, slot_bytes: int, oversize_bytes: int, scratch_bytes: int
    ) -> None:
        self.landing = landing
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.scratch_bytes = scratch_bytes
        first = scratch_bytes + oversize_bytes
        is_huge = slots * slot_bytes >= _HUGE_FROM_BYTES and _HUGE_BYTES % slot_bytes == 0
        self.grain = _HUGE_BYTES // slot_bytes if is_huge else 1
        self.slots -= slots % self.grain
        self.oversize_slot = landing + self.slots
        self._map(first + landing * slot_bytes, self.slots * slot_bytes, is_huge)
        self.words: Array = self.bytes.view(np.int64)
        self.slot_base: Array = first + np.arange(landing + self.slots + 1, dtype=np.int64) * slot_bytes
        self.slot_base[self.oversize_slot] = scratch_bytes
        self.capacity = 0
        self._free: Array = np.empty(self.slots, np.int32)
        self.free_slots = 0

    @property
    def all_slots(self) -> int:
        """Landing, slots, and the oversize region."""
        return self.landing + self.slots + 1

    def view(self, width: int) -> Array:
        return self.bytes.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[width])

    def take(self, count: int) -> Array:
        """Claim free slots."""
        assert count <= self.free_slots
        self.free_slots -= count
        return self._free[self.free_slots : self.free_slots + count].copy()

    def free(self, slots: Array) -> None:
        """Slots that hold no page any more."""
        self._free[self.free_slots : self.free_slots + len(slots)] = slots
        self.free_slots += len(slots)

    def grow(self, count: int) -> None:
        """Put up to `count` more slots to use, in whole grains."""
        count = min(count, self.slots - self.capacity)
        count -= count % self.grain
        first = self.landing + self.capacity
        self.free(np.arange(first, first + count, dtype=np.int32))
        self.capacity += count

    def shrink(self, count: int) -> tuple[Array, Array]:
        """Give the memory of the last `count` slots back; so many must be free.

        Returns:
            From which slots pages moved, and to which.
        """
        assert count <= self.free_slots
        self.capacity -= count
        end = self.landing + self.capacity
        free = self._free[: self.free_slots]
        is_free = np.zeros(self.capacity + count, bool)
        is_free[free - self.landing] = True
        source = (np.flatnonzero(~is_free[self.capacity :]) + end).astype(np.int32)
        target = np.sort(free[free < end])[: len(source)]
        move_pages(self.bytes, self.slot_base, source, target, self.slot_bytes)
        is_free[target - self.landing] = False
        self.free_slots = 0
        self.free((np.flatnonzero(is_free[: self.capacity]) + self.landing).astype(np.int32))
        begin = self._start + int(self.slot_base[0]) + end * self.slot_bytes
        self._mapping.madvise(mmap.MADV_DONTNEED, begin, count * self.slot_bytes)
        return source, target

    def close(self) -> None:
        """Give all memory back; nothing can be read from the arena afterwards but zeros."""
        self._mapping.madvise(mmap.MADV_DONTNEED)

    def check_invariants(self) -> None:
        free = self._free[: self.free_slots]
        assert len(np.unique(free)) == len(free)
        assert ((free >= self.landing) & (free < self.landing + self.capacity)).all()
        assert 0 <= self.free_slots <= self.capacity <= self.slots

    def _map(self, before_bytes: int, slots_bytes: int, is_huge: bool) -> None:
        """Map the arena so that the slots that come and go begin where a huge page does."""
        # Private, because only private memory is given back when the system is told so.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, before_bytes + slots_bytes + _HUGE_BYTES, flags=private)
        mapped: Array = np.frombuffer(self._mapping, np.uint8)
        self._start = -(mapped.ctypes.data + before_bytes) % _HUGE_BYTES
        self.bytes: Array = mapped[self._start : self._start + before_bytes + slots_bytes]
        if is_huge:
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
