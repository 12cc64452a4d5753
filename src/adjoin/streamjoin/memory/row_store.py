"""The rows of an input in memory: in slots, each at a place that changes only when slots are closed up."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import compact, join_batches
from adjoin.arrow.row_sizes import row_bytes
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import NO_BUFFER, Column, Places, columns_of
from adjoin.memory.page_memory import FinePages
from adjoin.memory.row_slots import RowSlots
from adjoin.operators.portions import portions

_NO_SLOT = -1
_WORTH_MOVING = 2 / 3
"""A slot filled less than this is emptied into others; a higher limit moves more rows per freed slot."""
HOLE_BYTES = 8
"""What it takes to remember a hole."""
_ALIGNED = 8


def row_store(schema: pa.Schema, slots: int, slot_bytes: int) -> "RowStore":
    """A store for rows with these columns."""
    kind = RowsOfOneSize if RowsOfOneSize.can_take(schema) else RowsOfAnySize
    return kind(schema, slots, slot_bytes)


class RowStore(ABC):
    """Rows in slots; slots without rows are free.

    Args:
        schema: The columns of the rows.
        slots: The maximum number of slots.
        slot_bytes: Size of a slot.

    Attributes:
        slots: The slots.
    """

    def __init__(self, schema: pa.Schema, slots: int, slot_bytes: int) -> None:
        self.slots = RowSlots(schema, slots, slot_bytes, memory=FinePages())
        self._slot_bytes = slot_bytes
        self._free = list(range(slots - 1, -1, -1))
        self._live: Array = np.zeros(slots, np.int32)

    @property
    def held_bytes(self) -> int:
        """Memory that the slots take."""
        return int(np.count_nonzero(self._live)) * self._slot_bytes

    def take_slot(self) -> int:
        """A slot for the exclusive use of the caller until it is freed."""
        return self._free.pop()

    def free_slot(self, slot: int) -> None:
        """Free a slot and return its memory to the system."""
        self.slots.give_back(slot)
        self._free.append(slot)

    def new_bytes(self, sizes: Array) -> int:
        """How much more memory is held once rows of these sizes have been added."""
        return self._new_slots(sizes) * self._slot_bytes

    @abstractmethod
    def _new_slots(self, sizes: Array) -> int: ...

    @property
    @abstractmethod
    def mean_bytes(self) -> float:
        """Mean size of a row."""

    @abstractmethod
    def put(self, rows: pa.RecordBatch) -> Array:
        """Store new rows and return their places."""

    def put_densely(self, rows: pa.RecordBatch) -> Array:
        """Like `put`, for rows that are moved: it leaves no gaps, even if other rows must be rewritten."""
        return self.put(rows)

    @abstractmethod
    def sparse_slot(self) -> int | None:
        """A slot that is worth emptying because its rows fit in the gaps of others; None if there is none."""

    def leave(self, place: Array) -> None:
        """Remove the rows at these places."""
        gone = np.bincount(place >> 32, minlength=len(self._live))
        slots = np.flatnonzero(gone)
        self._live[slots] -= gone[slots].astype(np.int32)
        for slot in slots[self._live[slots] == 0].tolist():
            self.empty(slot)

    def empty(self, slot: int) -> None:
        """Remove all rows in this slot."""
        self._live[slot] = 0
        self.free_slot(slot)

    def clear(self) -> None:
        """Remove all rows."""
        for slot in np.flatnonzero(self._live).tolist():
            self.empty(slot)

    def rows_at(self, place: Array) -> pa.RecordBatch:
        """Copies of the rows at these places."""
        return self.slots.rows_at(places_of(place))

    def check_invariants(self, place: Array) -> None:
        """Raise AssertionError unless exactly the rows at these places are stored."""
        assert (np.bincount(place >> 32, minlength=len(self._live)) == self._live).all()
        assert not set(self._free) & set(np.flatnonzero(self._live).tolist())
        assert len(set(self._free)) == len(self._free)


class RowsOfAnySize(RowStore):
    """Rows of any size, one after the other; the gap that a row leaves stays until its slot is emptied."""

    def __init__(self, schema: pa.Schema, slots: int, slot_bytes: int) -> None:
        super().__init__(schema, slots, slot_bytes)
        self._filled: Array = np.zeros(slots, np.int64)
        self._open = _NO_SLOT

    @property
    def mean_bytes(self) -> float:
        """Mean size of a row, counting those that have left a gap."""
        used = np.flatnonzero(self._live)
        rows = int(self.slots.columns.rows[used].sum())
        return float(self._filled[used].sum()) / rows if rows else float(self.slots.room_bytes)

    def _new_slots(self, sizes: Array) -> int:
        first = self._rows_in_open_slot(sizes) if self._are_few(sizes) else 0
        return sum(1 for _ in portions(sizes[first:], self.slots.room_bytes))

    def _are_few(self, sizes: Array) -> bool:
        """Whether rows are so few that they go into a slot with others, which must be rewritten."""
        return 2 * int(sizes.sum()) <= self.slots.room_bytes

    def _rows_in_open_slot(self, sizes: Array) -> int:
        if self._open == _NO_SLOT:
            return 0
        room = self.slots.room_bytes - int(self._filled[self._open])
        return int(np.searchsorted(np.cumsum(sizes), room, "right"))

    def put(self, rows: pa.RecordBatch) -> Array:
        """Store new rows and return their places."""
        sizes = row_bytes(rows)
        return self._put(rows, sizes, self._rows_in_open_slot(sizes) if self._are_few(sizes) else 0)

    def put_densely(self, rows: pa.RecordBatch) -> Array:
        """Like `put`, for rows that are moved: the first ones fill up the open slot."""
        sizes = row_bytes(rows)
        return self._put(rows, sizes, self._rows_in_open_slot(sizes))

    def _put(self, rows: pa.RecordBatch, sizes: Array, begin: int) -> Array:
        """Put the rows up to `begin` into the open slot, the others into new ones."""
        places = [np.empty(0, np.int64)]
        if begin:
            places.append(self._append(self._open, rows.slice(0, begin), int(sizes[:begin].sum())))
        for first, last in portions(sizes[begin:], self.slots.room_bytes):
            slot = self.take_slot()
            self._filled[slot] = 0
            part = slice(begin + first, begin + last)
            places.append(self._append(slot, rows.slice(part.start, last - first), int(sizes[part].sum())))
            if self._open == _NO_SLOT or self._filled[slot] < self._filled[self._open]:
                self._open = slot  # the one with more room
        return np.concatenate(places)

    def _append(self, slot: int, rows: pa.RecordBatch, more_bytes: int) -> Array:
        there = int(self.slots.columns.rows[slot]) if self._filled[slot] else 0
        if there:
            before = self.rows_at(_all_places(slot, there))
            self.slots.fill(slot, join_batches([before, rows]))
        else:
            self.slots.fill(slot, compact(rows))
        self._filled[slot] += more_bytes
        self._live[slot] += rows.num_rows
        return _all_places(slot, there + rows.num_rows)[there:]

    def sparse_slot(self) -> int | None:
        """The slot with the fewest bytes of rows, if it has gaps, or if the open slot takes all its rows.

        Emptying it leaves fewer slots, or fewer with gaps, so that this comes to an end.
        """
        used = np.flatnonzero(self._live)
        used = used[used != self._open]
        rows = self.slots.columns.rows[used]
        left_bytes = self._filled[used] * (self._live[used] / np.maximum(rows, 1))
        open_bytes = self.slots.room_bytes - int(self._filled[self._open]) if self._open != _NO_SLOT else 0
        is_worth_it = left_bytes <= _WORTH_MOVING * self.slots.room_bytes
        is_worth_it &= (self._live[used] < rows) | (left_bytes <= open_bytes)
        if not is_worth_it.any():
            return None
        return int(used[np.argmin(np.where(is_worth_it, left_bytes, np.inf))])

    def empty(self, slot: int) -> None:
        """Remove all rows in this slot."""
        if slot == self._open:
            self._open = _NO_SLOT
        self._filled[slot] = 0
        super().empty(slot)


class RowsOfOneSize(RowStore):
    """Rows of one size: a new one takes the hole that another left."""

    def __init__(self, schema: pa.Schema, slots: int, slot_bytes: int) -> None:
        super().__init__(schema, slots, slot_bytes)
        self._row_bytes = float(row_bytes(_one_row(schema))[0])
        self._slot_rows, self._begins = _divided(self.slots.layout, slot_bytes)
        self._has_nulls = [False] * len(schema)
        self._holes: Array = np.empty(0, np.int64)

    @staticmethod
    def can_take(schema: pa.Schema) -> bool:
        """Whether all rows with these columns have the same size."""
        if any(isinstance(field.type, pa.BaseExtensionType) for field in schema):
            return False
        return all(column.kind in ("null", "bits", "fixed") for column in columns_of(schema))

    @property
    def held_bytes(self) -> int:
        """Memory that rows, holes and the list of holes take."""
        return super().held_bytes + len(self._holes) * HOLE_BYTES

    @property
    def mean_bytes(self) -> float:
        """Mean size of a row."""
        return self._row_bytes

    def _new_slots(self, sizes: Array) -> int:
        return max(0, -(-(len(sizes) - len(self._holes)) // self._slot_rows))

    def new_bytes(self, sizes: Array) -> int:
        """How much more memory is held once rows of these sizes have been added."""
        new = self._new_slots(sizes)
        return new * self._slot_bytes + max(0, new * self._slot_rows - len(sizes)) * HOLE_BYTES

    def put(self, rows: pa.RecordBatch) -> Array:
        """Store new rows in holes, and in new slots if there are too few; returns their places."""
        self._note_nulls(rows)
        place = self._take_places(rows.num_rows)
        places = places_of(place)
        for column, values in zip(self.slots.layout, rows.columns, strict=True):
            self.slots.columns.put(column, places, values)
        return place

    def _take_places(self, count: int) -> Array:
        while len(self._holes) < count:
            slot = self.take_slot()
            self.slots.lay_out(slot, self._slot_rows, self._begins_now())
            self._holes = np.concatenate([self._holes, _all_places(slot, self._slot_rows)])
        place, self._holes = self._holes[:count], self._holes[count:]
        self._live += np.bincount(place >> 32, minlength=len(self._live)).astype(np.int32)
        return place

    def _begins_now(self) -> Array:
        """Where the buffers of a slot begin; columns that never had a null have no validity bits."""
        begins = [
            NO_BUFFER if is_validity and not self._has_nulls[number] else begin
            for number, is_validity, begin in self._begins
        ]
        return np.array(begins, np.int32)

    def _note_nulls(self, rows: pa.RecordBatch) -> None:
        """From the first null of a column on, its rows have validity bits."""
        for number, values in enumerate(rows.columns):
            column = self.slots.layout[number]
            if values.null_count and column.buffers and not self._has_nulls[number]:
                self._has_nulls[number] = True
                begins, places = self._begins_now(), self._used_places()
                for slot in np.flatnonzero(self._live).tolist():
                    self.slots.lay_out(slot, self._slot_rows, begins)
                self.slots.columns.put_validity(column, places_of(places), None)

    def _used_places(self) -> Array:
        return np.concatenate(
            [np.empty(0, np.int64)]
            + [_all_places(slot, self._slot_rows) for slot in np.flatnonzero(self._live).tolist()]
        )

    def leave(self, place: Array) -> None:
        """Remove the rows at these places, which become holes."""
        self._holes = np.concatenate([self._holes, place])
        super().leave(place)

    def clear(self) -> None:
        """Remove all rows."""
        self._holes = self._holes[:0]
        super().clear()

    def empty(self, slot: int) -> None:
        """Remove all rows in this slot."""
        self._holes = self._holes[self._holes >> 32 != slot]
        super().empty(slot)

    def sparse_slot(self) -> int | None:
        """The slot with the fewest rows, if there are holes for them elsewhere."""
        if len(self._holes) < self._slot_rows:
            return None
        used = np.flatnonzero(self._live)
        return int(used[np.argmin(self._live[used])])

    def check_invariants(self, place: Array) -> None:
        """Raise AssertionError unless rows and holes are exactly the places in the slots in use."""
        super().check_invariants(place)
        assert (np.sort(np.concatenate([place, self._holes])) == np.sort(self._used_places())).all()


def places_of(place: Array) -> Places:
    """Slot and row of each packed place."""
    return Places((place >> 32).astype(np.int32), (place & 0xFFFFFFFF).astype(np.int32))


def _all_places(slot: int, rows: int) -> Array:
    return (np.int64(slot) << 32) + np.arange(rows)


def _one_row(schema: pa.Schema) -> pa.RecordBatch:
    nulls = [pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(nulls, names=schema.names)


def _divided(columns: Sequence[Column], slot_bytes: int) -> tuple[int, list[tuple[int, bool, int]]]:
    """How many rows fit in a slot; and for every buffer, its column, if it is validity, and its offset."""
    bits = sum(1 + (8 * column.width or 1) for column in columns if column.buffers)
    rows = 8 * slot_bytes // max(bits, 1)
    while True:
        begins, end = [], 0
        for number, column in enumerate(columns):
            for is_validity in (True, False) if column.buffers else ():
                begins.append((number, is_validity, end))
                width = 0 if is_validity else column.width
                end += -(-(rows * width or -(-rows // 8)) // _ALIGNED) * _ALIGNED
        if end <= slot_bytes:
            return rows, begins
        rows -= 1
