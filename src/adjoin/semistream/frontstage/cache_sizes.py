"""How large a cache of rows can become in so much memory."""

from dataclasses import dataclass

import pyarrow as pa

from adjoin.arrow.row_sizes import message_overhead
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.page_memory import PageMemory
from adjoin.semistream.frontstage.key_table import KeyTable
from adjoin.semistream.frontstage.packed_rows import PackedRows

_SLOTS = 64
_MOST_SLOT_BYTES = 1 << 20
_LEAST_SLOTS = 4
_LEAST_ENTRIES = 64
_SLOTS_ON_THE_WAY = 3
"""Rows that wait, those of the slot that they are for, and both together."""
_COUNTING_SHARE = 1 / 4
"""Of a slot, for counts of keys that may come."""
_MOST_ENTRIES = 1 << 30


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
        counting_bytes: Set aside for whoever counts keys that may come.
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
        """For so much memory of this kind, and rows of about this size; None if that is too little."""
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
