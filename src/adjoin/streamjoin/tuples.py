"""Tuples of one input that are in memory: packed in slots, found by key."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.parts.columns import Places
from adjoin.parts.copying import compact, join_batches
from adjoin.parts.pagememory import FinePages
from adjoin.parts.portions import portions
from adjoin.parts.rows import row_bytes
from adjoin.parts.rowslots import RowSlots
from adjoin.streamjoin.index import Entries, OrderedIndex
from adjoin.streamjoin.spec import Keyed

ARRIVED = "_adjoin_arrived"
_NO_SLOT = -1
_WORTH_MOVING = 2 / 3
"""A slot that is filled less is given up: its rows fill others. Less would move more rows for each slot."""


def stored_schema(plain: pa.Schema) -> pa.Schema:
    """The columns of a tuple as it is kept: when it arrived, then its own."""
    return pa.schema([pa.field(ARRIVED, pa.int64(), False), *plain])


class Tuples:
    """Tuples in memory.

    Rows lie in slots in the order in which they came. A row that goes leaves a hole; slots without rows are
    free, and `close_up` moves the rows of the emptiest slot together with others.

    Args:
        plain: The schema of the rows, in plain types.
        are_points: Whether their intervals are single keys.
        slots: The most slots.
        slot_bytes: A slot.

    Attributes:
        index: The tuples by key.
        slots: Where they lie.
    """

    def __init__(self, plain: pa.Schema, *, are_points: bool, slots: int, slot_bytes: int) -> None:
        self.schema = stored_schema(plain)
        self._are_points = are_points
        self.index = OrderedIndex(are_points=are_points)
        self.slots = RowSlots(self.schema, slots, slot_bytes, memory=FinePages())
        self._free = list(range(slots - 1, -1, -1))
        self._rows: Array = np.zeros(slots, np.int32)
        self._filled: Array = np.zeros(slots, np.int64)
        self._open = _NO_SLOT

    def __len__(self) -> int:
        return len(self.index)

    @property
    def used_slots(self) -> int:
        """Slots with tuples."""
        return int(np.count_nonzero(self._rows))

    def take_slot(self) -> int:
        """A slot that nothing else will use until it is freed."""
        return self._free.pop()

    def free_slot(self, slot: int) -> None:
        """The slot is not needed any more; its memory is the system's."""
        self.slots.give_back(slot)
        self._free.append(slot)

    def stored(self, rows: Keyed, arrived: Array) -> pa.RecordBatch:
        """The rows as they are kept."""
        return pa.RecordBatch.from_arrays([pa.array(arrived), *rows.batch.columns], schema=self.schema)

    def slots_for(self, sizes: Array) -> int:
        """How many new slots rows of these sizes need."""
        first = self._rows_in_open_slot(sizes) if self._are_few(sizes) else 0
        return sum(1 for _ in portions(sizes[first:], self.slots.room_bytes))

    def _are_few(self, sizes: Array) -> bool:
        """Few rows go where others are, which are written once more; many have slots of their own."""
        return 2 * int(sizes.sum()) <= self.slots.room_bytes

    def _rows_in_open_slot(self, sizes: Array) -> int:
        if self._open == _NO_SLOT:
            return 0
        room = self.slots.room_bytes - int(self._filled[self._open])
        return int(np.searchsorted(np.cumsum(sizes), room, "right"))

    def rows_of_a_slot(self, more_bytes: int) -> int:
        """How many tuples fit in a slot, with so many bytes more for each."""
        used = np.flatnonzero(self._rows)
        rows = int(self.slots.columns.rows[used].sum())
        mean = float(self._filled[used].sum()) / rows if rows else float(self.slots.room_bytes)
        return max(1, int(self.slots.room_bytes / (mean + more_bytes)))

    def add(self, stored: pa.RecordBatch, low: Array, high: Array) -> None:
        """Tuples in the order of their lower ends; there must be slots for them."""
        sizes = row_bytes(stored)
        self.index.add(low, high, self._put(stored, sizes, is_filling=self._are_few(sizes)))

    def _put(self, stored: pa.RecordBatch, sizes: Array, *, is_filling: bool) -> Array:
        """Put rows into slots, at first into the open one if they are to fill it; returns where each is."""
        places = [np.empty(0, np.int64)]
        begin = self._rows_in_open_slot(sizes) if is_filling else 0
        if begin:
            places.append(self._append(self._open, stored.slice(0, begin), int(sizes[:begin].sum())))
        for first, last in portions(sizes[begin:], self.slots.room_bytes):
            slot = self.take_slot()
            self._filled[slot] = 0
            part = slice(begin + first, begin + last)
            places.append(self._append(slot, stored.slice(part.start, last - first), int(sizes[part].sum())))
            if self._open == _NO_SLOT or self._filled[slot] < self._filled[self._open]:
                self._open = slot  # the one with more room
        return np.concatenate(places)

    def _append(self, slot: int, rows: pa.RecordBatch, more_bytes: int) -> Array:
        there = int(self.slots.columns.rows[slot]) if self._filled[slot] else 0
        if there:
            before = self.slots.rows_at(
                Places(np.full(there, slot, np.int32), np.arange(there, dtype=np.int32))
            )
            self.slots.fill(slot, join_batches([before, rows]))
        else:
            self.slots.fill(slot, compact(rows))
        self._filled[slot] += more_bytes
        self._rows[slot] += rows.num_rows
        return (np.int64(slot) << 32) + np.arange(there, there + rows.num_rows)

    def rows_at(self, place: Array) -> pa.RecordBatch:
        """Copies of the tuples at these places, as they are kept."""
        return self.slots.rows_at(places_of(place))

    def arrived_at(self, place: Array) -> Array:
        """When the tuples at these places arrived."""
        arrived: Array = self.slots.columns.take(self.slots.layout[0], places_of(place)).to_numpy()
        return arrived

    def remove(self, entries: Entries) -> None:
        """These tuples are not needed here any more."""
        place, _, _ = self.index.places(entries)
        self.index.remove(entries)
        self._leave(place)

    def _leave(self, place: Array) -> None:
        left = np.bincount(place >> 32, minlength=len(self._rows))
        slots = np.flatnonzero(left)
        self._rows[slots] -= left[slots].astype(np.int32)
        for slot in slots[self._rows[slots] == 0].tolist():
            if slot == self._open:
                self._open = _NO_SLOT
            self._filled[slot] = 0
            self.free_slot(slot)

    def close_up(self) -> bool:
        """Move the rows of the emptiest slot elsewhere, if that is worth it; may take one slot for them."""
        used = np.flatnonzero(self._rows)
        used = used[used != self._open]
        if len(used) == 0:
            return False
        left_bytes = self._filled[used] * (self._rows[used] / self.slots.columns.rows[used])
        emptiest = int(np.argmin(left_bytes))
        if left_bytes[emptiest] > _WORTH_MOVING * self.slots.room_bytes:
            return False
        entries = self.index.in_slot(int(used[emptiest]))
        before = self.index.in_order(entries)
        rows = self.rows_at(before)
        self.index.move(entries, self._put(rows, row_bytes(rows), is_filling=True))
        self._leave(before)
        return True

    def dump(self, rows: int) -> Iterator[pa.RecordBatch]:
        """All tuples, about so many at a time, with their intervals and join bits."""
        entries = self.index.all()
        place, low, high = self.index.places(entries)
        joined = self.index.joined(entries)
        for begin in range(0, len(place), rows):
            part = slice(begin, begin + rows)
            states = [pa.array(array[part]) for array in (low, high, joined)]
            columns = [*states, *self.rows_at(place[part]).columns]
            yield pa.RecordBatch.from_arrays(columns, schema=self.dumped_schema)

    def load(self, dumped: pa.RecordBatch) -> None:
        """Take in tuples of which `dump` made this."""
        low, high, joined = (dumped.column(at).to_numpy() for at in range(3))
        stored = pa.RecordBatch.from_arrays(dumped.columns[3:], schema=self.schema)
        places = self._put(stored, row_bytes(stored), is_filling=True)
        self.index.add(low, low if self._are_points else high, places, joined)

    @property
    def dumped_schema(self) -> pa.Schema:
        """Of what `dump` gives."""
        states = [("low", pa.int64()), ("high", pa.int64()), ("joined", pa.uint8())]
        return pa.schema([*(pa.field(f"_adjoin_{name}", type_) for name, type_ in states), *self.schema])

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself."""
        self.index.check_invariants()
        place, _, _ = self.index.places(self.index.all())
        rows = np.bincount(place >> 32, minlength=len(self._rows))
        assert (rows == self._rows).all()
        assert not set(self._free) & set(np.flatnonzero(rows).tolist())
        assert len(set(self._free)) == len(self._free)


def places_of(place: Array) -> Places:
    """Slot and row of each packed place."""
    return Places((place >> 32).astype(np.int32), (place & 0xFFFFFFFF).astype(np.int32))
