"""Rows packed into the slots of an arena, each slot an Arrow record batch."""

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.key_table import EMPTY, find_wrong_group
from adjoin.kernels.types import Array
from adjoin.memory.page_memory import PageMemory
from adjoin.memory.row_slots import RowSlots
from adjoin.memory.trust import SlotTrust, Stored


class PackedRows(RowSlots):
    """Slots full of rows, which take turns being refilled.

    Args:
        schema: The columns of the rows, an int64 without nulls first.
        slots: The most slots.
        slot_bytes: A slot.
        memory: Memory for the slots; private by default.
        left: What `leave` returned, to continue with what is in the memory; None starts empty.

    Attributes:
        turns: The slots with rows; the first is refilled first.
    """

    def __init__(
        self,
        schema: pa.Schema,
        slots: int,
        slot_bytes: int,
        memory: PageMemory | None = None,
        left: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(schema, slots, slot_bytes, memory=memory)
        self._turns_left: Array = self._arena.memory.held("turns", slots, np.int32)
        # Of what was written to each slot, to tell whether it is intact.
        watched = self._arena.all_slots if self._arena.memory.outlives else 0
        self._lengths: Array = self._arena.memory.held("lengths", watched, np.int64)
        self._checksums: Array = self._arena.memory.held("checksums", watched, np.uint64)
        self._trust = SlotTrust(self._arena, self.columns)
        self.turns: deque[int] = deque()
        if left is not None:
            self._arena.resume(left["capacity"], left["free_slots"])
            self.turns.extend(self._turns_left[: left["turns"]].tolist())

    @staticmethod
    def notes_bytes(schema: pa.Schema) -> int:
        """What the notes on a slot take."""
        return RowSlots.notes_bytes(schema) + 12

    @property
    def all_slots(self) -> int:
        """One more than the greatest slot number."""
        return self._arena.all_slots

    @property
    def most_rows(self) -> int:
        """The most rows of a slot: every row has at least eight bytes."""
        return self._arena.slot_bytes // 8

    @property
    def free_slots(self) -> int:
        return self._arena.free_slots

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        return self._arena.capacity * self._arena.slot_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes of empty slots."""
        return self._arena.free_slots * self._arena.slot_bytes

    @property
    def growth_bytes(self) -> int:
        """Bytes that the next slots would take; 0 if there are no more."""
        arena = self._arena
        return arena.grain * arena.slot_bytes if arena.capacity + arena.grain <= arena.slots else 0

    def grow(self) -> None:
        self._arena.grow(self._arena.grain)

    def fill(self, slot: int, batch: pa.RecordBatch) -> Array:
        """Replace the rows of the slot by these; returns their message."""
        message = super().fill(slot, batch)
        if self._arena.memory.outlives:
            self._lengths[slot] = len(message)
            self._checksums[slot] = hash_bytes(message, 0, len(message))
            self._trust.doubt(np.array([slot]))
        return message

    def vouch(self, slots: Array) -> None:
        """Verify that these slots hold what was put there; see `ResidentPages.vouch`.

        Raises:
            CorruptionError: A slot does not.
        """
        damaged = self._trust.find_damaged(slots, self._written_to)
        if damaged is not None:
            raise self._arena.memory.damage(f"what is in slot {damaged} of the cached rows")

    def _written_to(self, slots: Array) -> Stored:
        """What has been written to these slots."""
        return Stored(self._lengths[slots], self._checksums[slots], np.zeros(len(slots), np.int64))

    def vouch_groups(self, keys: Array, slot: Array, row: Array, rows: Array) -> None:
        """Verify that these were all rows of each key, and no others.

        Raises:
            CorruptionError: They were not.
        """
        if not self._arena.memory.outlives:
            return
        self.vouch(slot)
        offset = self.columns.offset(self.layout[0].buffers[1])
        places = self._arena.words, self._arena.slot_base, self._arena.rooms, offset, self.columns.rows
        wrong = find_wrong_group(*places, keys, slot, row, rows)
        if wrong != EMPTY:
            raise self._arena.memory.damage(f"the place of the rows of key {keys[wrong]}")

    def add(self) -> int:
        """Take a free slot, whose turn comes last."""
        slot = int(self._arena.take(1)[0])
        self.turns.append(slot)
        return slot

    def take_turn(self) -> int:
        """The slot whose turn it is; its next turn comes last."""
        self.turns.rotate(-1)
        return self.turns[-1]

    def free(self, slot: int) -> None:
        """Free a slot."""
        self.turns.remove(slot)
        self._arena.free(np.array([slot], np.int32))

    def clear(self) -> None:
        """Free all slots."""
        self._arena.free(np.array(self.turns, np.int32))
        self.turns.clear()

    def first_column(self, slot: int) -> Array:
        """The values of the first column in the slot."""
        self.vouch(np.array([slot]))
        begin = int(self._arena.slot_base[slot] + self.columns.offset(self.layout[0].buffers[1])[slot]) >> 3
        return self._arena.words[begin : begin + int(self.columns.rows[slot])].copy()

    def slots_of(self, wanted_bytes: int) -> int:
        """The number of slots with this many bytes, or all of them if they have less."""
        arena = self._arena
        slots = -(-wanted_bytes // (arena.slot_bytes * arena.grain)) * arena.grain
        return min(slots, arena.capacity)

    def shrink(self, slots: int) -> dict[int, int]:
        """Give up this many free slots; returns where other slots have moved to."""
        source, target = self._arena.shrink(slots)
        self.columns.move(source, target)
        if self._arena.memory.outlives:
            self._lengths[target] = self._lengths[source]
            self._checksums[target] = self._checksums[source]
            self._trust.doubt(target)
        moved = dict(zip(source.tolist(), target.tolist(), strict=True))
        self.turns = deque(moved.get(slot, slot) for slot in self.turns)
        return moved

    def leave(self) -> dict[str, Any]:
        """Leave the rows for the next user; returns what it needs to continue."""
        self._turns_left[: len(self.turns)] = self.turns
        return {
            "capacity": self._arena.capacity,
            "free_slots": self._arena.free_slots,
            "turns": len(self.turns),
        }

    def close(self) -> None:
        """Release the memory."""
        super().close()
        self._turns_left = self._turns_left[:0].copy()

    def check_invariants(self) -> None:
        self._arena.check_invariants()
        assert len(set(self.turns)) == len(self.turns) == self._arena.capacity - self._arena.free_slots
