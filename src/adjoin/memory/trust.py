"""Which slots of memory that others can write to hold what was verified there."""

import numpy as np

from adjoin.kernels.pages import are_all
from adjoin.kernels.types import Array
from adjoin.memory.page_memory import PageMemory

_NEVER = 0
"""No state of memory in which anything is trusted."""


class Trust:
    """Remembers, for each slot, in which state of the memory its contents were verified.

    Memory in a file is in another state once somebody has written to the file. As long as nobody has, what
    was verified once need not be verified again, neither by this user of the memory nor by the next one in
    this process. Private memory is always trusted.

    Args:
        memory: Where the slots lie.
        slots: How many there are.
    """

    def __init__(self, memory: PageMemory, slots: int) -> None:
        self._memory = memory
        self._verified = memory.verified_states(slots if memory.outlives else 0)

    def doubt(self, slots: Array) -> None:
        """These slots have new contents."""
        if self._memory.outlives:
            self._verified[slots] = _NEVER

    def doubtful(self, slots: Array) -> tuple[Array, int]:
        """The slots that have to be verified, each once, and the state of the memory now."""
        if not self._memory.outlives:
            return slots[:0], _NEVER
        state = self._memory.state()
        if state == _NEVER:
            return np.unique(slots), state
        if are_all(self._verified, slots, state):
            return slots[:0], state
        return np.unique(slots[self._verified[slots] != state]), state

    def trust(self, slots: Array, state: int) -> None:
        """The contents of these slots were verified while the memory was in this state."""
        self._verified[slots] = state
