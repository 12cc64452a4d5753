"""Blocks read from disk, and how many of them."""

from collections.abc import Sequence

import pyarrow as pa

from adjoin.memory.row_slots import RowSlots
from adjoin.streamjoin.base.counts import Counts
from adjoin.streamjoin.disk.blocks import Block, Blocks


class BlockReader:
    """Reads blocks of all inputs, and counts what it reads.

    Args:
        blocks: The blocks of each input.
        counts: Where reads are counted.
    """

    def __init__(self, blocks: Sequence[Blocks], counts: Counts) -> None:
        self.blocks = blocks
        self._counts = counts
        self._read_last = 0, -1

    def read(self, side: int, number: int) -> tuple[Block, pa.RecordBatch]:
        """A block with its rows."""
        block = self.blocks[side].read(number)
        self._count(side, number)
        return block

    def read_into(self, side: int, number: int, slots: RowSlots, slot: int) -> Block:
        """Read a block into a slot."""
        block = self.blocks[side].read_into(number, slots, slot)
        self._count(side, number)
        return block

    def _count(self, side: int, number: int) -> None:
        """A seek goes to every block that does not follow the one before."""
        self._counts.pages_read += 1
        self._counts.seeks += self._read_last != (side, number - 1)
        self._counts.bytes_read += self.blocks[side].bytes_of(number)
        self._read_last = side, number
