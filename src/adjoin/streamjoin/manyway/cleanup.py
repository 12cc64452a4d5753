"""The cleanup phase of many inputs: all blocks, as much of the first relation at a time as memory holds."""

from collections.abc import Iterator

import pyarrow as pa

from adjoin.arrow.copying import join_batches
from adjoin.arrow.row_sizes import row_bytes
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.storage import BlockReader
from adjoin.streamjoin.disk.blocks import BlocksInOrder
from adjoin.streamjoin.manyway.graph import Edge, JoinGraph
from adjoin.streamjoin.manyway.reloaded_tuples import ReloadedTuples

_SMALLER, _LARGER, _MOST_SHARE = 0.8, 1.05, 0.8
"""Factors by which the share of the first relation changes after each part of it; and its maximum."""


class ManyCleanup:
    """Joins all blocks, one relation after the other.

    A part of the first relation is read. Of the second relation the tuples that match it are kept, of the
    third those that match what is kept, and so on; rows of the last relation are joined with all of them. If
    the tuples of one relation exceed its share of the memory, the others continue with what fits, and the
    rest follows later. So every relation is read once for each part of those before it. When that happens,
    the parts of the first relation become smaller, otherwise larger.

    Args:
        graph: Which relations are joined with which.
        reader: Reads blocks.
        reloaded: Keeps and joins their tuples.
        past: Knows combinations of blocks that have been joined.
        memory_bytes: For the tuples of all relations together.
        portion_bytes: For the tuples of one relation that are joined at a time.
    """

    def __init__(
        self,
        graph: JoinGraph,
        reader: BlockReader,
        reloaded: ReloadedTuples,
        past: ReactiveWork,
        memory_bytes: int,
        portion_bytes: int,
    ) -> None:
        self._reloaded = reloaded
        self._past = past
        rows = [blocks.rows for blocks in reader.blocks]
        first = min(range(len(rows)), key=rows.__getitem__)
        path: list[tuple[int, Edge | None]] = [(first, None), *graph.path(first, rows)]
        self._memory_bytes = memory_bytes
        self._levels = [_Level(number, edge, reader, reloaded, portion_bytes) for number, edge in path]
        self._first_share = 1 / (len(path) - 1)
        self._has_overflown = False
        self._depth = 0 if all(rows) else -1

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error, the next call continues where this one stopped."""
        while self._depth >= 0:
            level = self._levels[self._depth]
            if self._depth == len(self._levels) - 1:
                yield from self._last(level)
            elif level.fill(self._share_bytes()):
                self._has_overflown |= self._depth > 0 and level.has_more()
                self._depth += 1
                continue
            level.rewind()
            self._depth -= 1
            if self._depth >= 0:
                self._levels[self._depth].clear()
            if self._depth == 0:
                self._adapt()

    def _share_bytes(self) -> int:
        """The share of the relation that is filled now, of what those before it have left."""
        if self._depth == 0:
            return int(self._first_share * self._memory_bytes)
        held = sum(level.held_bytes for level in self._levels[: self._depth])
        return (self._memory_bytes - held) // (len(self._levels) - 1 - self._depth)

    def _adapt(self) -> None:
        """A part of the first relation has been joined."""
        self._first_share *= _SMALLER if self._has_overflown else _LARGER
        self._first_share = min(self._first_share, _MOST_SHARE)
        self._has_overflown = False

    def _last(self, level: "_Level") -> Iterator[pa.RecordBatch]:
        while level.read_on():
            for match, is_new in self._reloaded.joined(level.relation, level.take()):
                met = self._past.met_combinations(self._reloaded.blocks_of(match))
                yield from self._reloaded.results(match, is_new if met is None else is_new & ~met)


class _Level:
    """The blocks of a relation, in the order of their keys, and those of their tuples that are kept.

    Few tuples of a block may have a match: they are collected until they make a portion.
    """

    def __init__(
        self,
        relation: int,
        edge: Edge | None,
        reader: BlockReader,
        reloaded: ReloadedTuples,
        portion_bytes: int,
    ) -> None:
        self.relation = relation
        self._edge = edge
        self._reloaded = reloaded
        self._portion_bytes = portion_bytes
        self._unread = BlocksInOrder(reader.blocks[relation])
        self._collected: list[pa.RecordBatch] = []

    @property
    def held_bytes(self) -> int:
        """Memory that kept and collected tuples take."""
        tuples = self._reloaded.inputs[self.relation]
        collected = sum(batch.nbytes for batch in self._collected)
        return tuples.held_bytes + tuples.merge_bytes + collected

    def has_more(self) -> bool:
        """Whether there are tuples that have not been kept in this round."""
        return bool(self._collected) or len(self._unread.next()) > 0

    def read_on(self) -> bool:
        """Collect a portion of tuples; False if there are no more."""
        collected_bytes = sum(batch.nbytes for batch in self._collected)
        while collected_bytes < self._portion_bytes and len(unread := self._unread.next()):
            batch = self._reloaded.read(self.relation, int(unread.numbers[0]), self._edge)
            self._unread.advance()
            if batch.num_rows:
                self._collected.append(batch)
                collected_bytes += batch.nbytes
        return bool(self._collected)

    def take(self) -> pa.RecordBatch:
        """The collected tuples."""
        batch = join_batches(self._collected)
        self._collected.clear()
        return batch

    def fill(self, share_bytes: int) -> bool:
        """Keep tuples until the share is full; False if none is kept then."""
        tuples = self._reloaded.inputs[self.relation]
        while self.read_on():
            batch = self.take()
            more_bytes = tuples.new_bytes(row_bytes(batch))
            if len(tuples) and self.held_bytes + more_bytes > share_bytes:
                self._collected.append(batch)
                break
            self._reloaded.keep(self.relation, batch)
        return len(tuples) > 0

    def clear(self) -> None:
        """Drop the kept tuples, which have been joined with all others."""
        self._reloaded.inputs[self.relation].clear()

    def rewind(self) -> None:
        """Start again with the first block."""
        self._unread.rewind()
