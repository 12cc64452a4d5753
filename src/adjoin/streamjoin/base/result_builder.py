"""Result batches of two inputs: rows of one, each joined with a tuple of the other."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.arrow import row_sizes
from adjoin.arrow.copying import take_rows
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import Column, PageColumns, Places
from adjoin.memory.row_slots import RowSlots
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.spec import LEFT, TwoInputs


class ResultBuilder:
    """Builds result batches of limited size.

    Args:
        spec: The join.
        slots: The slots with the tuples of each input.
        limit_bytes: Maximum size of a batch, unless a single row is larger.
    """

    def __init__(self, spec: TwoInputs, slots: Sequence[RowSlots], limit_bytes: int) -> None:
        self._spec = spec
        self._slots = slots
        self._limit_bytes = limit_bytes

    def in_slots(self, side: int, places: Places) -> "Others":
        """Tuples of a side at these places in its slots."""
        return InSlots(self._slots[side], places)

    def pairs(
        self, side: int, batch: pa.RecordBatch, sizes: Array | int, rows: Array, others: "Others"
    ) -> Iterator[tuple[pa.RecordBatch, Array]]:
        """Rows of a batch, each joined with its tuple of the other input.

        Args:
            side: The side of the batch.
            batch: The batch.
            sizes: Bytes of each of its rows.
            rows: Its row in each pair.
            others: The other tuple of each pair.

        Returns:
            Results, and which of the pairs they are: rows whose keys only have equal hashes are left out.
        """
        chosen = self.chosen(side, batch, sizes, rows, others)
        if len(chosen) < len(rows):
            others = others.chosen(chosen)
        begin = 0
        for found in self.joined(side, batch, sizes, rows[chosen], others):
            yield found, chosen[begin : begin + found.num_rows]
            begin += found.num_rows

    def chosen(
        self, side: int, batch: pa.RecordBatch, sizes: Array | int, rows: Array, others: "Others"
    ) -> Array:
        """Which pairs have equal keys: those of the others only have equal hashes."""
        if not self._spec.condition.verifies:
            return np.arange(len(rows))
        return np.flatnonzero(self._are_same(side, batch, sizes, rows, others))

    def joined(
        self, side: int, batch: pa.RecordBatch, sizes: Array | int, rows: Array, others: "Others"
    ) -> Iterator[pa.RecordBatch]:
        """Results of these pairs."""
        names = self._spec.shown[1 - side]
        mine = sizes if isinstance(sizes, int) else sizes[rows]
        shown = batch.select(self._spec.shown[side])
        pair_sizes = np.broadcast_to(mine + others.sizes(names), len(rows))
        for begin, end in portions(pair_sizes, self._limit_bytes):
            columns = take_rows(shown, rows[begin:end]).columns
            taken = [*columns, *others.take(names, begin, end)]
            yield self._spec.result(side, taken, end - begin)

    def _are_same(
        self, side: int, batch: pa.RecordBatch, sizes: Array | int, rows: Array, others: "Others"
    ) -> Array:
        """Whether keys with equal hashes are equal; keys can be long, so they are compared in portions."""
        mine = [batch.column(name) for name in self._spec.condition.columns(side)]
        keys = pa.RecordBatch.from_arrays(mine, names=[str(number) for number in range(len(mine))])
        names = self._spec.condition.columns(1 - side)
        pair_sizes = (sizes if isinstance(sizes, int) else sizes[rows]) + others.sizes(names)
        same = [np.empty(0, bool)]
        for begin, end in portions(np.broadcast_to(pair_sizes, len(rows)), self._limit_bytes):
            both = [take_rows(keys, rows[begin:end]).columns, others.take(names, begin, end)]
            same.append(self._spec.condition.same_keys(*(both if side == LEFT else both[::-1])))
        return np.concatenate(same)


class Others(Protocol):
    """Tuples of the other input, one per pair."""

    def chosen(self, pairs: Array) -> "Others":
        """Those of these pairs."""

    def sizes(self, names: Sequence[str]) -> Array | int:
        """Bytes of these columns of each tuple."""

    def take(self, names: Sequence[str], begin: int, end: int) -> list[pa.Array]:
        """These columns of the tuples of pairs begin..end-1."""


class Slots(Protocol):
    """Slots with tuples, undecoded.

    Attributes:
        schema: The columns of the tuples.
        layout: Their buffers.
        columns: Where the buffers are in each slot.
    """

    schema: pa.Schema
    layout: list[Column]
    columns: PageColumns


class InSlots:
    """Tuples in slots."""

    def __init__(self, slots: Slots, places: Places) -> None:
        self._slots = slots
        self._places = places

    def chosen(self, pairs: Array) -> "InSlots":
        """Those of these pairs."""
        places = self._places
        return InSlots(self._slots, Places(places.slots[pairs], places.rows[pairs]))

    def _layout(self, names: Sequence[str]) -> list[Column]:
        return [self._slots.layout[self._slots.schema.names.index(name)] for name in names]

    def sizes(self, names: Sequence[str]) -> Array | int:
        """Bytes of these columns of each tuple."""
        total: Array | int = 0
        for column in self._layout(names):
            total = total + self._slots.columns.measuring_bytes(column, self._places)
            total = total + self._slots.columns.value_bytes(column, self._places)
        return total

    def take(self, names: Sequence[str], begin: int, end: int) -> list[pa.Array]:
        """These columns of the tuples of pairs begin..end-1."""
        part = self._places.slice(begin, end)
        return [self._slots.columns.take(column, part) for column in self._layout(names)]


class InBatch:
    """Tuples given as rows of a batch."""

    def __init__(self, batch: pa.RecordBatch, sizes: Array | int, rows: Array) -> None:
        self._batch = batch
        self._sizes = sizes
        self._rows = rows

    def chosen(self, pairs: Array) -> "InBatch":
        """Those of these pairs."""
        return InBatch(self._batch, self._sizes, self._rows[pairs])

    def sizes(self, names: Sequence[str]) -> Array | int:  # noqa: ARG002 - the other columns are few bytes
        """Bytes of the whole tuples."""
        return self._sizes if isinstance(self._sizes, int) else self._sizes[self._rows]

    def take(self, names: Sequence[str], begin: int, end: int) -> list[pa.Array]:
        """These columns of the tuples of pairs begin..end-1."""
        taken: list[pa.Array] = take_rows(self._batch.select(list(names)), self._rows[begin:end]).columns
        return taken


def sizes_of(batch: pa.RecordBatch) -> Array | int:
    """Bytes of each row of a batch; one number if all rows have the same size."""
    sizes = row_sizes.sizes_of(batch)
    return sizes if sizes is not None else row_sizes.fixed_row_bytes(batch.schema)
