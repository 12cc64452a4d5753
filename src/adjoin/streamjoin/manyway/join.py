"""The frame of joins of any number of inputs: what is the same for all of them beside the phases."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from adjoin.arrow.copying import plain_schema
from adjoin.arrow.encodings import Orders
from adjoin.streamjoin.base.sizes import ReadingMany, slot_notes_bytes
from adjoin.streamjoin.base.spilling import SpillingJoin
from adjoin.streamjoin.disk.joined_blocks import Box
from adjoin.streamjoin.disk.read_blocks import BlockReader
from adjoin.streamjoin.manyway.cleanup import ManyCleanup
from adjoin.streamjoin.manyway.matching import Match, Matching
from adjoin.streamjoin.manyway.probe_order import ProbeOrder
from adjoin.streamjoin.manyway.recalled import MORE_BYTES, Recalled, recalled_schema
from adjoin.streamjoin.manyway.results import ManyResults
from adjoin.streamjoin.manyway.spec import ManyInputs
from adjoin.streamjoin.memory.ordered_index import INTERVAL_BYTES
from adjoin.streamjoin.memory.tuples import stored_schema

_BLOCKS_IN_FLIGHT = 3
"""A block that is read: as it is, in order, and with its keys."""


class ManyInputJoin(SpillingJoin):
    """A join of any number of inputs that spills.

    Args:
        relations: The schema of every input, by name.
        on: Conditions such as "r1.a = r2.b", "abs(r1.a - r2.b) <= 5" or "r2.c between r1.a and r1.b". They
            make the relations a tree; several equalities of the same two are a key of several columns.
        memory: Budget of the whole operator: bytes, or text such as "64MB".
        columns: Columns of the results, `<relation>_<column>`; all by default.
        **options: Those of `SpillingJoin`.
    """

    reading: ReadingMany
    scatters: ClassVar[bool] = False
    """Whether a key that all relations share is scattered, so that ranges of it are hash partitions."""

    def __init__(
        self,
        relations: Mapping[str, pa.Schema],
        on: Sequence[str],
        memory: int | str = "64MB",
        *,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self._spec = spec = ManyInputs(relations, on, columns, scatters=self.scatters)
        self._order = ProbeOrder(spec.graph)
        self._rooms: list[Recalled] = []
        attributes = max(map(len, spec.attributes))
        entry_bytes, merge_bytes = INTERVAL_BYTES
        row_bytes = MORE_BYTES + attributes * entry_bytes + merge_bytes
        stored = [recalled_schema(stored_schema(plain_schema(schema))) for schema in spec.schemas]
        self.reading = ReadingMany(
            row_bytes=row_bytes, inner=len(spec) - 2, slot_notes_bytes=sum(map(slot_notes_bytes, stored))
        )
        super().__init__(spec.graph.names, spec.schemas, spec.schema, spec.are_points, memory, **options)
        self._matching = Matching(spec, self._inputs, self._order, self._sizes.work_bytes // 2)

    @property
    def _orders(self) -> Orders:
        return self._spec.orders

    @cached_property
    def _reader(self) -> BlockReader:
        return BlockReader(self._blocks, self.counts)

    @cached_property
    def _results(self) -> ManyResults:
        return ManyResults(self._spec, self._sizes.work_bytes // 2)

    def _recalled(self, slots: int, memory_bytes: int) -> Recalled:
        """Room for tuples from disk."""
        recalled = Recalled(
            self._spec,
            self._reader,
            self._results,
            slots=slots,
            slot_bytes=self._sizes.slot_bytes,
            limit_bytes=self._sizes.work_bytes // 2,
            memory_bytes=memory_bytes,
        )
        self._rooms.append(recalled)
        return recalled

    def _close(self) -> None:
        super()._close()
        for recalled in self._rooms:
            recalled.close()

    def metrics(self) -> dict[str, Any]:
        """Those of all joins that spill, and `selectivities`: the share of pairs that meet each condition."""
        return {**super().metrics(), "selectivities": self._order.selectivities}

    def _condition(self) -> dict[str, Any]:
        return {"on": [edge.text for edge in self._spec.graph.edges]}

    def _more_facts(self) -> dict[str, Any]:
        return {"order": self._order.to_json()}

    def _restore_more(self, facts: dict[str, Any]) -> None:
        self._order.restore(facts["order"])

    def _take_in(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows, keys = self._spec.keyed(side, piece)
        self._expect(side, rows, keys)
        for match in self._matching.of(side, rows, keys):
            for batch in self._results.of(match):
                self.counts.results_online += batch.num_rows
                yield batch
            self._credit(match)
        self._kept.catch_up()

    def _credit(self, match: Match) -> None:
        """These tuples were in a result."""

    @property
    def _box(self) -> Box:
        """Which blocks have been joined in reactive phases."""
        return Box()

    def _make_cleanup(self) -> ManyCleanup:
        for tuples in self._inputs if any(map(len, self._blocks)) else ():
            tuples.slots.close()  # all are on disk; those that come back have as many slots
        memory_bytes = self._budget.free_bytes - _BLOCKS_IN_FLIGHT * self._sizes.slot_bytes
        portion_bytes = min(self._sizes.work_bytes // 4, memory_bytes // (8 * len(self._spec)))
        recalled = self._recalled(self._sizes.slots, memory_bytes)
        return ManyCleanup(self._spec.graph, self._reader, recalled, self._box, memory_bytes, portion_bytes)
