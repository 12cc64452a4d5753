"""Results: rows of one input beside those of the other."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.parts import output
from adjoin.parts.columns import Places
from adjoin.parts.copying import take_rows
from adjoin.parts.portions import portions
from adjoin.parts.rowslots import RowSlots
from adjoin.streamjoin.grid import LEFT
from adjoin.streamjoin.spec import TwoInputs


class Results:
    """Builds result batches of limited size.

    Args:
        spec: The join.
        slots: Where the tuples of each input lie.
        limit_bytes: Size of a batch, unless a single row is larger.
    """

    def __init__(self, spec: TwoInputs, slots: Sequence[RowSlots], limit_bytes: int) -> None:
        self._spec = spec
        self._slots = slots
        self._columns = [
            [some.layout[some.schema.names.index(name)] for name in names]
            for some, names in zip(slots, spec.shown, strict=True)
        ]
        self._limit_bytes = limit_bytes

    def beside(
        self, side: int, batch: pa.RecordBatch, sizes: Array | int, rows: Array, places: Places
    ) -> Iterator[tuple[pa.RecordBatch, Array]]:
        """Rows of a batch, of these sizes, each beside the tuple of the other input at its place.

        Returns:
            Results, and which of the pairs they are.
        """
        chosen = np.arange(len(rows))
        if self._spec.verifies:
            chosen = np.flatnonzero(self._are_same(side, batch, rows, places))
        slots, columns = self._slots[1 - side], self._columns[1 - side]
        wanted = places if len(chosen) == len(places) else _chosen(places, chosen)
        pair_sizes = sizes if isinstance(sizes, int) else sizes[rows[chosen]]
        for column in columns:
            pair_sizes = pair_sizes + slots.columns.measuring_bytes(column, wanted)
            pair_sizes = pair_sizes + slots.columns.value_bytes(column, wanted)
        shown = batch.select(self._spec.shown[side])
        for begin, end in portions(np.broadcast_to(pair_sizes, len(chosen)), self._limit_bytes):
            some = chosen[begin:end]
            mine = take_rows(shown, rows[some]).columns
            part = wanted.slice(begin, end)
            theirs = [slots.columns.take(column, part) for column in columns]
            yield self._spec.result(side, [*mine, *theirs]), some

    def _are_same(self, side: int, batch: pa.RecordBatch, rows: Array, places: Places) -> Array:
        mine = [batch.column(name) for name in self._spec.key_names(side)]
        taken = take_rows(pa.RecordBatch.from_arrays(mine, names=[str(i) for i in range(len(mine))]), rows)
        slots = self._slots[1 - side]
        theirs = [
            slots.columns.take(slots.layout[slots.schema.names.index(name)], places)
            for name in self._spec.key_names(1 - side)
        ]
        left, right = (taken.columns, theirs) if side == LEFT else (theirs, taken.columns)
        return self._spec.same_keys(left, right)


def sizes_of(batch: pa.RecordBatch) -> Array | int:
    """Bytes of each row of a batch, or of every one where all take the same."""
    sizes = output.sizes_of(batch)
    return sizes if sizes is not None else output.fixed_row_bytes(batch.schema)


def _chosen(places: Places, chosen: Array) -> Places:
    return Places(places.slots[chosen], places.rows[chosen])
