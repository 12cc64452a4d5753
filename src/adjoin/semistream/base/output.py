"""Result rows: the stream's columns beside those of the master."""

from collections.abc import Iterator

import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.arrow.encodings import Orders, declared_values
from adjoin.arrow.row_sizes import fixed_row_bytes
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import Column, PageColumns, Places
from adjoin.operators.portions import portions
from adjoin.semistream.base.buffers import Rows


class Output:
    """Builds result batches of limited size.

    Args:
        schema: The schema of the results.
        columns: The master's columns in the arena.
        layout: Those of them that are put out.
        limit_bytes: Size of a batch, unless a single row is larger.
        orders: What ordered dictionaries of the stream are ordered by.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: PageColumns,
        layout: list[Column],
        limit_bytes: int,
        orders: Orders,
    ) -> None:
        self._orders = orders
        self.schema = schema
        self._columns = columns
        self._layout = layout
        self._limit_bytes = limit_bytes

    def alone(self, rows: Rows, chosen: Array) -> Iterator[pa.RecordBatch]:
        """These stream rows; master columns, if any, are null."""
        fields = list(self.schema)[rows.batch.num_columns :]
        for begin, end in self._cuts(_stream_bytes(rows, chosen), len(chosen)):
            some = take_rows(rows.batch, chosen[begin:end])
            nulls = [pa.nulls(end - begin, field.type) for field in fields]
            yield self._batch([*some.columns, *nulls])

    def matched(self, rows: Rows, chosen: Array, places: Places) -> Iterator[pa.RecordBatch]:
        """Stream rows, each beside the master row at its place."""
        items: Array | int = 0
        for column in self._layout:
            items = items + self._columns.measuring_bytes(column, places)
        for begin, end in self._cuts(items, len(chosen)):
            yield from self._beside(rows, chosen[begin:end], _part(places, begin, end))

    def _beside(self, rows: Rows, chosen: Array, places: Places) -> Iterator[pa.RecordBatch]:
        sizes = _stream_bytes(rows, chosen)
        for column in self._layout:
            sizes = sizes + self._columns.value_bytes(column, places)
        fields = list(self.schema)[rows.batch.num_columns :]
        for begin, end in self._cuts(sizes, len(chosen)):
            some = take_rows(rows.batch, chosen[begin:end])
            part = _part(places, begin, end)
            values = [
                _wrap(self._columns.take(column, part), field.type)
                for column, field in zip(self._layout, fields, strict=True)
            ]
            yield self._batch([*some.columns, *values])

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        declared = [
            declared_values(column, field.type, self._orders, (field.name,))
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(declared, schema=self.schema)

    def _cuts(self, sizes: Array | int, rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows that each fit a batch."""
        if isinstance(sizes, int):
            step = max(1, self._limit_bytes // max(sizes, 1))
            yield from ((begin, min(begin + step, rows)) for begin in range(0, rows, step))
            return
        yield from portions(sizes, self._limit_bytes)


def _stream_bytes(rows: Rows, chosen: Array) -> Array | int:
    return fixed_row_bytes(rows.batch.schema) if rows.sizes is None else rows.sizes[chosen]


def _part(places: Places, begin: int, end: int) -> Places:
    return places if end - begin == len(places) else places.slice(begin, end)


def _wrap(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, array)
    return array
