"""Which blocks of two disk parts have been joined with which, and what comes next."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adjoin.kernels.types import Array
from adjoin.streamjoin.condition import LEFT, RIGHT


@dataclass(frozen=True)
class Step:
    """An inner block that is to be joined with some outer blocks; blocks are counted from 0.

    Attributes:
        outer: The side of the outer blocks.
        outer_begin: The first of them.
        outer_end: Behind the last of them.
        inner_block: The inner block.
    """

    outer: int
    outer_begin: int
    outer_end: int
    inner_block: int


@dataclass
class Grid:
    """The rectangle of pairs of blocks that have been joined, and how it grows.

    All of the first `joined_outer` outer blocks have been joined with all of the first `joined_inner` inner
    ones. The next outer blocks are joined with one inner block after the other; when they are through, the
    rectangle grows by them. When there are no more outer blocks the sides change their roles. Work can stop
    after every step, and blocks can be added at any time.

    Attributes:
        outer: The side whose blocks are outer now; None before the first step.
        joined_outer: Outer blocks in the rectangle.
        joined_inner: Inner blocks in the rectangle.
        next_inner: The inner block that comes next.
        chunk: Outer blocks that are being joined.
    """

    outer: int | None = None
    joined_outer: int = 0
    joined_inner: int = 0
    next_inner: int = 0
    chunk: int = 0

    def next_step(self, blocks: tuple[int, int], most_outer: int) -> Step | None:
        """What is to be done next when there are so many blocks on each side; None if nothing is."""
        if self.outer is None:
            if not all(blocks):
                return None
            self.outer = LEFT if blocks[LEFT] <= blocks[RIGHT] else RIGHT
            self.joined_inner = blocks[1 - self.outer]
        while self.joined_outer < blocks[self.outer] or self.joined_inner < blocks[1 - self.outer]:
            if self.joined_outer == blocks[self.outer]:
                self.outer = 1 - self.outer
                self.joined_outer, self.joined_inner = self.joined_inner, self.joined_outer
                self.next_inner = 0
            if self.next_inner == 0:
                self.chunk = min(most_outer, blocks[self.outer] - self.joined_outer)
            if self.next_inner < self.joined_inner:
                first = self.joined_outer
                return Step(self.outer, first, first + self.chunk, self.next_inner)
            self._grow()
        return None

    def finished(self) -> None:
        """The step that was given last has been done."""
        self.next_inner += 1
        if self.next_inner == self.joined_inner:
            self._grow()

    def _grow(self) -> None:
        self.joined_outer += self.chunk
        self.next_inner = 0

    def has_joined(self, side: int, blocks: Array, others: Array) -> Array:
        """Whether each block of a side has been joined with a block of the other side."""
        if self.outer is None:
            return np.zeros(len(blocks), bool)
        outer, inner = (blocks, others) if side == self.outer else (others, blocks)
        in_rectangle = (outer < self.joined_outer) & (inner < self.joined_inner)
        chunk_end = self.joined_outer + self.chunk
        in_chunk = (outer >= self.joined_outer) & (outer < chunk_end) & (inner < self.next_inner)
        joined: Array = in_rectangle | in_chunk
        return joined

    def to_json(self) -> dict[str, Any]:
        """All there is to know."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Grid":
        """The grid of which `to_json` said this."""
        return cls(**saved)

    def check_invariants(self, blocks: tuple[int, int]) -> None:
        """Raise AssertionError if the grid contradicts itself."""
        if self.outer is None:
            assert (self.joined_outer, self.joined_inner, self.next_inner) == (0, 0, 0)
            return
        assert 0 <= self.joined_outer <= blocks[self.outer]
        assert 0 <= self.joined_inner <= blocks[1 - self.outer]
        assert self.next_inner == 0 or self.next_inner < self.joined_inner
        assert self.joined_outer + self.chunk * (self.next_inner > 0) <= blocks[self.outer]
