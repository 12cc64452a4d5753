"""Rows packed side by side in the slots of an arena, each slot an Arrow record batch."""

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.parts.pagememory import PageMemory
from adjoin.parts.rowslots import RowSlots


class PackedRows(RowSlots):
    """Slots full of rows, which take turns to be filled anew.

    Args:
        schema: The columns of the rows, an int64 without nulls first.
        slots: The most slots.
        slot_bytes: A slot.
        memory: Where they lie; private memory by default.
        left: Go on with what is in the memory, of which this was said when it was left; None begins empty.

    Attributes:
        turns: The slots with rows; the first is filled anew first.
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
        self._turns_left: Array = self._arena.memory.array("turns", slots, np.int32)
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
        """More than the number of any slot."""
        return self._arena.all_slots

    @property
    def free_slots(self) -> int:
        return self._arena.free_slots

    @property
    def bytes(self) -> int:
        """Of all slots."""
        return self._arena.capacity * self._arena.slot_bytes

    @property
    def free_bytes(self) -> int:
        """Of slots that hold nothing."""
        return self._arena.free_slots * self._arena.slot_bytes

    @property
    def growth_bytes(self) -> int:
        """What the next slots would take; 0 if there are no more."""
        arena = self._arena
        return arena.grain * arena.slot_bytes if arena.capacity + arena.grain <= arena.slots else 0

    def grow(self) -> None:
        self._arena.grow(self._arena.grain)

    def add(self) -> int:
        """A slot that was free; its turn comes last."""
        slot = int(self._arena.take(1)[0])
        self.turns.append(slot)
        return slot

    def take_turn(self) -> int:
        """The slot whose turn it is."""
        self.turns.rotate(-1)
        return self.turns[-1]

    def free(self, slot: int) -> None:
        """A slot whose rows are not needed any more."""
        self.turns.remove(slot)
        self._arena.free(np.array([slot], np.int32))

    def clear(self) -> None:
        """Free all slots."""
        self._arena.free(np.array(self.turns, np.int32))
        self.turns.clear()

    def first_column(self, slot: int) -> Array:
        """What the rows of the slot have in the first column."""
        begin = int(self._arena.slot_base[slot] + self.columns.offset(self.layout[0].buffers[1])[slot]) >> 3
        return self._arena.words[begin : begin + int(self.columns.rows[slot])]

    def slots_of(self, wanted_bytes: int) -> int:
        """How many slots must be free for so many bytes to be given back, or all there are."""
        arena = self._arena
        slots = -(-wanted_bytes // (arena.slot_bytes * arena.grain)) * arena.grain
        return min(slots, arena.capacity)

    def shrink(self, slots: int) -> dict[int, int]:
        """Do with so many slots less, which must be free; returns which others have moved, and where to."""
        source, target = self._arena.shrink(slots)
        self.columns.move(source, target)
        moved = dict(zip(source.tolist(), target.tolist(), strict=True))
        self.turns = deque(moved.get(slot, slot) for slot in self.turns)
        return moved

    def leave(self) -> dict[str, Any]:
        """What must be said to go on with what is in the memory."""
        self._turns_left[: len(self.turns)] = self.turns
        return {
            "capacity": self._arena.capacity,
            "free_slots": self._arena.free_slots,
            "turns": len(self.turns),
        }

    def close(self) -> None:
        """Let go of the memory."""
        super().close()
        self._turns_left = self._turns_left[:0].copy()

    def check_invariants(self) -> None:
        self._arena.check_invariants()
        assert len(set(self.turns)) == len(self.turns) == self._arena.capacity - self._arena.free_slots
