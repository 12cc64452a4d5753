"""What is left when both inputs have ended: every block with every other, in the order of their keys."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from adjoin.streamjoin.base.condition import LEFT, RIGHT
from adjoin.streamjoin.disk.blocks import InOrder, Places
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.pair_join import DiskJoin


class Cleanup:
    """Joins all blocks of the smaller side, a memory full at a time, with those of the other.

    Blocks are sorted, and so is their list, by the least keys: outer blocks that are in memory together have
    keys near each other, and only inner blocks that reach these keys are read, in the order in which they
    were written.

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
        self._outer_left = InOrder(blocks[self._outer])
        self._inner_at = 0

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error it goes on where it was."""
        with closing(self._disk):
            while len(outer := self._outer_left.next(self._most_outer)):
                yield from self._chunk(outer)
                self._outer_left.advance(len(outer))
                self._inner_at = 0

    def _chunk(self, outer: Places) -> Iterator[pa.RecordBatch]:
        """Outer blocks with all inner ones that reach their keys and are left for them."""
        numbers = outer.numbers
        least, greatest = int(outer.low[0]), int(outer.reach.max())
        for inner in self._disk.blocks[1 - self._outer].reaching(least, greatest, self._inner_at):
            met = self._past.met_blocks(self._outer, numbers, inner)
            if met is None or not met.all():
                yield from self._disk.join(self._outer, numbers.tolist(), inner, self._past)
            self._inner_at = inner + 1
