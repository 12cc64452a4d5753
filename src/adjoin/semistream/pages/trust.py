"""Memory that other processes may write to: what was read from it is verified before results leave."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adjoin.kernels.gather import SOUND
from adjoin.kernels.pages import are_all, find_damage
from adjoin.kernels.types import Array
from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import PageColumns

_NEVER = 0
"""No state of memory in which anything is verified."""


@dataclass(frozen=True)
class Stored:
    """What slots should hold: the length in bytes, the checksum and the layout of each."""

    lengths: Array
    checksums: Array
    layouts: Array


class SlotTrust:
    """Knows which slots of an arena are still as they were when they were verified.

    The state of memory that outlives its users changes whenever somebody may have written to it. A slot that
    was verified in the present state need not be verified again.

    Args:
        arena: The slots.
        columns: Where the buffers in each slot are.
    """

    def __init__(self, arena: Arena, columns: PageColumns) -> None:
        self._arena = arena
        self._columns = columns
        self._verified: Array = np.full(arena.all_slots if arena.memory.outlives else 0, _NEVER, np.int32)

    def doubt(self, slots: Array) -> None:
        """These slots get other contents."""
        if len(self._verified):
            self._verified[slots] = _NEVER

    def find_damaged(self, slots: Array, expected: Callable[[Array], Stored]) -> int | None:
        """One of these slots that does not hold what is expected of it; None if all of them do."""
        state = self._arena.memory.state()
        if state != _NEVER and are_all(self._verified, slots, state):
            return None
        doubtful = np.unique(slots if state == _NEVER else slots[self._verified[slots] != state])
        if len(doubtful) == 0:
            return None
        arena, columns, stored = self._arena, self._columns, expected(doubtful)
        bad = find_damage(
            arena.bytes,
            arena.words,
            arena.slot_base,
            arena.rooms,
            doubtful,
            stored.lengths,
            stored.checksums,
            stored.layouts,
            columns.wanted,
            columns.offsets,
            columns.rows,
        )
        if bad != SOUND:
            return int(doubtful[bad])
        self._verified[doubtful] = state
        return None
