"""Where the cached rows of each key are, and how often keys were seen: a hash table and counters."""

from typing import Any

import numpy as np

from adjoin.kernels.key_table import (
    EMPTY,
    count_seen,
    find_keys,
    heat_entries,
    insert_keys,
    remove_keys,
    times_seen,
)
from adjoin.kernels.types import Array
from adjoin.memory.page_memory import PageMemory

ON_THE_WAY = -2
"""The slot of a key whose rows are known but lie nowhere yet."""

_COUNTERS_PER_ENTRY = 8
_SEEN_PER_COUNTER = 4
"""Counters are halved when so many times their number was counted, so that the past fades."""


class KeyTable:
    """Keys, each with the place of its rows and how warm it is; and how often keys were seen, here or not.

    Args:
        length: Entries, taken or not.
        most_length: Entries that it can grow to.
        memory: Where it lies; private memory by default.
        left: Go on with what is in the memory, of which this was said when it was left; None begins empty.

    Attributes:
        key: The key of each entry.
        slot: The slot of its rows, ON_THE_WAY, or EMPTY where no key is.
        row: Its first row in the slot.
        rows: How many rows it has.
        heat: How warm it is.
    """

    entry_bytes = 8 + 4 + 4 + 4 + 1
    bytes_per_entry = entry_bytes + _COUNTERS_PER_ENTRY
    """With the counters."""
    most_heat = 255
    fullest = 0.7
    """Share of the entries that may be taken: the fuller the table, the longer the searches."""

    def __init__(
        self,
        length: int,
        most_length: int,
        memory: PageMemory | None = None,
        left: dict[str, Any] | None = None,
    ) -> None:
        self._memory = memory or PageMemory()
        self._most_length = most_length
        self._counted = 0
        self._taken = 0
        if left is None:
            self._make(length)
        else:
            self._lay_out(left["length"])
            self._counted, self._taken = left["counted"], left["taken"]

    def _make(self, length: int) -> None:
        self._lay_out(length)
        self.slot.fill(EMPTY)
        self.heat.fill(0)
        self._seen.fill(0)
        self._counted = 0
        self._taken = 0

    def _lay_out(self, length: int) -> None:
        """One array after the other, the widest first, so that all are aligned."""
        room = self._most_length * self.bytes_per_entry
        table = self._memory.array("table", length * self.bytes_per_entry, np.uint8, room)
        ends = np.cumsum([8, 4, 4, 4, 1]) * length
        key, slot, row, rows, self.heat, self._seen = np.split(table, ends)
        self.key: Array = key.view(np.int64)
        self.slot: Array = slot.view(np.int32)
        self.row: Array = row.view(np.int32)
        self.rows: Array = rows.view(np.int32)

    def leave(self) -> dict[str, Any]:
        """What must be said to go on with what is in the memory."""
        return {"length": self.length, "counted": self._counted, "taken": self._taken}

    def close(self) -> None:
        """Let go of the memory."""
        self._memory = PageMemory()
        self._lay_out(0)

    def __len__(self) -> int:
        return self._taken

    @property
    def length(self) -> int:
        """Entries, taken or not."""
        return len(self.key)

    @property
    def most(self) -> int:
        """Keys that it may take."""
        return int(self.fullest * self.length)

    @property
    def bytes(self) -> int:
        return self.length * self.bytes_per_entry

    def taken(self) -> Array:
        """All entries with a key, in no order."""
        return np.flatnonzero(self.slot != EMPTY)

    def find(self, keys: Array) -> Array:
        """The entry of every key, EMPTY where it has none."""
        return find_keys(keys, self.key, self.slot)

    def insert(self, keys: Array) -> Array:
        """Enter keys that it does not have, with rows on the way; returns their entries."""
        self._taken += len(keys)
        entries = insert_keys(keys, self.key, self.slot, ON_THE_WAY)
        if (entries == EMPTY).any():
            raise self._memory.damage("the table of keys")
        return entries

    def remove(self, keys: Array) -> None:
        """Remove keys, those that are there."""
        self._taken -= remove_keys(keys, self.key, self.slot, self.row, self.rows, self.heat)

    def clear(self) -> None:
        """Remove all keys; how often they were seen stays."""
        self.slot.fill(EMPTY)
        self._taken = 0

    def resize(self, length: int) -> None:
        """Go on with so many entries. Counters begin anew."""
        taken = self.taken()
        key, *places = (array[taken] for array in (self.key, self.slot, self.row, self.rows, self.heat))
        self._make(length)
        entries = self.insert(key)
        for array, before in zip((self.slot, self.row, self.rows, self.heat), places, strict=True):
            array[entries] = before
        self._memory.trim("table", self.bytes, np.uint8)

    def warm(self, entries: Array) -> None:
        """One more stream row found each of these entries (repeats count)."""
        heat_entries(self.heat, entries, self.most_heat)

    def cold(self, entries: Array, least_heat: Array | float) -> Array:
        """Which of these entries are colder than that."""
        return self.heat[entries] < np.minimum(least_heat, self.most_heat)

    def cool(self) -> None:
        """All keys lose half their heat."""
        self.heat >>= 1

    def count(self, keys: Array, times: Array) -> Array:
        """How often each key was seen of late, these times included."""
        self._counted += int(times.sum())
        return count_seen(keys, times, self._seen)

    def seen(self, keys: Array) -> Array:
        """How often each key was seen of late."""
        return times_seen(keys, self._seen)

    def fade(self) -> bool:
        """Let the past count half, once enough was counted since; says whether it does."""
        is_due = self._counted > _SEEN_PER_COUNTER * len(self._seen)
        if is_due:
            self._seen >>= 1
            self._counted //= 2
        return is_due

    def check_invariants(self) -> None:
        taken = self.taken()
        assert len(taken) == self._taken <= self.most
        assert (self.find(self.key[taken]) == taken).all()
