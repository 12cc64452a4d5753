"""Which blocks of any number of inputs have been joined with each other, and which come next."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from adjoin.kernels.types import Array

MostOuter = Callable[[int, int], int]
"""Given a relation and its next block, returns how many blocks can be outer blocks together."""
Inner = Callable[[int, Sequence[int]], Sequence[int]]
"""Given the outer relation and the blocks of each in the box, returns the inner relations in order."""


@dataclass(frozen=True)
class Step:
    """The next blocks to join: some of the outer relation with one of every other.

    Attributes:
        outer: The outer relation.
        outer_begin: The first of its blocks.
        outer_end: The block after the last of them.
        inner: The inner relations, the innermost last, each with its block.
    """

    outer: int
    outer_begin: int
    outer_end: int
    inner: tuple[tuple[int, int], ...]


@dataclass
class Box:
    """The box of combinations of blocks that have been joined, and how it grows (Algorithm 4).

    All combinations of the first `joined[i]` blocks of every relation i have been joined. The next blocks of
    the outer relation, a chunk, are joined with all combinations of the other relations' blocks in the box,
    in the order of an odometer; then the box grows by the chunk. When the outer relation has no more blocks,
    another one takes its role. Work can stop after every step, and blocks can be added at any time. With two
    relations the box is a rectangle, and the odometer has one wheel.

    In the paper's terms: `joined` is JoinedOuter and JoinedInner, `chunk` OuterMem and `at` CurrInner.

    Attributes:
        outer: The relation whose blocks are outer now; None before the first step.
        joined: The number of blocks of every relation in the box.
        chunk: The number of outer blocks that are being joined; 0 between two chunks.
        sequence: The inner relations, the innermost last; each is joined with one before it.
        at: The next block of each inner relation.
    """

    outer: int | None = None
    joined: list[int] = field(default_factory=list)
    chunk: int = 0
    sequence: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)

    def next_step(self, blocks: Sequence[int], most_outer: MostOuter, inner: Inner) -> Step | None:
        """The next step, given the number of blocks of every relation; None if all have been joined."""
        if self.outer is None:
            if not all(blocks):
                return None
            self.outer = int(np.argmin(blocks))
            self.joined = [0 if number == self.outer else count for number, count in enumerate(blocks)]
        if not any(self.at):  # nothing of the chunk has been joined yet, and there may be more blocks now
            missing = [count - done for count, done in zip(blocks, self.joined, strict=True)]
            if not any(missing):
                return None
            if not missing[self.outer]:
                self.outer = int(np.argmax(missing))
            self.chunk = min(most_outer(self.outer, self.joined[self.outer]), missing[self.outer])
            self.sequence = list(inner(self.outer, self.joined))
            self.at = [0] * len(self.sequence)
        first = self.joined[self.outer]
        return Step(self.outer, first, first + self.chunk, tuple(zip(self.sequence, self.at, strict=True)))

    def finished(self, wheel: int | None = None) -> None:
        """The last step has been done.

        Args:
            wheel: Skip all steps with the same blocks of the inner relations up to this one.
        """
        wheel = len(self.at) - 1 if wheel is None else wheel
        self.at[wheel + 1 :] = [0] * (len(self.at) - wheel - 1)
        while wheel >= 0:
            self.at[wheel] += 1
            if self.at[wheel] < self.joined[self.sequence[wheel]]:
                return
            self.at[wheel] = 0
            wheel -= 1
        assert self.outer is not None
        self.joined[self.outer] += self.chunk
        self.chunk = 0

    def has_joined(self, blocks: Sequence[Array]) -> Array:
        """Whether each of these combinations of blocks, one block of every relation, has been joined."""
        if self.outer is None:
            return np.zeros(len(blocks[0]), bool)
        inside = np.ones(len(blocks[0]), bool)
        for number, done in enumerate(self.joined):
            if number != self.outer:
                inside &= blocks[number] < done
        outer, begin = blocks[self.outer], self.joined[self.outer]
        joined: Array = inside & (outer < begin)
        if self.chunk:
            joined |= inside & (outer >= begin) & (outer < begin + self.chunk) & self._is_past(blocks)
        return joined

    def _is_past(self, blocks: Sequence[Array]) -> Array:
        """Whether the odometer has passed the inner blocks."""
        past, same = np.zeros(len(blocks[0]), bool), np.ones(len(blocks[0]), bool)
        for number, at in zip(self.sequence, self.at, strict=True):
            past |= same & (blocks[number] < at)
            same &= blocks[number] == at
        return past

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Box":
        """The box from the state that `to_json` returned."""
        return cls(**saved)

    def check_invariants(self, blocks: Sequence[int]) -> None:
        """Raise AssertionError if the box contradicts itself."""
        if self.outer is None:
            assert (self.joined, self.chunk) == ([], 0)
            return
        assert all(0 <= done <= count for done, count in zip(self.joined, blocks, strict=True))
        assert self.joined[self.outer] + self.chunk <= blocks[self.outer]
        if self.chunk:
            assert sorted([*self.sequence, self.outer]) == list(range(len(blocks)))
            for number, at in zip(self.sequence, self.at, strict=True):
                assert 0 <= at < self.joined[number]
