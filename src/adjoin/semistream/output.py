"""Result rows: the stream's columns beside those of the master."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.parts.columns import Column, PageColumns, Places
from adjoin.parts.copying import take_rows
from adjoin.parts.rows import row_bytes


class Output:
    """Builds result batches of limited size.

    Args:
        schema: The schema of the results.
        columns: The master's columns in the arena.
        layout: Those of them that are put out.
        limit_bytes: Size of a batch, unless a single row is larger.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: PageColumns,
        layout: list[Column],
        limit_bytes: int,
    ) -> None:
        self.schema = schema
        self._columns = columns
        self._layout = layout
        self._limit_bytes = limit_bytes

    def alone(self, batch: pa.RecordBatch, rows: Array) -> Iterator[pa.RecordBatch]:
        """These stream rows; master columns, if any, are null."""
        for begin, end in self._cuts(self._stream_bytes(batch, rows), len(rows)):
            some = take_rows(batch, rows[begin:end])
            nulls = [pa.nulls(end - begin, field.type) for field in list(self.schema)[batch.num_columns :]]
            yield self._batch([*some.columns, *nulls])

    def matched(self, batch: pa.RecordBatch, rows: Array, places: Places) -> Iterator[pa.RecordBatch]:
        """Stream rows, each beside the master row at its place."""
        sizes = self._stream_bytes(batch, rows)
        for column in self._layout:
            sizes = sizes + self._columns.value_bytes(column, places)
        fields = list(self.schema)[batch.num_columns :]
        for begin, end in self._cuts(sizes, len(rows)):
            some = take_rows(batch, rows[begin:end])
            part = places if end - begin == len(places) else places.slice(begin, end)
            values = [
                _wrap(self._columns.take(column, part), field.type)
                for column, field in zip(self._layout, fields, strict=True)
            ]
            yield self._batch([*some.columns, *values])

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        fields = zip(columns, self.schema, strict=True)
        as_declared = [
            column if column.type.equals(field.type) else column.cast(field.type) for column, field in fields
        ]
        return pa.RecordBatch.from_arrays(as_declared, schema=self.schema)

    def _stream_bytes(self, batch: pa.RecordBatch, rows: Array) -> Array | int:
        fixed = _fixed_row_bytes(batch.schema)
        return fixed or row_bytes(batch)[rows]

    def _cuts(self, sizes: Array | int, rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows that each fit a batch."""
        if isinstance(sizes, int):
            step = max(1, self._limit_bytes // max(sizes, 1))
            yield from ((begin, min(begin + step, rows)) for begin in range(0, rows, step))
            return
        ends = np.cumsum(sizes)
        begin = 0
        while begin < rows:
            before = ends[begin - 1] if begin else 0
            end = int(np.searchsorted(ends, before + self._limit_bytes, side="right"))
            end = max(end, begin + 1)
            yield begin, end
            begin = end


def _fixed_row_bytes(schema: pa.Schema) -> int:
    """Bytes of a row where all columns have a fixed width, else 0."""
    total = 0
    for field in schema:
        try:
            total += field.type.bit_width // 8 + 1
        except ValueError:
            return 0
    return total


def _wrap(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, array)
    return array
