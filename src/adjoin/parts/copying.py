"""Copies of stream rows, in memory that goes back to the system when it is freed.

Arrow's default allocator keeps what is freed for later; a budget that is real cannot afford that.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    """The batch with views and dictionaries undone: values that can be taken, joined and counted."""
    plain = [_plain(column.type) for column in batch.columns]
    if not any(plain):
        return batch
    columns = [
        column.cast(type_) if type_ else column for column, type_ in zip(batch.columns, plain, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch with these columns and without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of such a batch, in which every column can be null."""
    return pa.schema([pa.field(field.name, _plain(field.type) or field.type) for field in schema])


def as_declared(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A plain column in the type of the result: a view, a dictionary, or as it is."""
    if column.type.equals(type_):
        return column
    if pa.types.is_dictionary(type_):
        encoded = column.cast(type_.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(type_.index_type), encoded.dictionary, ordered=type_.ordered
        )
    return column.cast(type_)


def declared_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a stream column of this type comes out: narrow dictionary indices are widened.

    Batches of the stream have dictionaries of their own; a result holds values of several.
    """
    if pa.types.is_dictionary(type_) and type_.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)
    return type_


def _plain(type_: pa.DataType) -> pa.DataType | None:
    """The plain type of a view or dictionary; None for every other type."""
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type) or type_.value_type
    if pa.types.is_string_view(type_):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(type_) else None


def can_be_taken(type_: pa.DataType) -> bool:
    """Whether Arrow can pick values of this type, and join those of batches with their own dictionaries."""
    if any(_has_narrow_dictionary(type_.field(at).type) for at in range(type_.num_fields)):
        return False
    try:
        pc.take(pa.nulls(1, _plain(type_) or type_), _index(np.zeros(1, np.int64)))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _has_narrow_dictionary(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return bool(type_.index_type.bit_width < 32)
    return any(_has_narrow_dictionary(type_.field(at).type) for at in range(type_.num_fields))


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
