"""What is left when all inputs have ended: all blocks, a memory full of the first relation at a time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.parts.rows import row_bytes
from adjoin.streamjoin.manyway.box import Box
from adjoin.streamjoin.manyway.graph import Edge, JoinGraph
from adjoin.streamjoin.manyway.recalled import Recalled
from adjoin.streamjoin.reading import BlockReader


class ManyCleanup:
    """Joins all blocks, one relation after the other.

    A memory full of the first relation is read. Of the next one those tuples are kept that match it, of the
    one behind those that match what is kept, and so on; rows of the last relation are joined with all that.
    Where one relation keeps more than its share of the memory holds, the others go on with what there is, and
    the rest comes later. So every relation is read once for each part of those before it.

    Args:
        graph: Which relations are joined with which.
        reader: Reads blocks.
        recalled: Keeps and joins them.
        box: Which blocks have been joined before.
        memory_bytes: For the tuples of all relations together.
    """

    def __init__(
        self, graph: JoinGraph, reader: BlockReader, recalled: Recalled, box: Box, memory_bytes: int
    ) -> None:
        self._recalled = recalled
        self._box = box
        rows = [blocks.rows for blocks in reader.blocks]
        first = min(range(len(rows)), key=rows.__getitem__)
        path: list[tuple[int, Edge | None]] = [(first, None), *graph.path(first, rows)]
        share = memory_bytes // (len(path) - 1)
        self._levels = [_Level(number, edge, reader, recalled, share) for number, edge in path]
        self._depth = 0 if all(rows) else -1

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error it goes on where it was."""
        while self._depth >= 0:
            level = self._levels[self._depth]
            if self._depth == len(self._levels) - 1:
                yield from self._last(level)
            elif level.fill():
                self._depth += 1
                continue
            level.rewind()
            self._depth -= 1
            if self._depth >= 0:
                self._levels[self._depth].clear()

    def _last(self, level: "_Level") -> Iterator[pa.RecordBatch]:
        while level.has_more():
            tuples = level.read()
            for match, is_new in self._recalled.joined(level.relation, *tuples):
                has_joined = self._box.has_joined(self._recalled.blocks_of(match))
                yield from self._recalled.results(match, is_new & ~has_joined)
            level.advance()


class _Level:
    """The blocks of a relation, in the order of their keys, and the tuples of them that are kept."""

    def __init__(
        self, relation: int, edge: Edge | None, reader: BlockReader, recalled: Recalled, share_bytes: int
    ) -> None:
        self.relation = relation
        self._edge = edge
        self._recalled = recalled
        self._share_bytes = share_bytes
        self._numbers: Sequence[int] = reader.blocks[relation].numbers.tolist()
        self._at = 0

    def has_more(self) -> bool:
        return self._at < len(self._numbers)

    def read(self) -> tuple[pa.RecordBatch, Sequence[tuple[Array, Array]]]:
        batch, keys = self._recalled.read(self.relation, self._numbers[self._at])
        if self._edge is None:
            return batch, keys
        return self._recalled.with_partners(self.relation, self._edge, batch, keys)

    def advance(self) -> None:
        self._at += 1

    def fill(self) -> bool:
        """Read on until the share is full; False if nothing is kept then."""
        tuples = self._recalled.inputs[self.relation]
        while self.has_more():
            batch, keys = self.read()
            more_bytes = tuples.new_bytes(row_bytes(batch))
            if len(tuples) and tuples.held_bytes + more_bytes > self._share_bytes:
                break
            if batch.num_rows:
                self._recalled.keep(self.relation, batch, keys)
            self.advance()
        return len(tuples) > 0

    def clear(self) -> None:
        self._recalled.inputs[self.relation].clear()

    def rewind(self) -> None:
        self._at = 0
