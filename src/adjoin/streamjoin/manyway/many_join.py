"""Any number of inputs joined: rows that arrive with tuples in memory, and in the end blocks on disk."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from adjoin.arrow.copying import plain_schema
from adjoin.streamjoin.base.parts import FlushPolicy, ReactiveWork, TupleJoin
from adjoin.streamjoin.base.sizes import ManyReactiveMemory, slot_notes_bytes
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.manyway.cleanup import ManyCleanup
from adjoin.streamjoin.manyway.matching import ManyResultBuilder, Match, Matching, ProbeOrder
from adjoin.streamjoin.manyway.reloaded_tuples import MORE_BYTES, ReloadedTuples, reloaded_schema
from adjoin.streamjoin.manyway.spec import ManyInputs
from adjoin.streamjoin.memory.ordered_index import INTERVAL_BYTES
from adjoin.streamjoin.memory.tuples import KeyIntervals, tuple_schema

_BLOCKS_IN_FLIGHT = 3
"""A block that is read: as it is, in order, and with its keys."""


def reactive_memory(spec: ManyInputs) -> ManyReactiveMemory:
    """What a join of these inputs keeps in memory in a reactive phase."""
    entry_bytes, merge_bytes = INTERVAL_BYTES
    stored = [reloaded_schema(tuple_schema(plain_schema(schema))) for schema in spec.schemas]
    return ManyReactiveMemory(
        row_bytes=MORE_BYTES + max(map(len, spec.attributes)) * entry_bytes + merge_bytes,
        inner=len(spec) - 2,
        slot_notes_bytes=sum(map(slot_notes_bytes, stored)),
    )


class ManyJoin(TupleJoin):
    """Joins the tuples of any number of inputs.

    Args:
        spec: The join.
        storage: Holds the tuples.

    Attributes:
        order: Which relation a row probes next.
    """

    def __init__(self, spec: ManyInputs, storage: Storage) -> None:
        self._spec = spec
        self._storage = storage
        limit_bytes = storage.sizes.work_bytes // 2
        self.order = ProbeOrder(spec.graph)
        self._matching = Matching(spec, storage.inputs, self.order, limit_bytes)
        self._results = ManyResultBuilder(spec, limit_bytes)

    def probe(
        self, side: int, rows: pa.RecordBatch, keys: KeyIntervals, policy: FlushPolicy
    ) -> Iterator[pa.RecordBatch]:
        """Probe one relation after the other; a row stops at the first that has no match for it."""
        for match in self._matching.of(side, rows, keys):
            yield from self._results.of(match)
            if policy.credits_matches:
                self._credit(match, policy)

    def _credit(self, match: Match, policy: FlushPolicy) -> None:
        for relation, edges in enumerate(self._spec.attributes):
            for attribute in range(len(edges)):
                low, _ = self._matching.keys_of(match, relation, attribute)
                policy.joined(relation, low, attribute)

    def cleanup(self, reactive: ReactiveWork) -> ManyCleanup:
        """The cleanup phase: as much of the first relation at a time as memory holds."""
        storage = self._storage
        for tuples in storage.inputs if storage.has_blocks else ():
            tuples.slots.close()  # all are on disk; those that come back have as many slots
        memory_bytes = storage.budget.free_bytes - _BLOCKS_IN_FLIGHT * storage.sizes.slot_bytes
        portion_bytes = min(storage.sizes.work_bytes // 4, memory_bytes // (8 * len(self._spec)))
        reloaded = ReloadedTuples(self._spec, storage, slots=storage.sizes.slots, memory_bytes=memory_bytes)
        return ManyCleanup(self._spec.graph, storage.reader, reloaded, reactive, memory_bytes, portion_bytes)

    def metrics(self) -> dict[str, Any]:
        """`selectivities`: the share of pairs that meet each condition."""
        return {"selectivities": self.order.selectivities}

    def to_json(self) -> dict[str, Any]:
        """The selectivities."""
        return {"order": self.order.to_json()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from a snapshot with the names of `to_json`."""
        self.order.restore(saved["order"])
