"""The tuples of one input that are in memory: packed in slots, found by key."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.memory.row_slots import RowSlots
from adjoin.streamjoin.memory.ordered_index import Entries, OrderedIndex
from adjoin.streamjoin.memory.row_store import places_of, row_store

ARRIVED = "_adjoin_arrived"
TIME = "_adjoin_time"
"""The columns of a stored tuple with the moment of its arrival, and with its time, if that is bounded."""


def tuple_schema(plain: pa.Schema) -> pa.Schema:
    """The columns of a stored tuple: its moment of arrival (ATS), then those of the row."""
    return pa.schema([pa.field(ARRIVED, pa.int64(), False), *plain])


KeyIntervals = Sequence[tuple[Array, Array]]
"""For each join attribute, the lower and upper ends of the key intervals of some tuples."""


class MemoryTuples:
    """The tuples of one input that are in memory.

    Args:
        schema: The columns of a stored tuple.
        are_points: For each join attribute, whether intervals are single keys.
        slots: The maximum number of slots.
        slot_bytes: Size of a slot.

    Attributes:
        indexes: The tuples by each join attribute.
        store: Holds the rows.
    """

    def __init__(self, schema: pa.Schema, *, are_points: Sequence[bool], slots: int, slot_bytes: int) -> None:
        self.schema = schema
        self.indexes = [OrderedIndex(are_points=points) for points in are_points]
        self.store = row_store(self.schema, slots, slot_bytes)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def index(self) -> OrderedIndex:
        """The tuples by the first join attribute."""
        return self.indexes[0]

    @property
    def slots(self) -> RowSlots:
        """The slots that hold the rows."""
        return self.store.slots

    @property
    def held_bytes(self) -> int:
        """Memory that the tuples and their indexes take."""
        return self.store.held_bytes + self.index_bytes

    @property
    def index_bytes(self) -> int:
        """Memory that their indexes take."""
        return sum(index.all_entries * index.entry_bytes for index in self.indexes)

    @property
    def merge_bytes(self) -> int:
        """Memory needed in addition while the runs of an index are merged, one index at a time."""
        return max(index.all_entries * index.merge_bytes for index in self.indexes)

    def new_bytes(self, sizes: Array) -> int:
        """An upper bound of the memory that rows of these sizes take, including that for merging."""
        entry_bytes = sum(index.entry_bytes for index in self.indexes)
        merge_bytes = max(index.merge_bytes for index in self.indexes)
        return self.store.new_bytes(sizes) + len(sizes) * (entry_bytes + merge_bytes)

    def rows_of_a_slot(self, more_bytes: int) -> int:
        """About how many tuples fit in a slot if each takes `more_bytes` in addition."""
        return max(1, int(self.slots.room_bytes / (self.store.mean_bytes + more_bytes)))

    def stored(self, batch: pa.RecordBatch, arrived: Array) -> pa.RecordBatch:
        """Rows as stored tuples."""
        return pa.RecordBatch.from_arrays([pa.array(arrived), *batch.columns], schema=self.schema)

    def add(
        self,
        stored: pa.RecordBatch,
        keys: KeyIntervals,
        *,
        densely: bool = False,
        marks: Array | None = None,
    ) -> None:
        """Add tuples in the order of the first attribute's lower ends; there must be memory for them.

        The index of that attribute keeps their marks, if they have any.
        """
        place = self.store.put_densely(stored) if densely else self.store.put(stored)
        self.index.add(*keys[0], place, marks)
        for index, (low, high) in zip(self.indexes[1:], keys[1:], strict=True):
            order = argsort_keys(low)
            index.add(low[order], high[order], place[order])

    def rows_at(self, place: Array) -> pa.RecordBatch:
        """Copies of the stored tuples at these places."""
        return self.store.rows_at(place)

    def arrived_at(self, place: Array) -> Array:
        """When the tuples at these places arrived."""
        arrived: Array = self.slots.columns.take(self.slots.layout[0], places_of(place)).to_numpy()
        return arrived

    def everywhere(self, attribute: int, entries: Entries) -> list[Entries]:
        """The entries of tuples in all indexes, from those in the index of one attribute."""
        if len(self.indexes) == 1:
            return [entries]
        place = np.sort(self.indexes[attribute].places_in_order(entries))
        return [
            entries if number == attribute else index.at(place) for number, index in enumerate(self.indexes)
        ]

    def remove(self, entries: Sequence[Entries]) -> None:
        """Remove tuples, given by their entries in all indexes."""
        place = self.index.places_in_order(entries[0])
        for index, some in zip(self.indexes, entries, strict=True):
            index.remove(some)
        self.store.leave(place)

    def clear(self) -> None:
        """Remove all tuples."""
        self.indexes = [index.emptied() for index in self.indexes]
        self.store.clear()

    def close_up(self) -> bool:
        """Whether a slot could be emptied by moving its rows to others."""
        slot = self.store.sparse_slot()
        if slot is None:
            return False
        before = self.index.in_slot(slot)
        rows = self.rows_at(before)
        self.store.empty(slot)
        after = self.store.put_densely(rows)
        for index in self.indexes:
            index.move(before, after)
        return True

    def dump(self, rows: int) -> Iterator[pa.RecordBatch]:
        """All tuples, `rows` at a time, with their intervals and join bits."""
        states = [index.by_place() for index in self.indexes]
        place = states[0][0]
        for begin in range(0, len(place), rows):
            part = slice(begin, begin + rows)
            notes = [pa.array(array[part]) for state in states for array in state[1:]]
            columns = [*notes, *self.rows_at(place[part]).columns]
            yield pa.RecordBatch.from_arrays(columns, schema=self.dumped_schema)

    def load(self, dumped: pa.RecordBatch) -> None:
        """Add a batch of tuples that `dump` returned."""
        notes = [column.to_numpy() for column in dumped.columns[: 3 * len(self.indexes)]]
        stored = pa.RecordBatch.from_arrays(dumped.columns[len(notes) :], schema=self.schema)
        place = self.store.put_densely(stored)
        for number, index in enumerate(self.indexes):
            low, high, joined = notes[3 * number : 3 * number + 3]
            order = argsort_keys(low)
            index.add(low[order], high[order], place[order], joined[order])

    @property
    def dumped_schema(self) -> pa.Schema:
        """The schema of what `dump` returns."""
        states = [("low", pa.int64()), ("high", pa.int64()), ("joined", pa.uint8())]
        notes = [
            pa.field(f"_adjoin_{name}_{number}", type_)
            for number in range(len(self.indexes))
            for name, type_ in states
        ]
        return pa.schema([*notes, *self.schema])

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself."""
        place, *_ = self.index.by_place()
        for index in self.indexes:
            index.check_invariants()
            assert (index.by_place()[0] == place).all()
        self.store.check_invariants(place)
