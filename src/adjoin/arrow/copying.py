"""Copies of stream rows, in memory that goes back to the system when it is freed.

Arrow's default allocator keeps what is freed for later; a budget that is real cannot afford that.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from adjoin.arrow.encodings import Orders, can_be_decoded, declared_values, is_plain, plain_type, plain_values
from adjoin.kernels.types import Array

_POOL = pa.system_memory_pool()
_LIBC = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 1 << 20


def _keep_heap_small() -> None:
    """Let the C library map large buffers one by one, so that they are the system's again once freed.

    Left alone, glibc takes ever larger ones from its heap, where they leave holes that nobody can use.
    """
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        _LIBC.mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)


_keep_heap_small()


def take_rows(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    """These rows of the batch."""
    chosen = _index(rows)
    columns = [pc.take(column, chosen, boundscheck=False, memory_pool=_POOL) for column in batch.columns]
    return batch_of(columns, batch.schema, len(rows))


def plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with encodings undone: values that can be taken, joined and counted."""
    if all(is_plain(field.type) for field in batch.schema):
        return batch
    schema = pa.schema([field.with_type(plain_type(field.type)) for field in batch.schema])
    return pa.RecordBatch.from_arrays([plain_values(column) for column in batch.columns], schema=schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch with these columns and without rows."""
    orders = Orders()
    columns = [
        declared_values(pa.nulls(0, plain_type(field.type)), field.type, orders, ()) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of such a batch, in which every column can be null."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def can_be_taken(type_: pa.DataType) -> bool:
    """Whether Arrow can pick values of this type, and put them back into its encoding."""
    try:
        pc.take(pa.nulls(1, plain_type(type_)), _index(np.zeros(1, np.int64)))
    except pa.ArrowNotImplementedError:
        return False
    return can_be_decoded(type_)


def _index(rows: Array) -> pa.Array:
    """Row numbers for Arrow. `pa.array` would import pandas first, which takes longer than a join."""
    rows = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.from_numpy_dtype(rows.dtype), len(rows), [None, pa.py_buffer(rows)])


def join_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """One array of all these, one behind the other."""
    return pa.concat_arrays(arrays, memory_pool=_POOL)


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all these, one behind the other."""
    return pa.concat_batches(batches, memory_pool=_POOL)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, without a hold on memory beyond its own rows."""
    if batch.get_total_buffer_size() <= batch.nbytes + 64 * batch.num_columns:
        return batch
    columns = [join_arrays([column, column.slice(0, 0)]) for column in batch.columns]
    return batch_of(columns, batch.schema, batch.num_rows)


def batch_of(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of these columns, or of so many rows without any."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
