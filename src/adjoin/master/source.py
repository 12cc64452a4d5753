"""Sources of rows, read as record batches of bounded size and plain types."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adjoin.errors import SchemaError
from adjoin.kernels.cutting import cut_rows
from adjoin.keys.casts import cast_column, stored_field, stored_type

_ENCODED_ROWS = 16_384  # the most rows to decode at once if their decoded length is not known


@dataclass(frozen=True)
class Source:
    """Rows that can be read once.

    Attributes:
        schema: The columns, with the types in which they are stored.
        rows: The number of rows, if it is known beforehand.
        batches: The rows, in batches of bounded size.
    """

    schema: pa.Schema
    rows: int | None
    batches: Iterator[pa.RecordBatch]


def open_source(source: Any, batch_bytes: int) -> Source:
    """Open a Table, RecordBatch, RecordBatchReader, Dataset or a path to Parquet."""
    rows: int | None = None
    if isinstance(source, pa.RecordBatch):
        schema, rows, batches = source.schema, source.num_rows, iter([source])
    elif isinstance(source, pa.Table):
        schema, rows, batches = source.schema, source.num_rows, iter(source.to_batches())
    elif isinstance(source, pa.RecordBatchReader):
        schema, batches = source.schema, iter(source)
    else:
        # Importing pyarrow's datasets also loads pandas; programs that only join should not wait for that.
        from adjoin.master.dataset import open_dataset  # noqa: PLC0415

        schema, rows, batches = open_dataset(source, batch_bytes)
    plain = plain_schema(schema)
    return Source(plain, rows, bounded(batches, plain, batch_bytes))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema, with each type replaced by the one in which it is stored."""
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"columns {twice} occur more than once; rename them")
    return pa.schema([stored_field(field.name, field, nested=False) for field in schema], schema.metadata)


def split(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices of at most `limit_bytes`, or of a single row."""
    if batch.num_rows <= 1 or batch.nbytes <= limit_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half), limit_bytes)
    yield from split(batch.slice(half), limit_bytes)


def split_decoded(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices that take at most about `limit_bytes` once their columns are decoded."""
    encoded = [
        batch.column(at)
        for at, field in enumerate(batch.schema)
        if not stored_type(field.name, field.type).equals(field.type)
    ]
    if not encoded or not batch.num_rows:
        yield from split(batch, limit_bytes)
        return
    sizes = np.full(batch.num_rows, limit_bytes // _ENCODED_ROWS + 1)
    for column in encoded:
        sizes += _decoded_bytes(column)
    starts = np.full(batch.num_rows + 1, batch.num_rows)
    parts = cut_rows(sizes, limit_bytes, starts)
    for start, stop in zip(starts[:parts].tolist(), starts[1 : parts + 1].tolist(), strict=True):
        yield batch.slice(start, stop - start)


def _decoded_bytes(column: pa.Array) -> NDArray[np.int64] | int:
    """Bytes of each decoded string of a dictionary, or of the longest one in a run-end encoded column."""
    if not (pa.types.is_dictionary(column.type) or pa.types.is_run_end_encoded(column.type)):
        return 0
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else column.values
    try:
        lengths = pc.binary_length(values).cast(pa.int64()).fill_null(0).to_numpy()
    except pa.ArrowNotImplementedError:
        return 0
    if not isinstance(column, pa.DictionaryArray):
        return int(lengths.max(initial=0))
    codes = column.indices.cast(pa.int64()).fill_null(len(lengths)).to_numpy()
    each: NDArray[np.int64] = np.append(lengths, 0)[codes]
    return each


def bounded(
    batches: Iterator[pa.RecordBatch], plain: pa.Schema, limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The batches with the types of `plain`, split where they are too large."""
    for batch in batches:
        if sorted(batch.schema.names) != sorted(plain.names):
            raise SchemaError(
                f"a batch has the columns {batch.schema.names}, but the source declares {plain.names}"
            )
        for part in split_decoded(batch, limit_bytes):
            columns = [cast_column(field.name, part.column(field.name), field) for field in plain]
            yield from split(pa.record_batch(columns, schema=plain), limit_bytes)
