"""What is left when both inputs have ended: every block with every other, in the order of their keys."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.condition import LEFT, RIGHT
from adjoin.streamjoin.diskjoin import DiskJoin
from adjoin.streamjoin.reactive import Reactive


class Cleanup:
    """Joins all blocks of the smaller side, a memory full at a time, with those of the other.

    Blocks are sorted, and so is their list, by the least keys: outer blocks that are in memory together have
    keys near each other, and only inner blocks that reach these keys are read.

    Args:
        disk: Joins blocks.
        past: Knows pairs that have met on disk before.
        most_outer: Most outer blocks.
    """

    def __init__(self, disk: DiskJoin, past: Reactive, most_outer: int) -> None:
        self._disk = disk
        self._past = past
        blocks = disk.blocks
        self._outer = LEFT if blocks[LEFT].rows <= blocks[RIGHT].rows else RIGHT
        self._most_outer = most_outer
        self._outer_left = blocks[self._outer].numbers
        self._inner = blocks[1 - self._outer].numbers
        self._inner_low, self._inner_reach = blocks[1 - self._outer].reaches(self._inner)
        self._inner_left = self._partners()

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error it goes on where it was."""
        with closing(self._disk):
            while len(self._outer_left):
                yield from self._chunk(self._outer_left[: self._most_outer])
                self._outer_left = self._outer_left[self._most_outer :]
                self._inner_left = self._partners()

    def _chunk(self, outer: Array) -> Iterator[pa.RecordBatch]:
        """Outer blocks with all inner ones that are left for them."""
        while len(self._inner_left):
            inner = int(self._inner_left[0])
            met = self._past.met_blocks(self._outer, outer, inner)
            if met is None or not met.all():
                yield from self._disk.join(self._outer, outer.tolist(), inner, self._past)
            self._inner_left = self._inner_left[1:]

    def _partners(self) -> Array:
        """Inner blocks that reach the keys of the next outer ones."""
        chunk: Array = self._outer_left[: self._most_outer]
        if not len(chunk):
            return chunk
        low, reach = self._disk.blocks[self._outer].reaches(chunk)
        partners: Array = self._inner[(self._inner_low <= reach.max()) & (self._inner_reach >= low.min())]
        return partners
