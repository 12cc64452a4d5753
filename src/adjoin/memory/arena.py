"""Memory for pages: a landing area for those being read, and slots for those that are kept."""

import numpy as np

from adjoin.kernels.pages import move_pages
from adjoin.kernels.types import Array
from adjoin.memory.page_memory import BLOCK_BYTES, PageMemory

__all__ = ["BLOCK_BYTES", "Arena"]

_STEP_BYTES = 1 << 20
"""Memory is reserved in steps of this size."""


class Arena:
    """Equal slots for pages, in one mapping.

    ```
    | scratch | oversize | landing ......... | slot | slot | slot | ...   not in use   |
                           pages being read    pages that are kept ^ capacity
    ```

    The slots in use are always the first ones: when the arena shrinks, pages in the last slots move
    to free slots before them, and the memory behind returns to the system. Slots are numbered
    consecutively, the landing area first; the oversize region, for a page larger than a slot, counts as
    the last slot.

    Args:
        landing: Number of slots in the landing area.
        slots: The most slots for pages that are kept, rounded down to whole grains.
        slot_bytes: Size of a slot, a multiple of the block size.
        oversize_bytes: Size of the region for the largest page, 0 if all pages fit a slot.
        scratch_bytes: Size of the region for bytes that are read but not wanted.
        memory: Where the slots lie; private memory by default.

    Attributes:
        grain: The number of slots by which the arena grows and shrinks.
        slot_base: Where each slot begins.
        rooms: Size of a slot, and of the oversize region.
    """

    bookkeeping_bytes = 12

    def __init__(
        self,
        landing: int,
        slots: int,
        slot_bytes: int,
        oversize_bytes: int,
        scratch_bytes: int,
        memory: PageMemory | None = None,
    ) -> None:
        self.memory = memory or PageMemory()
        self.landing = landing
        self.slot_bytes = slot_bytes
        self.scratch_bytes = scratch_bytes
        first = scratch_bytes + oversize_bytes
        grain_bytes = self.memory.grain_bytes(slots * slot_bytes)
        self.grain = grain_bytes // slot_bytes if grain_bytes and grain_bytes % slot_bytes == 0 else 1
        self.slots = slots - slots % self.grain
        self.oversize_slot = landing + self.slots
        self.bytes: Array = self.memory.map(first + landing * slot_bytes, self.slots * slot_bytes)
        self.words: Array = self.bytes.view(np.int64)
        self.slot_base: Array = first + np.arange(landing + self.slots + 1, dtype=np.int64) * slot_bytes
        self.slot_base[self.oversize_slot] = scratch_bytes
        self.rooms: Array = np.array([slot_bytes, oversize_bytes], np.int64)
        self.capacity = 0
        self._free: Array = self.memory.held("free", self.slots, np.int32)
        self.free_slots = 0

    def resume(self, capacity: int, free_slots: int) -> None:
        """Continue with the slots as the previous user left them in the memory."""
        self.capacity = capacity
        self.free_slots = free_slots

    @property
    def all_slots(self) -> int:
        """Number of slots, with the landing area and the oversize region."""
        return self.landing + self.slots + 1

    def view(self, width: int) -> Array:
        return self.bytes.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[width])

    def take(self, count: int) -> Array:
        """Claim free slots.

        Raises:
            ArenaError: There is no room for them in the file system.
        """
        assert count <= self.free_slots
        chosen = self._free[self.free_slots - count : self.free_slots].copy()
        if count:
            step = max(1, _STEP_BYTES // self.slot_bytes)
            end = -(-(int(chosen.max()) + 1 - self.landing) // step) * step
            self.memory.reserve(self._begin_of(min(end, self.capacity)))
        self.free_slots -= count
        return chosen

    def free(self, slots: Array) -> None:
        """Release slots whose pages are gone."""
        self._free[self.free_slots : self.free_slots + len(slots)] = slots
        self.free_slots += len(slots)

    def grow(self, count: int) -> None:
        """Bring up to `count` more slots into use, in whole grains."""
        count = min(count, self.slots - self.capacity)
        count -= count % self.grain
        first = self.landing + self.capacity
        # Slots are taken from the end of the list: the first ones are used before memory behind them is.
        self.free(np.arange(first, first + count, dtype=np.int32)[::-1])
        self.capacity += count

    def shrink(self, count: int) -> tuple[Array, Array]:
        """Return the memory of the last `count` slots to the system; at least that many must be free.

        Returns:
            The slots that pages moved from, and the slots they moved to.
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
        self.free((np.flatnonzero(is_free[: self.capacity]) + self.landing).astype(np.int32)[::-1])
        self.memory.give_back(self._begin_of(self.capacity), self._begin_of(self.capacity + count))
        return source, target

    def close(self) -> None:
        """Release the memory; no page can be read from the arena afterwards."""
        self.memory.drop()
        if self.memory.outlives:
            self.bytes = self.bytes[:0].copy()
            self.words = self.words[:0].copy()
            self._free = self._free[:0].copy()

    def check_invariants(self) -> None:
        free = self._free[: self.free_slots]
        assert len(np.unique(free)) == len(free)
        assert ((free >= self.landing) & (free < self.landing + self.capacity)).all()
        assert 0 <= self.free_slots <= self.capacity <= self.slots

    def _begin_of(self, slot: int) -> int:
        """Where a slot begins, counted from the end of the landing area."""
        return int(self.slot_base[0]) + (self.landing + slot) * self.slot_bytes
