"""Where the cached rows of each key are, and how often keys were seen: a hash table with counters."""

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
"""The slot of a key whose rows are known but not stored yet."""

_COUNTERS_PER_ENTRY = 8
_SEEN_PER_COUNTER = 4
"""Counters are halved once this many times their number has been counted, so that the past fades."""


class KeyTable:
    """Keys, each with the place and the heat of its rows; and counts of keys seen, whether stored or not.

    Args:
        length: Entries, taken or free.
        most_length: Entries that it can grow to.
        memory: Memory for the table; private by default.
        left: What `leave` returned, to continue with what is in the memory; None starts empty.

    Attributes:
        key: The key of each entry.
        slot: The slot of its rows, ON_THE_WAY, or EMPTY where no key is.
        row: Its first row in the slot.
        rows: How many rows it has.
        heat: How often its rows were used recently.
    """

    entry_bytes = 8 + 4 + 4 + 4 + 1
    bytes_per_entry = entry_bytes + _COUNTERS_PER_ENTRY
    """With the counters."""
    most_heat = 255
    fullest = 0.7
    """The share of entries that may be taken: the fuller the table, the longer a search."""

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
        """Lay out the arrays one after the other, the widest first, so that all are aligned."""
        room = self._most_length * self.bytes_per_entry
        table = self._memory.array("table", length * self.bytes_per_entry, np.uint8, room)
        ends = np.cumsum([8, 4, 4, 4, 1]) * length
        key, slot, row, rows, self.heat, self._seen = np.split(table, ends)
        self.key: Array = key.view(np.int64)
        self.slot: Array = slot.view(np.int32)
        self.row: Array = row.view(np.int32)
        self.rows: Array = rows.view(np.int32)

    def leave(self) -> dict[str, Any]:
        """What the next user needs to continue with what is in the memory."""
        return {"length": self.length, "counted": self._counted, "taken": self._taken}

    def close(self) -> None:
        """Release the memory."""
        self._memory = PageMemory()
        self._lay_out(0)

    def __len__(self) -> int:
        return self._taken

    @property
    def length(self) -> int:
        """Entries, taken or free."""
        return len(self.key)

    @property
    def most(self) -> int:
        """The most keys that it may take at this length."""
        return int(self.fullest * self.length)

    @property
    def bytes(self) -> int:
        return self.length * self.bytes_per_entry

    def taken(self) -> Array:
        """All entries with a key, in no particular order."""
        return np.flatnonzero(self.slot != EMPTY)

    def find(self, keys: Array) -> Array:
        """The entry of every key, EMPTY where it has none."""
        return find_keys(keys, self.key, self.slot)

    def insert(self, keys: Array) -> Array:
        """Insert keys that it does not have, with their rows on the way; returns their entries."""
        self._taken += len(keys)
        entries = insert_keys(keys, self.key, self.slot, ON_THE_WAY)
        if (entries == EMPTY).any():
            raise self._memory.damage("the table of keys")
        return entries

    def remove(self, keys: Array) -> None:
        """Remove those of these keys that it has."""
        self._taken -= remove_keys(keys, self.key, self.slot, self.row, self.rows, self.heat)

    def clear(self) -> None:
        """Remove all keys; the counts stay."""
        self.slot.fill(EMPTY)
        self._taken = 0

    def resize(self, length: int) -> None:
        """Change the number of entries; the counts start again at zero."""
        taken = self.taken()
        key, *places = (array[taken] for array in (self.key, self.slot, self.row, self.rows, self.heat))
        self._make(length)
        entries = self.insert(key)
        for array, before in zip((self.slot, self.row, self.rows, self.heat), places, strict=True):
            array[entries] = before
        self._memory.trim("table", self.bytes, np.uint8)

    def warm(self, entries: Array) -> None:
        """Count one more stream row for each of these entries (repeats count)."""
        heat_entries(self.heat, entries, self.most_heat)

    def cold(self, entries: Array, least_heat: Array | float) -> Array:
        """Which of these entries have less heat than this."""
        return self.heat[entries] < np.minimum(least_heat, self.most_heat)

    def cool(self) -> None:
        """All keys lose half their heat."""
        self.heat >>= 1

    def count(self, keys: Array, times: Array) -> Array:
        """How often each key was seen recently, including these times."""
        self._counted += int(times.sum())
        return count_seen(keys, times, self._seen)

    def seen(self, keys: Array) -> Array:
        """How often each key was seen recently."""
        return times_seen(keys, self._seen)

    def fade(self) -> bool:
        """Halve the counts if enough was counted since the last time; returns whether it did."""
        is_due = self._counted > _SEEN_PER_COUNTER * len(self._seen)
        if is_due:
            self._seen >>= 1
            self._counted //= 2
        return is_due

    def check_invariants(self) -> None:
        taken = self.taken()
        assert len(taken) == self._taken <= self.most
        assert (self.find(self.key[taken]) == taken).all()
