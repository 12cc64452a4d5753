"""Rows of the master that the stream wants most, packed side by side and found by key."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from adjoin.kernels.pages import find_buffers
from adjoin.kernels.search import expand
from adjoin.kernels.tuples import EMPTY, count_seen, find_keys, heat_entries, insert_keys, remove_keys
from adjoin.kernels.types import Array
from adjoin.parts.arena import BLOCK_BYTES, Arena
from adjoin.parts.columns import Column, PageColumns, Places, columns_of
from adjoin.parts.copying import join_batches, take_rows
from adjoin.parts.pagememory import PageMemory
from adjoin.parts.portions import portions
from adjoin.parts.rows import message_overhead, row_bytes

_SLOTS = 64
_MOST_SLOT_BYTES = 1 << 20
_LEAST_SLOTS = 4
_LEAST_ENTRIES = 64
_MOST_HEAT = 15
_ON_THE_WAY = -2
_MOST_ENTRIES = 1 << 30
_ENTRY_BYTES = 8 + 4 + 4 + 4 + 1
_COUNTERS_PER_ENTRY = 2
_TABLE_BYTES = _ENTRY_BYTES + _COUNTERS_PER_ENTRY
_FULLEST = 0.7
_ALMOST = 0.95
"""A table so full of what it may take is full: rows go for new ones."""
"""Share of the entries that may be taken: the fuller the table, the longer the searches."""
_OFTEN = 0.25
"""So much of what the slot filled last holds must wait before it is filled anew."""
_MOST_KEPT = 0.75
"""Share of a slot that rows may keep when it is their turn to go: the rest is for new ones."""
_SEEN_PER_COUNTER = 4
"""Counters are halved when so many times their number was counted, so that the past fades."""


@dataclass(frozen=True)
class Groups:
    """Rows of the master by key, all rows of a key together.

    Attributes:
        keys: The encoded keys, each once.
        rows: How many rows each has.
        batch: The rows, in the order of the keys.
        heat: How warm each is.
    """

    keys: Array
    rows: Array
    batch: pa.RecordBatch
    heat: Array

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class CacheSizes:
    """How large a cache can become.

    Attributes:
        first_entries: Entries of the hash table at first.
        most_entries: Entries of the hash table at most.
        slot_bytes: A slot.
        slots: The most slots.
        fixed_bytes: What it takes at first: table, counters, notes on slots, and rows on the way.
        row_bytes: A row, about.
    """

    first_entries: int
    most_entries: int
    slot_bytes: int
    slots: int
    fixed_bytes: int
    row_bytes: int

    @classmethod
    def of(cls, schema: pa.Schema, most_bytes: int, expected_row_bytes: int) -> "CacheSizes | None":
        """For so much memory and rows of about this size; None if that is too little."""
        entries = int(most_bytes / (expected_row_bytes + _TABLE_BYTES / _FULLEST) / _FULLEST)
        most_entries = max(_LEAST_ENTRIES, min(entries, _MOST_ENTRIES))
        first_entries = max(_LEAST_ENTRIES, most_entries >> 5)
        table_bytes = most_entries * _TABLE_BYTES
        slot_bytes = min(_MOST_SLOT_BYTES, (most_bytes - table_bytes) // _SLOTS)
        slot_bytes = max(slot_bytes // BLOCK_BYTES, 1) * BLOCK_BYTES
        notes_bytes = Arena.bookkeeping_bytes + PageColumns.bytes_per_slot(columns_of(schema)) + 8
        slots = (most_bytes - table_bytes - 2 * slot_bytes) // (slot_bytes + notes_bytes)
        if slots < _LEAST_SLOTS or slot_bytes < 4 * message_overhead(schema):
            return None
        fixed_bytes = first_entries * _TABLE_BYTES + 2 * slot_bytes + slots * notes_bytes
        return cls(first_entries, most_entries, slot_bytes, slots, fixed_bytes, expected_row_bytes)


class TupleCache:
    """Master rows by key, in bounded memory, the least wanted given up first.

    How it works: rows lie packed in slots, each an Arrow record batch, and a hash table knows the place of
    every key. Slots are filled in turn. When a slot's turn comes again, the rows that were found since the
    last time stay, half as warm; the others make room. So whatever is not wanted is gone after one round,
    and what is wanted often survives several quiet ones.

    Args:
        schema: The columns of the rows, the encoded key (int64) first.
        sizes: How large it can become.
        ask: Is asked for so many bytes before they are used; says whether they are to be had.
        memory: Where the rows lie; private memory by default.

    Attributes:
        bytes: What it has been given; `sizes.fixed_bytes` from the start.
        columns: Where the buffers of the slots are.
        layout: The columns.
        kept_share: What share of the keys stayed of late when it was their turn to go.
    """

    def __init__(
        self,
        schema: pa.Schema,
        sizes: CacheSizes,
        ask: Callable[[int], bool],
        memory: PageMemory | None = None,
    ) -> None:
        self.schema = schema
        self.layout: list[Column] = columns_of(schema)
        self.bytes = sizes.fixed_bytes
        self.kept_share = 0.0
        self._ask = ask
        self._arena = Arena(0, sizes.slots, sizes.slot_bytes, 0, 0, memory)
        self.columns = PageColumns(self._arena, self.layout)
        self._turns: deque[int] = deque()
        self._largest_table = sizes.most_entries
        self._make_table(sizes.first_entries)
        self._row_bytes = sizes.row_bytes
        self._entries = 0
        self._waiting: list[Groups] = []
        self._waiting_bytes = 0
        self._open = EMPTY
        self._open_bytes = 0
        self._most_bytes = sizes.slot_bytes - message_overhead(schema)

    def _make_table(self, length: int) -> None:
        self._key: Array = np.zeros(length, np.int64)
        self._slot: Array = np.full(length, EMPTY, np.int32)
        self._row: Array = np.zeros(length, np.int32)
        self._rows: Array = np.zeros(length, np.int32)
        self._heat: Array = np.zeros(length, np.uint8)
        self._seen: Array = np.zeros(length * _COUNTERS_PER_ENTRY, np.uint8)
        self._counted = 0
        self._most_entries = int(_FULLEST * length)

    def _grow_table(self) -> bool:
        """Go on with a table twice as long, if there is memory for both of them."""
        length = min(2 * len(self._key), self._largest_table)
        if length == len(self._key) or not self._ask(length * _TABLE_BYTES):
            return False
        old = (self._key, self._slot, self._row, self._rows, self._heat)
        self.bytes += (length - len(self._key)) * _TABLE_BYTES
        freed_bytes = len(self._key) * _TABLE_BYTES
        self._make_table(length)
        taken = np.flatnonzero(old[1] != EMPTY)
        entries = insert_keys(old[0][taken], self._key, self._slot, _ON_THE_WAY)
        for array, before in zip((self._slot, self._row, self._rows, self._heat), old[1:], strict=True):
            array[entries] = before[taken]
        self._ask(-freed_bytes)
        return True

    def __len__(self) -> int:
        return self._entries

    @property
    def is_full(self) -> bool:
        """Whether new rows can only be had for old ones."""
        arena = self._arena
        return self._is_tight or (arena.free_slots == 0 and arena.capacity + arena.grain > arena.slots)

    @property
    def _is_tight(self) -> bool:
        return self._entries > _ALMOST * self._most_entries

    def find(self, keys: Array) -> Array:
        """The entry of every key, EMPTY where its rows are not to be had."""
        entries = find_keys(keys, self._key, self._slot)
        entries[self._slot[entries] == _ON_THE_WAY] = EMPTY
        return entries

    def knows(self, keys: Array) -> Array:
        """Whether the rows of each key are there, or on the way."""
        return find_keys(keys, self._key, self._slot) != EMPTY

    def places(self, entries: Array) -> tuple[Array, Places]:
        """All rows of these entries: to which entry of the list each belongs, and where it is."""
        heat_entries(self._heat, entries, _MOST_HEAT)
        count = self._rows[entries]
        owner, row = expand(self._row[entries], count, int(count.sum()))
        return owner, Places(self._slot[entries][owner], row)

    def count(self, keys: Array, times: Array) -> Array:
        """How often each key was seen of late, these times included."""
        self._counted += int(times.sum())
        if self._counted > _SEEN_PER_COUNTER * len(self._seen):
            self._seen >>= 1
            self._counted //= 2
        return count_seen(keys, times, self._seen)

    def put(self, groups: Groups) -> None:
        """Take in rows of keys that it does not know, as far as the table has room for them.

        They can be found when there are enough of them beside those in the slot that was filled last.
        """
        while self._entries + len(groups) > _ALMOST * self._most_entries and self._grow_table():
            continue
        if len(groups) > self._most_entries - self._entries:
            self._flush()
        sizes = _group_bytes(groups)
        fits = np.flatnonzero(sizes <= self._most_bytes)[: max(self._most_entries - self._entries, 0)]
        if len(fits) < len(groups):
            groups, sizes = _chosen(groups, fits), sizes[fits]
        for begin, end in portions(sizes, self._most_bytes):
            if self._waiting_bytes + sizes[begin:end].sum() > self._most_bytes:
                self._flush()
            self._wait(_part(groups, begin, end))
        if self._waiting_bytes > _OFTEN * self._open_bytes:
            self._flush()

    def _wait(self, groups: Groups) -> None:
        insert_keys(groups.keys, self._key, self._slot, _ON_THE_WAY)
        self._entries += len(groups)
        self._waiting.append(groups)
        self._waiting_bytes += int(_group_bytes(groups).sum())

    def _flush(self) -> None:
        """Put the rows that wait into slots: the open one, then others, beside those that stay there."""
        while self._waiting_bytes:
            waiting = _joined(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            found = self._open_slot() or self._next_slot()
            if found is None:
                self._remove(waiting.keys)
                return
            slot, kept = found
            kept_bytes = int(_group_bytes(kept).sum())
            ends = np.cumsum(_group_bytes(waiting))
            end = int(np.searchsorted(ends, self._most_bytes - kept_bytes, "right"))
            if end:
                self._fill(slot, _joined([kept, _part(waiting, 0, end)]))
            self._open = slot
            self._open_bytes = kept_bytes + int(ends[end - 1] if end else 0)
            if end < len(waiting):
                self._open = EMPTY
                self._waiting = [_part(waiting, end, len(waiting))]
                self._waiting_bytes = int(ends[-1]) - (int(ends[end - 1]) if end else 0)

    def _open_slot(self) -> tuple[int, Groups] | None:
        """The slot that was filled last, and all its rows; None if it is full."""
        if self._open == EMPTY:
            return None
        entries = self._entries_of(self._open)
        return self._open, replace(self._take(entries), heat=self._heat[entries])

    def drop(self, keys: Array) -> None:
        """Forget these keys."""
        self._remove(keys)
        if self._waiting:
            waiting = _joined(self._waiting)
            left = _chosen(waiting, np.flatnonzero(~np.isin(waiting.keys, keys)))
            self._waiting, self._waiting_bytes = [left], int(_group_bytes(left).sum())

    def _remove(self, keys: Array) -> None:
        self._entries -= remove_keys(keys, self._key, self._slot, self._row, self._rows, self._heat)

    def group_bytes(self, rows: Array) -> Array:
        """About what keys with so many rows each take."""
        return np.asarray(rows * self._row_bytes + _ENTRY_BYTES / _FULLEST)

    @property
    def free_bytes(self) -> int:
        """Of slots that hold nothing."""
        return self._arena.free_slots * self._arena.slot_bytes

    def forget(self, least_heat: Callable[[Array], Array | float]) -> bool:
        """Forget keys that are colder than those with so many rows must be; the others lose half their heat.

        Returns:
            Whether slots have become free.
        """
        entries = np.flatnonzero(self._slot >= 0)
        is_cold = self._heat[entries] < np.minimum(least_heat(self._rows[entries]), _MOST_HEAT)
        self._remove(self._key[entries[is_cold]])
        self._heat >>= 1
        free_before = self._arena.free_slots
        entries = np.flatnonzero(self._slot >= 0)
        rows = np.bincount(self._slot[entries], self._rows[entries], self._arena.all_slots)
        for slot in [slot for slot in self._turns if 2 * rows[slot] < self.columns.rows[slot]]:
            self._unpack(slot)
        return self._arena.free_slots > free_before

    def _unpack(self, slot: int) -> None:
        """Take what is left in a slot out of it, to be packed with others."""
        entries = self._entries_of(slot)
        groups = replace(self._take(entries), heat=self._heat[entries])
        self._slot[entries] = _ON_THE_WAY
        self._turns.remove(slot)
        self._close_slot(slot)
        self._arena.free(np.array([slot], np.int32))
        self._waiting.append(groups)
        self._waiting_bytes += int(_group_bytes(groups).sum())
        if self._waiting_bytes > self._most_bytes // 2:
            self._flush()

    def _close_slot(self, slot: int) -> None:
        if slot == self._open:
            self._open, self._open_bytes = EMPTY, 0

    def keys(self) -> Array:
        """All keys, in no order."""
        return self._key[self._slot != EMPTY]

    def give_back(self, wanted_bytes: int) -> int:
        """Do with so many bytes less, if there are as many in slots; returns how many it is."""
        arena = self._arena
        slots = -(-wanted_bytes // (arena.slot_bytes * arena.grain)) * arena.grain
        slots = min(slots, arena.capacity)
        while arena.free_slots < slots:
            slot = self._turns.popleft()
            self._close_slot(slot)
            self._remove(self._key[self._entries_of(slot)])
            arena.free(np.array([slot], np.int32))
        source, target = arena.shrink(slots)
        self.columns.move(source, target)
        moved = dict(zip(source.tolist(), target.tolist(), strict=True))
        for slot, place in moved.items():
            self._slot[self._slot == slot] = place
        self._turns = deque(moved.get(slot, slot) for slot in self._turns)
        self._open = moved.get(self._open, self._open)
        self.bytes -= slots * arena.slot_bytes
        return slots * arena.slot_bytes

    def clear(self) -> None:
        """Forget everything but how often keys were seen."""
        self._slot.fill(EMPTY)
        self._entries = 0
        self._arena.free(np.array(self._turns, np.int32))
        self._turns.clear()
        self._open, self._open_bytes = EMPTY, 0
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        """Let go of the memory."""
        self._arena.close()

    def check_invariants(self) -> None:
        self._arena.check_invariants()
        taken = np.flatnonzero(self._slot != EMPTY)
        assert len(taken) == self._entries <= self._most_entries
        assert (find_keys(self._key[taken], self._key, self._slot) == taken).all()
        assert set(self._slot[taken].tolist()) <= {*self._turns, _ON_THE_WAY}
        assert len(set(self._turns)) == len(self._turns) == self._arena.capacity - self._arena.free_slots
        there = taken[self._slot[taken] != _ON_THE_WAY]
        assert (self._row[there] + self._rows[there] <= self.columns.rows[self._slot[there]]).all()
        assert self._open in {EMPTY, *self._turns}

    def _next_slot(self) -> tuple[int, Groups] | None:
        """A slot to fill, and what stays of the rows that were in it; None if there is no slot."""
        if not (self._is_tight and self._turns) and (self._arena.free_slots or self._grow()):
            slot = int(self._arena.take(1)[0])
            self._turns.append(slot)
            return slot, _none(self.schema)
        if not self._turns:
            return None
        slot = self._turns.popleft()
        self._turns.append(slot)
        return slot, self._empty(slot)

    def _grow(self) -> bool:
        arena = self._arena
        more_bytes = arena.grain * arena.slot_bytes
        if arena.capacity + arena.grain > arena.slots or not self._ask(more_bytes):
            return False
        arena.grow(arena.grain)
        self.bytes += more_bytes
        return True

    def _entries_of(self, slot: int) -> Array:
        """The entries whose rows are in the slot, in the order of the rows."""
        begin = int(self._arena.slot_base[slot] + self.columns.offset(self.layout[0].buffers[1])[slot]) >> 3
        held = self._arena.words[begin : begin + int(self.columns.rows[slot])]
        entries = find_keys(np.unique(held), self._key, self._slot)
        entries = entries[entries != EMPTY]
        entries = entries[self._slot[entries] == slot]
        return entries[np.argsort(self._row[entries])]

    def _empty(self, slot: int) -> Groups:
        entries = self._entries_of(slot)
        kept = entries[self._heat[entries] > 0]
        groups = self._take(kept)
        limit = int(_MOST_KEPT * self._most_bytes)
        sizes = _group_bytes(groups)
        if sizes.sum() > limit:
            warmest = np.argsort(-groups.heat.astype(np.int32), kind="stable")
            groups = _chosen(groups, np.sort(warmest[: np.searchsorted(np.cumsum(sizes[warmest]), limit)]))
        if len(entries):
            self.kept_share += (len(groups) / len(entries) - self.kept_share) / 8
        keys = self._key[entries]
        self._remove(keys[~np.isin(keys, groups.keys)])
        return groups

    def _take(self, entries: Array) -> Groups:
        count = self._rows[entries]
        owner, row = expand(self._row[entries], count, int(count.sum()))
        places = Places(self._slot[entries][owner], row)
        arrays = [self.columns.take(column, places) for column in self.layout]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Groups(self._key[entries].copy(), count, batch, self._heat[entries] >> 1)

    def _fill(self, slot: int, groups: Groups) -> None:
        message = np.frombuffer(groups.batch.serialize(), np.uint8)
        base = int(self._arena.slot_base[slot])
        self._arena.bytes[base : base + len(message)] = message
        find_buffers(
            self._arena.bytes,
            self._arena.words,
            base,
            self.columns.wanted,
            self.columns.offsets,
            self.columns.rows,
            slot,
        )
        entries = find_keys(groups.keys, self._key, self._slot)
        assert (entries != EMPTY).all()
        self._slot[entries] = slot
        self._row[entries] = np.cumsum(groups.rows) - groups.rows
        self._rows[entries] = groups.rows
        self._heat[entries] = groups.heat


def _none(schema: pa.Schema) -> Groups:
    batch = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return Groups(np.empty(0, np.int64), np.empty(0, np.int32), batch, np.empty(0, np.uint8))


def _group_bytes(groups: Groups) -> Array:
    ends = np.concatenate([[0], np.cumsum(row_bytes(groups.batch))])
    bounds = np.concatenate([[0], np.cumsum(groups.rows)])
    return np.diff(ends[bounds])


def _part(groups: Groups, begin: int, end: int) -> Groups:
    bounds = np.concatenate([[0], np.cumsum(groups.rows)])
    batch = groups.batch.slice(bounds[begin], bounds[end] - bounds[begin])
    return Groups(groups.keys[begin:end], groups.rows[begin:end], batch, groups.heat[begin:end])


def _chosen(groups: Groups, chosen: Array) -> Groups:
    rows = groups.rows[chosen]
    starts = (np.cumsum(groups.rows) - groups.rows)[chosen]
    _, row = expand(starts.astype(np.int32), rows, int(rows.sum()))
    return Groups(groups.keys[chosen], rows, take_rows(groups.batch, row), groups.heat[chosen])


def _joined(parts: list[Groups]) -> Groups:
    return Groups(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.rows for part in parts]).astype(np.int32),
        join_batches([part.batch for part in parts]),
        np.concatenate([part.heat for part in parts]),
    )
