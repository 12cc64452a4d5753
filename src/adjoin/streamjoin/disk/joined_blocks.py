"""Which blocks of any number of disk parts have been joined with each other, and what comes next."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from adjoin.kernels.types import Array

MostOuter = Callable[[int, int], int]
"""Says of a relation and its next block how many can be outer blocks together."""
Inner = Callable[[int, Sequence[int]], Sequence[int]]
"""Says of an outer relation, and of how many blocks of each are in the box, the inner ones in their order."""


@dataclass(frozen=True)
class Step:
    """Blocks that are to be joined: some of the outer relation with one of every other.

    Attributes:
        outer: The outer relation.
        outer_begin: The first of its blocks.
        outer_end: Behind the last of them.
        inner: The inner relations, the innermost last, each with its block.
    """

    outer: int
    outer_begin: int
    outer_end: int
    inner: tuple[tuple[int, int], ...]


@dataclass
class Box:
    """The box of combinations of blocks that have been joined, and how it grows.

    All combinations of the first `joined[i]` blocks of every relation i have been joined. The next blocks of
    the outer relation are joined with all combinations of the others' blocks in the box, which turn as the
    wheels of an odometer; when they are through, the box grows by the outer blocks. When the outer relation
    has no more, another one takes its role. Work can stop after every step, and blocks can be added at any
    time. With two relations the box is a rectangle, and the odometer has one wheel.

    Attributes:
        outer: The relation whose blocks are outer now; None before the first step.
        joined: Blocks of every relation in the box.
        chunk: Outer blocks that are being joined; 0 between two chunks.
        sequence: The inner relations, the innermost last; each is joined with one before it.
        at: The block of each inner relation that comes next.
    """

    outer: int | None = None
    joined: list[int] = field(default_factory=list)
    chunk: int = 0
    sequence: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)

    def next_step(self, blocks: Sequence[int], most_outer: MostOuter, inner: Inner) -> Step | None:
        """What is to be done next where every relation has so many blocks; None if nothing is."""
        if self.outer is None:
            if not all(blocks):
                return None
            self.outer = int(np.argmin(blocks))
            self.joined = [0 if number == self.outer else count for number, count in enumerate(blocks)]
        if not any(self.at):  # nothing of the chunk has been joined, and there may be more blocks by now
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
        """The step that was given last has been done.

        Args:
            wheel: All steps with the same blocks of the inner relations up to this one have been done.
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
        """Whether each combination of blocks, one of every relation, has been joined."""
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
        """All there is to know."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Box":
        """The box of which `to_json` said this."""
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
