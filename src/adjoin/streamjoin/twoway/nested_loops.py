"""ReactiveNL (Algorithm 4): nested loops over blocks on disk that can stop after every block."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.spec import LEFT, RIGHT
from adjoin.streamjoin.disk.joined_blocks import Box, Step
from adjoin.streamjoin.twoway.pair_join import PairJoin


class NestedLoops(ReactiveWork):
    """Joins blocks by nested loops.

    A unit of work is one block: an outer block is read, or an inner block is joined with the outer ones.

    Args:
        pairs: Joins blocks.
        most_outer: The maximum number of outer blocks (MaxOuterMem).

    Attributes:
        box: Which blocks have been joined.
    """

    def __init__(self, pairs: PairJoin, most_outer: int) -> None:
        self._pairs = pairs
        self._most_outer = most_outer
        self.box = Box()

    @property
    def _lengths(self) -> tuple[int, int]:
        return len(self._pairs.blocks[LEFT]), len(self._pairs.blocks[RIGHT])

    def has_more(self) -> bool:
        """Whether any blocks have not been joined with each other."""
        return self._next_step() is not None

    def _next_step(self) -> Step | None:
        return self.box.next_step(self._lengths, lambda *_: self._most_outer, lambda outer, _: [1 - outer])

    def work(self) -> Iterator[pa.RecordBatch]:
        """Read an outer block, or join an inner block with all of them."""
        step = self._next_step()
        if step is None:
            return
        outer = range(step.outer_begin, step.outer_end)
        if self._pairs.load(step.outer, outer):
            yield from self._pairs.join(step.outer, outer, step.inner[0][1])
            self.box.finished()

    def close(self) -> None:
        """Release the memory of the outer blocks."""
        self._pairs.close()

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array:
        """Those in the box, and those of the outer blocks that are being joined."""
        others = np.full(len(blocks), other)
        return self.box.has_joined([blocks, others] if side == LEFT else [others, blocks])

    def to_json(self) -> dict[str, Any]:
        """The box."""
        return self.box.to_json()

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self.box = Box.from_json(saved)

    def check_invariants(self) -> None:
        """Raise AssertionError if the box contradicts itself."""
        self.box.check_invariants(self._lengths)
