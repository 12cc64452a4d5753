"""Slots of an arena, each holding rows as an Arrow record batch."""

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import message_of, message_overhead
from adjoin.kernels.pages import find_buffers
from adjoin.kernels.types import Array
from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import Column, PageColumns, Places, columns_of
from adjoin.memory.page_memory import PageMemory


class RowSlots:
    """Rows in slots, addressed by slot and row.

    Args:
        schema: The columns of the rows.
        slots: The maximum number of slots.
        slot_bytes: Size of a slot.
        memory: Where the slots lie; private memory by default.

    Attributes:
        layout: The columns.
        columns: Where the buffers are in each slot.
        room_bytes: Bytes of rows that fit into a slot.
    """

    def __init__(
        self,
        schema: pa.Schema,
        slots: int,
        slot_bytes: int,
        memory: PageMemory | None = None,
    ) -> None:
        self.schema = schema
        self.layout: list[Column] = columns_of(schema)
        self._arena = Arena(0, slots, slot_bytes, 0, 0, memory)
        self.columns = PageColumns(self._arena, self.layout)
        self.room_bytes = slot_bytes - message_overhead(schema)

    @staticmethod
    def notes_bytes(schema: pa.Schema) -> int:
        """Bytes of bookkeeping for a slot."""
        return Arena.bookkeeping_bytes + PageColumns.bytes_per_slot(columns_of(schema))

    def fill(self, slot: int, batch: pa.RecordBatch) -> Array:
        """Replace the rows in the slot with these; returns their Arrow message."""
        message = np.frombuffer(message_of(batch, self._arena.slot_bytes), np.uint8)
        base = int(self._arena.slot_base[slot])
        self._arena.bytes[base : base + len(message)] = message
        self.note(slot)
        return message

    def note(self, slot: int) -> None:
        """Record where the columns are after a record batch was written to the slot."""
        arena, columns = self._arena, self.columns
        base = int(arena.slot_base[slot])
        is_whole = find_buffers(
            arena.bytes,
            arena.words,
            base,
            arena.slot_bytes,
            columns.wanted[0],
            columns.offsets,
            columns.rows,
            slot,
        )
        assert is_whole, f"slot {slot} holds no record batch of at most {arena.slot_bytes} bytes"

    def lay_out(self, slot: int, rows: int, begins: Array) -> None:
        """Set the number of rows in the slot, and where each buffer begins (-1 if there is none)."""
        self.columns.offsets[:, slot] = begins
        self.columns.rows[slot] = rows

    def rows_at(self, places: Places) -> pa.RecordBatch:
        """A copy of the rows at these places."""
        arrays = [self.columns.take(column, places) for column in self.layout]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def give_back(self, slot: int) -> None:
        """Return the memory of a slot that is no longer needed to the system."""
        base = int(self._arena.slot_base[slot])
        self._arena.memory.give_back(base, base + self._arena.slot_bytes)

    def bytes_of(self, slot: int, length: int) -> Array:
        """The first bytes of the slot, in place."""
        base = int(self._arena.slot_base[slot])
        return self._arena.bytes[base : base + length]

    def close(self) -> None:
        """Release the memory."""
        self._arena.close()
        self.columns.close()
