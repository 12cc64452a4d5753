"""ReactiveNL: blocks on disk joined by nested loops that can stop after every block."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.condition import LEFT, RIGHT
from adjoin.streamjoin.diskjoin import DiskJoin
from adjoin.streamjoin.grid import Grid
from adjoin.streamjoin.reactive import Reactive


class NestedLoops(Reactive):
    """A unit of work is one block: an outer one that is read, or an inner one joined with the outer ones.

    Args:
        disk: Joins blocks.
        most_outer: Most outer blocks (MaxOuterMem).

    Attributes:
        grid: Which blocks have been joined.
    """

    def __init__(self, disk: DiskJoin, most_outer: int) -> None:
        self._disk = disk
        self._most_outer = most_outer
        self.grid = Grid()

    @property
    def _lengths(self) -> tuple[int, int]:
        return len(self._disk.blocks[LEFT]), len(self._disk.blocks[RIGHT])

    def has_more(self) -> bool:
        """Whether there are blocks that have not been joined with each other."""
        return self.grid.next_step(self._lengths, self._most_outer) is not None

    def work(self) -> Iterator[pa.RecordBatch]:
        """Read an outer block, or join an inner one."""
        step = self.grid.next_step(self._lengths, self._most_outer)
        if step is None:
            return
        outer = range(step.outer_begin, step.outer_end)
        if self._disk.load(step.outer, outer):
            yield from self._disk.join(step.outer, outer, step.inner_block)
            self.grid.finished()

    def close(self) -> None:
        """Give the memory of the outer blocks back."""
        self._disk.close()

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array:
        """Those of the grid, and those of the outer blocks that are being joined."""
        return self.grid.has_joined(side, blocks, np.full(len(blocks), other))

    def to_json(self) -> dict[str, Any]:
        """The grid."""
        return self.grid.to_json()

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        self.grid = Grid.from_json(saved)

    def check_invariants(self) -> None:
        """Raise AssertionError if the grid contradicts itself."""
        self.grid.check_invariants(self._lengths)
