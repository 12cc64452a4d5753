"""The frame of joins of two inputs: what is the same for all of them beside the phases."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from adjoin.arrow.encodings import Orders
from adjoin.kernels.sorting import argsort_keys
from adjoin.keys.predicate import Distance
from adjoin.streamjoin.base.results import Results, sizes_of
from adjoin.streamjoin.base.spec import SIDES, Keyed, On, TwoInputs
from adjoin.streamjoin.base.spilling import SpillingJoin
from adjoin.streamjoin.disk.cleanup import Cleanup
from adjoin.streamjoin.disk.pair_join import OUTER_BYTES, DiskJoin
from adjoin.streamjoin.memory.row_store import places_of


class TwoInputJoin(SpillingJoin):
    """A join of two inputs that spills.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator: bytes, or text such as "64MB".
        within: Band join: right key between left key - within and left key + within.
        between: Range join: right key between these two left columns; `on` names the right's key.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns of the results; all by default. They come in the order in which all would.
        **options: Those of `SpillingJoin`.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self._spec = TwoInputs(left, right, on, within, between, suffix, columns)
        are_points = [[points] for points in self._spec.condition.are_points]
        super().__init__(SIDES, (left, right), self._spec.schema, are_points, memory, **options)

    @property
    def _orders(self) -> Orders:
        return self._spec.orders

    def _condition(self) -> dict[str, Any]:
        return self._spec.described

    @cached_property
    def _results(self) -> Results:
        return Results(self._spec, [tuples.slots for tuples in self._inputs], self._sizes.work_bytes // 2)

    @cached_property
    def _disk_join(self) -> DiskJoin:
        return DiskJoin(
            self._spec, self._inputs, self._blocks, self._results, self.counts, self._sizes.piece_rows
        )

    def _take_in(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = self._sorted(side, piece)
        self._expect(side, rows.batch, [(rows.low, rows.high)])
        if not self._has_ended[1 - side] or len(self._inputs[1 - side]):
            yield from self._probe(side, rows)
        self._kept.catch_up()

    def _sorted(self, side: int, piece: pa.RecordBatch) -> Keyed:
        """Rows with a key, in the order of their keys."""
        rows = self._keyed(side, piece)
        return rows.take(argsort_keys(rows.low))

    def _keyed(self, side: int, piece: pa.RecordBatch) -> Keyed:
        return self._spec.keyed(side, piece)

    def _probe(self, side: int, rows: Keyed) -> Iterator[pa.RecordBatch]:
        index, sizes = self._inputs[1 - side].index, sizes_of(rows.batch)
        for some in index.matches(rows.low, rows.high, self._sizes.piece_rows):
            others = self._results.in_slots(1 - side, places_of(some.place))
            for batch, pairs in self._results.beside(side, rows.batch, sizes, some.owner, others):
                self.counts.results_online += batch.num_rows
                self._policy.joined(side, rows.low[some.owner[pairs]])
                self._policy.joined(1 - side, some.low[pairs])
                yield batch

    def _make_cleanup(self) -> Cleanup:
        return Cleanup(self._disk_join, self._reactive, self._most_outer())

    def _most_outer(self) -> int:
        rows = max((blocks.rows / len(blocks) for blocks in self._blocks if len(blocks)), default=1.0)
        per_block = self._sizes.slot_bytes + rows * OUTER_BYTES
        return max(self._sizes.max_outer, int((self._budget.free_bytes - self._sizes.slot_bytes) / per_block))
