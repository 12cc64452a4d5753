"""Tuples read back from disk, in memory until they have been joined."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import no_rows, take_rows
from adjoin.kernels.types import Array
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.disk.blocks import Block
from adjoin.streamjoin.manyway.graph import Edge
from adjoin.streamjoin.manyway.matching import ManyResultBuilder, Match, Matching, ProbeOrder
from adjoin.streamjoin.manyway.spec import ManyInputs
from adjoin.streamjoin.memory.ordered_index import OrderedIndex
from adjoin.streamjoin.memory.tuples import ARRIVED

LEFT_AT, BLOCK = "_adjoin_left", "_adjoin_block"
MORE_BYTES = 16
"""Of such a tuple, besides its row and moment of arrival: when it left, and its block."""


class ReloadedTuples:
    """Brings back blocks: those of some relations are indexed, and those of another are joined with them.

    Args:
        spec: The join.
        storage: Holds the blocks, and counts what is read of them.
        slots: The maximum number of slots of each relation.
        memory_bytes: The maximum that all tuples may take.

    Attributes:
        inputs: The tuples of every relation that are back.
    """

    def __init__(self, spec: ManyInputs, storage: Storage, *, slots: int, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._spec = spec
        self._reader = storage.reader
        limit_bytes = storage.sizes.work_bytes // 2
        self._results = ManyResultBuilder(spec, limit_bytes)
        self.inputs = [
            storage.reloaded_tuples(reloaded_schema(blocks.schema), are_points=points, slots=slots)
            for blocks, points in zip(storage.blocks, spec.are_points, strict=True)
        ]
        self._matching = Matching(spec, self.inputs, ProbeOrder(spec.graph), limit_bytes)

    def read(self, relation: int, number: int, edge: Edge | None = None) -> pa.RecordBatch:
        """The tuples of a block; with an edge, only those that may match a tuple at its other end."""
        if edge is not None and not self._may_reach(relation, number, edge):
            return no_rows(self.inputs[relation].schema)
        block, rows = self._reader.read(relation, number)
        left = block.left
        if edge is not None:
            chosen = np.flatnonzero(
                self._partners(relation, edge).may_match(*self._keys(relation, edge, block, rows))
            )
            rows, left = take_rows(rows, chosen), left[chosen]
        columns = [pa.array(left), pa.array(np.full(len(left), number)), *rows.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.inputs[relation].schema)

    def _partners(self, relation: int, edge: Edge) -> OrderedIndex:
        """The tuples at the other end of an edge."""
        other = edge.other(relation)
        return self.inputs[other].indexes[self._spec.attribute_of(other, edge)]

    def _may_reach(self, relation: int, number: int, edge: Edge) -> bool:
        """Whether the key range of a block overlaps; it is only known for the first attribute."""
        if self._spec.attribute_of(relation, edge):
            return True
        first, last = self._reader.blocks[relation].reach_of(number)
        least, greatest = self._partners(relation, edge).span
        return least <= last and first <= greatest

    def _keys(self, relation: int, edge: Edge, block: Block, rows: pa.RecordBatch) -> tuple[Array, Array]:
        attribute = self._spec.attribute_of(relation, edge)
        if attribute == 0:
            return block.low, block.high
        low, high, _ = self._spec.keys(relation, attribute, rows)
        return low, high

    def keep(self, relation: int, batch: pa.RecordBatch) -> None:
        """Add tuples to the index."""
        self.inputs[relation].add(*self._spec.keyed(relation, batch), densely=True)

    def joined(self, relation: int, batch: pa.RecordBatch) -> Iterator[tuple[Match, Array]]:
        """Matches of tuples with those of all other relations; and which have not been joined in memory.

        The tuples of a match were in memory together if none left before the last one arrived.
        """
        for match in self._matching.of(relation, *self._spec.keyed(relation, batch)):
            arrived = np.maximum.reduce([match.numbers(number, ARRIVED) for number in match.parts])
            left = np.minimum.reduce([match.numbers(number, LEFT_AT) for number in match.parts])
            yield match, arrived > left

    def results(self, match: Match, chosen: Array) -> Iterator[pa.RecordBatch]:
        """The results of some matches."""
        yield from self._results.of(match.chosen(np.flatnonzero(chosen)))

    def blocks_of(self, match: Match) -> Sequence[Array]:
        """The block of every tuple of a match, by relation."""
        return [match.numbers(relation, BLOCK) for relation in range(len(self._spec))]

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself, or tuples exceed their memory."""
        for tuples in self.inputs:
            tuples.check_invariants()
        held = sum(tuples.held_bytes for tuples in self.inputs)
        assert held + max(tuples.merge_bytes for tuples in self.inputs) <= self._memory_bytes


def reloaded_schema(stored: pa.Schema) -> pa.Schema:
    """The columns of a tuple that is back: when it left, its block, then those of the stored tuple."""
    more = [pa.field(name, pa.int64(), False) for name in (LEFT_AT, BLOCK)]
    return pa.schema([*more, *stored])
