"""Page memory: one mapping of fixed slots, of which some hold pages and some are given back."""

import mmap

import numpy as np

from adjoin.kernels.pages import give_back
from adjoin.kernels.types import Array

BLOCK_BYTES = 4096


class Arena:
    """Fixed slots for pages, mapped once.

    A slot is *taken* (holds a page), *free* (counts as memory, holds none) or *given back* (costs
    address space only). Behind the slots lie one region for a page that is larger than a slot,
    addressed as slot number `oversize_slot`, and a scratch region for bytes nobody wants.

    Args:
        slots: The most slots there can ever be.
        slot_bytes: Size of a slot, whole blocks.
        oversize_bytes: Size of the region for the largest page, 0 if all pages fit a slot.
        scratch_bytes: Size of the scratch region.
    """

    def __init__(self, slots: int, slot_bytes: int, oversize_bytes: int, scratch_bytes: int) -> None:
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.oversize_bytes = oversize_bytes
        self.scratch_bytes = scratch_bytes
        self.oversize_slot = slots
        slots_bytes = slots * slot_bytes
        self.scratch_at = slots_bytes + oversize_bytes
        # Private, because only private memory is given back when the system is told so.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, self.scratch_at + scratch_bytes, flags=private)
        self.bytes: Array = np.frombuffer(self._mapping, np.uint8)
        self.words: Array = self.bytes.view(np.int64)
        self.slot_base: Array = np.arange(slots + 1, dtype=np.int64) * slot_bytes
        self._free: Array = np.empty(slots, np.int32)
        self._free_count = 0
        self._away: Array = np.arange(slots - 1, -1, -1, dtype=np.int32)
        self._away_count = slots

    @property
    def capacity(self) -> int:
        """Slots that count as memory: taken and free ones."""
        return self.slots - self._away_count

    @property
    def free_slots(self) -> int:
        return self._free_count

    @property
    def fixed_bytes(self) -> int:
        """Memory that does not depend on the number of slots that hold pages."""
        return self.oversize_bytes + self.scratch_bytes + self.slots * self.bookkeeping_bytes

    bookkeeping_bytes = 16

    def view(self, width: int) -> Array:
        return self.bytes.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[width])

    def take(self, count: int) -> Array:
        """Claim free slots."""
        assert count <= self._free_count
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def free(self, slots: Array) -> None:
        """Slots that hold no page any more."""
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)

    def grow(self, count: int) -> int:
        """Get up to `count` slots back as free ones; returns how many."""
        count = min(count, self._away_count)
        self._away_count -= count
        self.free(self._away[self._away_count : self._away_count + count])
        return count

    def shrink(self, count: int) -> None:
        """Give the memory of `count` free slots back to the system."""
        if count == 0:
            return
        slots = np.sort(self.take(count))
        give_back(self.bytes, slots, self.slot_bytes)
        self._away[self._away_count : self._away_count + count] = slots
        self._away_count += count

    def check_invariants(self) -> None:
        free = self._free[: self._free_count]
        away = self._away[: self._away_count]
        both = np.concatenate([free, away])
        assert len(np.unique(both)) == len(both)
        assert 0 <= self.capacity <= self.slots
