"""Slots of an arena that each hold rows as an Arrow record batch."""

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import message_of, message_overhead
from adjoin.kernels.pages import find_buffers
from adjoin.kernels.types import Array
from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import Column, PageColumns, Places, columns_of
from adjoin.memory.page_memory import PageMemory


class RowSlots:
    """Rows in slots, found by slot and row.

    Args:
        schema: The columns of the rows.
        slots: The most slots.
        slot_bytes: A slot.
        memory: Where they lie; private memory by default.

    Attributes:
        layout: The columns.
        columns: Where the buffers of the slots are.
        room_bytes: Bytes of rows that a slot can take.
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
        """What the notes on a slot take."""
        return Arena.bookkeeping_bytes + PageColumns.bytes_per_slot(columns_of(schema))

    def fill(self, slot: int, batch: pa.RecordBatch) -> Array:
        """Put these rows in the slot, in place of those that were there; returns their message."""
        message = np.frombuffer(message_of(batch, self._arena.slot_bytes), np.uint8)
        base = int(self._arena.slot_base[slot])
        self._arena.bytes[base : base + len(message)] = message
        self.note(slot)
        return message

    def note(self, slot: int) -> None:
        """A record batch has come into the slot: find its columns."""
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
        assert is_whole, f"no record batch of {arena.slot_bytes} bytes at most is in slot {slot}"

    def lay_out(self, slot: int, rows: int, begins: Array) -> None:
        """The slot has room for so many rows, with its buffers at these places; -1: there is none."""
        self.columns.offsets[:, slot] = begins
        self.columns.rows[slot] = rows

    def rows_at(self, places: Places) -> pa.RecordBatch:
        """Copies of the rows at these places."""
        arrays = [self.columns.take(column, places) for column in self.layout]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def give_back(self, slot: int) -> None:
        """Nobody needs what is in the slot any more: its memory is the system's."""
        base = int(self._arena.slot_base[slot])
        self._arena.memory.give_back(base, base + self._arena.slot_bytes)

    def bytes_of(self, slot: int, length: int) -> Array:
        """The first bytes of the slot, in place."""
        base = int(self._arena.slot_base[slot])
        return self._arena.bytes[base : base + length]

    def close(self) -> None:
        """Let go of the memory."""
        self._arena.close()
        self.columns.close()
