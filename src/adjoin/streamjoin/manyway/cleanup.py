"""What is left when all inputs have ended: all blocks, a memory full of the first relation at a time."""

from collections.abc import Iterator

import pyarrow as pa

from adjoin.arrow.copying import join_batches
from adjoin.arrow.row_sizes import row_bytes
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.storage import BlockReader
from adjoin.streamjoin.disk.blocks import BlocksInOrder
from adjoin.streamjoin.manyway.graph import Edge, JoinGraph
from adjoin.streamjoin.manyway.recalled import Recalled

_SMALLER, _LARGER, _MOST_SHARE = 0.8, 1.05, 0.8
"""By which the share of the first relation is multiplied after a part of it; and the most that it has."""


class ManyCleanup:
    """Joins all blocks, one relation after the other.

    A part of the first relation is read. Of the next one those tuples are kept that match it, of the one
    behind those that match what is kept, and so on; rows of the last relation are joined with all that. Where
    one relation keeps more than its share of the memory holds, the others go on with what there is, and the
    rest comes later. So every relation is read once for each part of those before it. The parts of the first
    one become smaller where that happens, and larger where it does not.

    Args:
        graph: Which relations are joined with which.
        reader: Reads blocks.
        recalled: Keeps and joins them.
        past: Knows combinations of blocks that have been joined.
        memory_bytes: For the tuples of all relations together.
        portion_bytes: For those of one relation that are joined at a time.
    """

    def __init__(
        self,
        graph: JoinGraph,
        reader: BlockReader,
        recalled: Recalled,
        past: ReactiveWork,
        memory_bytes: int,
        portion_bytes: int,
    ) -> None:
        self._recalled = recalled
        self._past = past
        rows = [blocks.rows for blocks in reader.blocks]
        first = min(range(len(rows)), key=rows.__getitem__)
        path: list[tuple[int, Edge | None]] = [(first, None), *graph.path(first, rows)]
        self._memory_bytes = memory_bytes
        self._levels = [_Level(number, edge, reader, recalled, portion_bytes) for number, edge in path]
        self._first_share = 1 / (len(path) - 1)
        self._has_overflown = False
        self._depth = 0 if all(rows) else -1

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error it goes on where it was."""
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
        """For the relation that is filled now: its share of what those before it have left."""
        if self._depth == 0:
            return int(self._first_share * self._memory_bytes)
        held = sum(level.held_bytes for level in self._levels[: self._depth])
        return (self._memory_bytes - held) // (len(self._levels) - 1 - self._depth)

    def _adapt(self) -> None:
        """A part of the first relation is through."""
        self._first_share *= _SMALLER if self._has_overflown else _LARGER
        self._first_share = min(self._first_share, _MOST_SHARE)
        self._has_overflown = False

    def _last(self, level: "_Level") -> Iterator[pa.RecordBatch]:
        while level.read_on():
            for match, is_new in self._recalled.joined(level.relation, level.take()):
                met = self._past.met_combinations(self._recalled.blocks_of(match))
                yield from self._recalled.results(match, is_new if met is None else is_new & ~met)


class _Level:
    """The blocks of a relation, in the order of their keys, and the tuples of them that are kept.

    Of a block few tuples may have partners: they wait until there is a portion of them.
    """

    def __init__(
        self,
        relation: int,
        edge: Edge | None,
        reader: BlockReader,
        recalled: Recalled,
        portion_bytes: int,
    ) -> None:
        self.relation = relation
        self._edge = edge
        self._recalled = recalled
        self._portion_bytes = portion_bytes
        self._unread = BlocksInOrder(reader.blocks[relation])
        self._waiting: list[pa.RecordBatch] = []

    @property
    def held_bytes(self) -> int:
        """Memory that the tuples take which are kept, or wait."""
        tuples = self._recalled.inputs[self.relation]
        waiting = sum(batch.nbytes for batch in self._waiting)
        return tuples.held_bytes + tuples.merge_bytes + waiting

    def has_more(self) -> bool:
        """Whether there are tuples that have not been kept in this round."""
        return bool(self._waiting) or len(self._unread.next()) > 0

    def read_on(self) -> bool:
        """Read on until a portion of tuples waits; False if there is nothing more."""
        waiting_bytes = sum(batch.nbytes for batch in self._waiting)
        while waiting_bytes < self._portion_bytes and len(unread := self._unread.next()):
            batch = self._recalled.read(self.relation, int(unread.numbers[0]), self._edge)
            self._unread.advance()
            if batch.num_rows:
                self._waiting.append(batch)
                waiting_bytes += batch.nbytes
        return bool(self._waiting)

    def take(self) -> pa.RecordBatch:
        """The tuples that wait."""
        batch = join_batches(self._waiting)
        self._waiting.clear()
        return batch

    def fill(self, share_bytes: int) -> bool:
        """Keep tuples until the share is full; False if none is kept then."""
        tuples = self._recalled.inputs[self.relation]
        while self.read_on():
            batch = self.take()
            more_bytes = tuples.new_bytes(row_bytes(batch))
            if len(tuples) and self.held_bytes + more_bytes > share_bytes:
                self._waiting.append(batch)
                break
            self._recalled.keep(self.relation, batch)
        return len(tuples) > 0

    def clear(self) -> None:
        """The tuples that are kept have met all others."""
        self._recalled.inputs[self.relation].clear()

    def rewind(self) -> None:
        """Begin again with the first block."""
        self._unread.rewind()
