"""Copies of stream rows, allocated by the C library.

Arrow's default allocator keeps freed memory for later. The C library returns large buffers to the system, if
told so: see `adjoin.memory.heap`.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adjoin.arrow.encodings import Orders, can_be_decoded, declared_values, is_plain, plain_type, plain_values
from adjoin.kernels.types import Array

_POOL = pa.system_memory_pool()


def take_rows(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    """The given rows of the batch, copied."""
    chosen = _index(rows)
    columns = [pc.take(column, chosen, boundscheck=False, memory_pool=_POOL) for column in batch.columns]
    return batch_of(columns, batch.schema, len(rows))


def plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its columns decoded: their values can be taken, joined and counted."""
    if all(is_plain(field.type) for field in batch.schema):
        return batch
    schema = pa.schema([field.with_type(plain_type(field.type)) for field in batch.schema])
    return pa.RecordBatch.from_arrays([plain_values(column) for column in batch.columns], schema=schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """An empty batch with this schema."""
    orders = Orders()
    columns = [
        declared_values(pa.nulls(0, plain_type(field.type)), field.type, orders, ()) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of `plain_columns`, with every column nullable."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def can_be_taken(type_: pa.DataType) -> bool:
    """Whether Arrow can take values of this type, and restore its encoding."""
    try:
        pc.take(pa.nulls(1, plain_type(type_)), _index(np.zeros(1, np.int64)))
    except pa.ArrowNotImplementedError:
        return False
    return can_be_decoded(type_)


def _index(rows: Array) -> pa.Array:
    """Row numbers as an Arrow array. `pa.array` would import pandas, which takes longer than a join."""
    rows = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.from_numpy_dtype(rows.dtype), len(rows), [None, pa.py_buffer(rows)])


def join_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays."""
    return pa.concat_arrays(arrays, memory_pool=_POOL)


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches."""
    return pa.concat_batches(batches, memory_pool=_POOL)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, copied if its buffers hold more than its own rows."""
    if batch.get_total_buffer_size() <= batch.nbytes + 64 * batch.num_columns:
        return batch
    columns = [join_arrays([column, column.slice(0, 0)]) for column in batch.columns]
    return batch_of(columns, batch.schema, batch.num_rows)


def batch_of(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of these columns, or one with this number of rows and no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
