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

    Memory in a file is in another state once somebody has written to the file. As long as nobody has, a slot
    that was verified need not be verified again, neither for this user of the memory nor for the next one in
    this process. Private memory is always trusted.

    Args:
        arena: The slots.
        columns: Where the buffers in each slot are.
    """

    def __init__(self, arena: Arena, columns: PageColumns) -> None:
        self._arena = arena
        self._columns = columns
        self._verified = arena.memory.verified_states(arena.all_slots if arena.memory.outlives else 0)

    def doubt(self, slots: Array) -> None:
        """These slots get other contents."""
        if self._arena.memory.outlives:
            self._verified[slots] = _NEVER

    def find_damaged(self, slots: Array, expected: Callable[[Array], Stored]) -> int | None:
        """One of these slots that does not hold what is expected of it; None if all of them do."""
        if not self._arena.memory.outlives:
            return None
        doubtful, state = self._doubtful(slots)
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

    def _doubtful(self, slots: Array) -> tuple[Array, int]:
        """The slots that have to be verified, each once, and the state of the memory now."""
        state = self._arena.memory.state()
        if state == _NEVER:
            return np.unique(slots), state
        if are_all(self._verified, slots, state):
            return slots[:0], state
        return np.unique(slots[self._verified[slots] != state]), state
