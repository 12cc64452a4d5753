"""A cache of the master rows that the stream wants most, found by key."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import message_overhead
from adjoin.kernels.key_table import EMPTY
from adjoin.kernels.search import expand
from adjoin.kernels.types import Array
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.page_columns import Column, PageColumns, Places
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.portions import portions
from adjoin.semistream.frontstage.key_table import ON_THE_WAY, KeyTable
from adjoin.semistream.frontstage.packed_rows import PackedRows
from adjoin.semistream.frontstage.rows_by_key import RowsByKey

_SLOTS = 64
_MOST_SLOT_BYTES = 1 << 20
_LEAST_SLOTS = 4
_LEAST_ENTRIES = 64
_SLOTS_ON_THE_WAY = 3
"""Rows on the way, those of the slot that they are for, and both together."""
_COUNTING_SHARE = 1 / 4
"""Of a slot, for counts of keys that may be cached."""
_MOST_ENTRIES = 1 << 30
_ALMOST_EMPTY = 0.3
"""Below this share of the keys that it may take, a table is too long."""
_ALMOST = 0.95
"""Above this share of the keys that it may take, a table is full: new rows replace old ones."""
_MOST = 0.9
"""New keys must have been wanted as often as the key at this place among those that stayed."""
_OFTEN = 0.25
"""Rows on the way must reach this share of the slot filled last before another slot is filled."""


@dataclass(frozen=True)
class CacheSizes:
    """The sizes of a cache of rows.

    Attributes:
        first_entries: Entries of the hash table at first.
        most_entries: Entries of the hash table at most.
        slot_bytes: A slot.
        slots: The most slots.
        fixed_bytes: What it takes at first: table, counters, notes on slots, and rows on the way.
        row_bytes: The expected size of a row.
        counting_bytes: Set aside for counting keys that may be cached.
    """

    first_entries: int
    most_entries: int
    slot_bytes: int
    slots: int
    fixed_bytes: int
    row_bytes: int
    counting_bytes: int

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        most_bytes: int,
        expected_row_bytes: int,
        memory: PageMemory | type[PageMemory] = PageMemory,
    ) -> "CacheSizes | None":
        """The sizes for this much memory of this kind and rows of this size; None if it is too little."""
        memory_bytes = memory.fixed_bytes
        most_bytes = max(0, most_bytes - memory_bytes)
        table_bytes_per_key = KeyTable.bytes_per_entry / KeyTable.fullest
        entries = int(most_bytes / (expected_row_bytes + table_bytes_per_key) / KeyTable.fullest)
        most_entries = max(_LEAST_ENTRIES, min(entries, _MOST_ENTRIES))
        first_entries = max(_LEAST_ENTRIES, most_entries >> 5)
        table_bytes = most_entries * KeyTable.bytes_per_entry
        slot_bytes = min(_MOST_SLOT_BYTES, (most_bytes - table_bytes) // _SLOTS)
        slot_bytes = max(slot_bytes // BLOCK_BYTES, 1) * BLOCK_BYTES
        notes_bytes = PackedRows.notes_bytes(schema) + memory.bytes_per_slot
        counting_bytes = int(_COUNTING_SHARE * slot_bytes)
        work_bytes = _SLOTS_ON_THE_WAY * slot_bytes + counting_bytes
        slots = (most_bytes - table_bytes - work_bytes) // (slot_bytes + notes_bytes)
        if slots < _LEAST_SLOTS or slot_bytes < 4 * message_overhead(schema):
            return None
        table_bytes = first_entries * KeyTable.bytes_per_entry
        fixed_bytes = memory_bytes + table_bytes + work_bytes + slots * notes_bytes
        return cls(
            first_entries, most_entries, slot_bytes, slots, fixed_bytes, expected_row_bytes, counting_bytes
        )


@dataclass(frozen=True)
class CachedPlaces:
    """Where the rows of keys are: the slot, the first row in it, and the number of rows."""

    keys: Array
    slot: Array
    row: Array
    rows: Array

    def part(self, begin: int, end: int) -> "CachedPlaces":
        return CachedPlaces(*(getattr(self, field.name)[begin:end] for field in fields(self)))

    def all(self) -> tuple[Array, Places]:
        """For every row: which of the keys it belongs to, and where it is."""
        owner, row = expand(self.row, self.rows, int(self.rows.sum(dtype=np.int64)))
        return owner, Places(self.slot[owner], row)


class TupleCache:
    """Master rows by key, in bounded memory; the least wanted are given up first.

    How it works: rows are packed into slots, each an Arrow record batch, and a hash table knows the place of
    every key. Counters that fade tell how often each key was wanted recently, cached or not. New rows fill
    one slot after the other; when the memory is used up, they compete with the rows of one slot after the
    other, and the keys that were wanted most stay. How often the last of these was wanted is the threshold
    for new keys.

    Args:
        schema: The columns of the rows, the encoded key (int64) first.
        sizes: How large it can become.
        ask: Is asked for bytes before they are used; returns whether they are granted.
        memory: Memory for the rows; private by default.
        left: What `leave` returned, to continue with what is in the memory; None starts empty.

    Attributes:
        bytes: What it has been granted; `sizes.fixed_bytes` at the start.
        least_seen: How often a key must have been seen to be worth caching.
    """

    def __init__(
        self,
        schema: pa.Schema,
        sizes: CacheSizes,
        ask: Callable[[int], bool],
        memory: PageMemory | None = None,
        left: dict[str, Any] | None = None,
    ) -> None:
        found = left or {}
        self.schema = schema
        self.bytes: int = found.get("bytes", sizes.fixed_bytes)
        self.least_seen: int = found.get("least_seen", 1)
        self._ask = ask
        self._sizes = sizes
        self._memory = memory or PageMemory()
        self._packed = PackedRows(schema, sizes.slots, sizes.slot_bytes, memory, found.get("packed"))
        self._table = KeyTable(sizes.first_entries, sizes.most_entries, memory, found.get("table"))
        self._waiting: list[RowsByKey] = []
        self._waiting_bytes = 0
        self._open: int = found.get("open", EMPTY)
        self._filled_bytes: int = found.get("filled_bytes", 0)

    @classmethod
    def resume(
        cls, schema: pa.Schema, left: dict[str, Any], ask: Callable[[int], bool], memory: PageMemory
    ) -> "TupleCache":
        """Continue with what is in the memory, for which `leave` returned this."""
        return cls(schema, CacheSizes(**left["sizes"]), ask, memory, left)

    def leave(self) -> dict[str, Any]:
        """Leave everything for the next user; returns what it needs to continue."""
        self._flush()
        return {
            "sizes": asdict(self._sizes),
            "bytes": self.bytes,
            "least_seen": self.least_seen,
            "packed": self._packed.leave(),
            "table": self._table.leave(),
            "open": self._open,
            "filled_bytes": self._filled_bytes,
        }

    @property
    def columns(self) -> PageColumns:
        """Where the buffers of the slots are."""
        return self._packed.columns

    def layout_of(self, names: Sequence[str]) -> list[Column]:
        """The columns with these names."""
        return [self._packed.layout[self.schema.names.index(name)] for name in names]

    def _grow_table(self) -> bool:
        """Double the table, if that is possible."""
        return self._resize_table(min(2 * self._table.length, self._sizes.most_entries))

    def _resize_table(self, length: int) -> bool:
        """Change the length of the table, if there is memory for both the old and the new one."""
        table = self._table
        if length == table.length or not self._ask(length * table.bytes_per_entry):
            return False
        before_bytes = table.bytes
        table.resize(length)
        self.bytes += table.bytes - before_bytes
        self._ask(-before_bytes)
        return True

    def __len__(self) -> int:
        return len(self._table)

    @property
    def _is_tight(self) -> bool:
        return len(self._table) > _ALMOST * self._table.most

    def find(self, keys: Array) -> Array:
        """The entry of every key, EMPTY if its rows are not available."""
        entries = self._table.find(keys)
        entries[self._table.slot[entries] == ON_THE_WAY] = EMPTY
        return entries

    def knows(self, keys: Array) -> Array:
        """Whether the rows of each key are stored or on the way."""
        return self._table.find(keys) != EMPTY

    def places(self, entries: Array, keys: Array) -> "CachedPlaces":
        """Where the rows of these entries, with these keys, are; counts a use of each."""
        self._table.warm(entries)
        self.count(keys, np.ones(len(entries), np.int64))
        return self._places(entries, keys)

    def vouch(self, places: "CachedPlaces") -> None:
        """Verify that the rows at these places are those of their keys, all of them and no others.

        Raises:
            CorruptionError: They are not.
        """
        self._packed.vouch_groups(places.keys, places.slot, places.row, places.rows)

    def count(self, keys: Array, times: Array) -> Array:
        """How often each key was seen recently, including these times."""
        if self._table.fade():
            self.least_seen = max(1, self.least_seen // 2)
        return self._table.count(keys, times)

    def put(self, groups: RowsByKey) -> None:
        """Cache rows of keys that it does not know, as far as the table has room for them.

        They can be found once enough rows are on the way, compared with the slot that was filled last.
        """
        table = self._table
        while len(table) + len(groups) > _ALMOST * table.most and self._grow_table():
            continue
        if len(groups) > table.most - len(table):
            self._flush()
        fits = np.flatnonzero(groups.sizes <= self._packed.room_bytes)[: max(table.most - len(table), 0)]
        if len(fits) < len(groups):
            groups = groups.chosen(fits)
        for begin, end in portions(groups.sizes, self._packed.room_bytes):
            part = groups.part(begin, end)
            if self._waiting_bytes + part.bytes > self._packed.room_bytes:
                self._flush()
            table.insert(part.keys)
            self._wait(part)
        if self._waiting_bytes > _OFTEN * self._filled_bytes:
            self._flush()

    def _wait(self, groups: RowsByKey) -> None:
        self._waiting.append(groups)
        self._waiting_bytes += groups.bytes

    def _flush(self) -> None:
        """Put the rows on the way into slots: the open one, new ones, or those whose turn it is."""
        while self._waiting_bytes:
            if self._open == EMPTY and self._can_add():
                self._open = self._packed.add()
                self._fill(self._open, RowsByKey.none(self.schema))
            if self._open != EMPTY:
                self._fill_up(self._take_waiting())
            elif self._packed.turns:
                self._compete(self._packed.take_turn(), self._take_waiting())
            else:
                self._table.remove(self._take_waiting().keys)

    def _take_waiting(self) -> RowsByKey:
        waiting = RowsByKey.joined(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        return waiting

    def _fill_up(self, waiting: RowsByKey) -> None:
        """Add rows to the open slot; what does not fit stays on the way."""
        held = self._take(self._entries_of(self._open))
        end = int(np.searchsorted(np.cumsum(waiting.sizes), self._packed.room_bytes - held.bytes, "right"))
        if end:
            self._fill(self._open, RowsByKey.joined([held, waiting.part(0, end)]))
        if end < len(waiting):
            self._open = EMPTY
            self._wait(waiting.part(end, len(waiting)))
        self.least_seen = max(1, self.least_seen // 2)

    def _compete(self, slot: int, waiting: RowsByKey) -> None:
        """Of the rows of a slot and those on the way, keep those that were wanted most."""
        held = self._take(self._entries_of(slot))
        keys = np.concatenate([held.keys, waiting.keys])
        seen = self._table.seen(keys)
        is_new = np.arange(len(keys)) >= len(held)
        order = np.lexsort((is_new, -seen))
        ends = np.cumsum(np.concatenate([held.sizes, waiting.sizes])[order])
        fitting = int(np.searchsorted(ends, self._packed.room_bytes, "right"))
        self._table.remove(keys[order[fitting:]])
        stays = np.sort(order[:fitting])
        old, new = np.split(stays, [np.searchsorted(stays, len(held))])
        new -= len(held)
        held = held.chosen(old)  # one after the other, because they can be large
        waiting = waiting.chosen(new)
        held = RowsByKey.joined([held, waiting])
        del waiting
        self._fill(slot, held)
        if fitting:
            self.least_seen = max(1, int(seen[order[int(_MOST * fitting)]]))

    def drop(self, keys: Array) -> None:
        """Forget these keys."""
        self._table.remove(keys)
        if self._waiting:
            waiting = RowsByKey.joined(self._waiting)
            left = waiting.chosen(np.flatnonzero(~np.isin(waiting.keys, keys)))
            self._waiting, self._waiting_bytes = [left], left.bytes

    def group_bytes(self, rows: Array) -> Array:
        """Roughly what keys with these numbers of rows take."""
        return np.asarray(rows * self._sizes.row_bytes + KeyTable.entry_bytes / KeyTable.fullest)

    @property
    def counting_bytes(self) -> int:
        """Bytes set aside for counting keys that may be cached."""
        return self._sizes.counting_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes of empty slots."""
        return self._packed.free_bytes

    def forget(self, least_heat: Callable[[Array], Array | float]) -> bool:
        """Forget keys with less heat than their number of rows requires; the others lose half their heat.

        Returns:
            Whether slots have become free.
        """
        table = self._table
        entries = self._entries_in_slots()
        is_cold = table.cold(entries, least_heat(table.rows[entries]))
        table.remove(table.key[entries[is_cold]])
        table.cool()
        free_before = self._packed.free_slots
        entries = self._entries_in_slots()
        rows = np.bincount(table.slot[entries], table.rows[entries], self._packed.all_slots)
        for slot in [slot for slot in self._packed.turns if 2 * rows[slot] < self.columns.rows[slot]]:
            self._unpack(slot)
        if len(table) < _ALMOST_EMPTY * table.most:
            self._resize_table(max(table.length // 2, self._sizes.first_entries))
        return self._packed.free_slots > free_before

    def _entries_in_slots(self) -> Array:
        """The entries whose rows are in slots."""
        entries = np.flatnonzero(self._table.slot >= 0)
        if self._table.slot[entries].max(initial=0) >= self._packed.all_slots:
            raise self._memory.damage("the table of keys")
        return entries

    def _unpack(self, slot: int) -> None:
        """Empty a slot; its rows are on the way again, to be packed with others."""
        entries = self._entries_of(slot)
        groups = self._take(entries)
        self._table.slot[entries] = ON_THE_WAY
        self._free(slot)
        self._wait(groups)
        if self._waiting_bytes > self._packed.room_bytes // 2:
            self._flush()

    def _free(self, slot: int) -> None:
        self._packed.free(slot)
        if slot == self._open:
            self._open = EMPTY

    def keys(self) -> Array:
        """All keys, in no particular order."""
        return self._table.key[self._table.taken()]

    def give_back(self, wanted_bytes: int) -> int:
        """Give up this many bytes, or all slots if they have less; returns the number of bytes."""
        packed = self._packed
        slots = packed.slots_of(wanted_bytes)
        while packed.free_slots < slots:
            self._empty(packed.turns[0])
        before_bytes = packed.bytes
        moved = packed.shrink(slots)
        for slot, place in moved.items():
            self._table.slot[self._table.slot == slot] = place
        self._open = moved.get(self._open, self._open)
        freed_bytes = before_bytes - packed.bytes
        self.bytes -= freed_bytes
        return freed_bytes

    def _empty(self, slot: int) -> None:
        """Free a slot; its rows compete with those of the next one."""
        held = self._take(self._entries_of(slot))
        self._free(slot)
        if self._packed.turns:
            self._compete(self._packed.take_turn(), held)
        else:
            self._table.remove(held.keys)

    def clear(self) -> None:
        """Forget everything except how often keys were seen."""
        self._table.clear()
        self._packed.clear()
        self._open = EMPTY
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        """Release the memory."""
        self._packed.close()
        self._table.close()

    def check_invariants(self) -> None:
        self._packed.check_invariants()
        table = self._table
        table.check_invariants()
        taken = table.taken()
        assert set(table.slot[taken].tolist()) <= {*self._packed.turns, ON_THE_WAY}
        there = taken[table.slot[taken] != ON_THE_WAY]
        assert (table.row[there] + table.rows[there] <= self.columns.rows[table.slot[there]]).all()
        assert self._open in {EMPTY, *self._packed.turns}

    def _can_add(self) -> bool:
        """Whether there is room for one more slot, and for its keys."""
        packed = self._packed
        return not (self._is_tight and packed.turns) and (packed.free_slots > 0 or self._grow())

    def _grow(self) -> bool:
        more_bytes = self._packed.growth_bytes
        if not more_bytes or not self._ask(more_bytes):
            return False
        self._packed.grow()
        self.bytes += more_bytes
        return True

    def _entries_of(self, slot: int) -> Array:
        """The entries whose rows are in the slot, in the order of the rows."""
        entries = self._table.find(np.unique(self._packed.first_column(slot)))
        entries = entries[entries != EMPTY]
        entries = entries[self._table.slot[entries] == slot]
        return entries[np.argsort(self._table.row[entries])]

    def _take(self, entries: Array) -> RowsByKey:
        found = self._places(entries, self._table.key[entries])
        _, places = found.all()
        batch = self._packed.rows_at(places)
        self.vouch(found)
        return RowsByKey(found.keys, found.rows, batch, self._table.heat[entries])

    def _places(self, entries: Array, keys: Array) -> "CachedPlaces":
        """What the table says, copied and checked."""
        slot, row, rows = (array[entries] for array in (self._table.slot, self._table.row, self._table.rows))
        if len(entries) and (
            min(slot.min(), row.min()) < 0
            or slot.max() >= self._packed.all_slots
            or rows.min() <= 0
            or (row.astype(np.int64) + rows).max() > self._packed.most_rows
        ):
            raise self._memory.damage("the table of keys")
        return CachedPlaces(keys, slot, row, rows)

    def _fill(self, slot: int, groups: RowsByKey) -> None:
        self._packed.fill(slot, groups.batch)
        self._filled_bytes = groups.bytes
        table = self._table
        entries = table.find(groups.keys)
        if (entries == EMPTY).any():
            raise self._memory.damage("the table of keys")
        table.slot[entries] = slot
        table.row[entries] = np.cumsum(groups.rows) - groups.rows
        table.rows[entries] = groups.rows
        table.heat[entries] = groups.heat
