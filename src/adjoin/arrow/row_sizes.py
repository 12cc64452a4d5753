"""The bytes that each row adds to an Arrow IPC message, for columns of every type."""

from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.arrow.copying import plain_columns
from adjoin.arrow.encodings import has_offsets, is_plain, offsets_of, plain_type
from adjoin.kernels.types import Array

_PADDING_BYTES = 8  # every buffer of an IPC body ends at a multiple of this
_ROWS_AT_A_TIME = 1 << 16

Bits = NDArray[np.int64] | int


def row_bytes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Upper bound of the bytes that each row adds to the body of a message, `without_neighbors`.

    A nullable column counts its validity bit whether or not this batch has nulls, so that the
    bound of a row does not depend on the other rows of its batch.
    """
    fixed = _fixed_row_bytes(batch.schema)
    if fixed is not None:
        return np.full(batch.num_rows, fixed)
    bits: Bits = 0
    for field, column in zip(batch.schema, batch.columns, strict=True):
        bits = bits + _row_bits(column, field.nullable)
    return (np.broadcast_to(np.asarray(bits, np.int64), batch.num_rows) + 7) // 8


@lru_cache(maxsize=64)
def _fixed_row_bytes(schema: pa.Schema) -> int | None:
    """The result of `row_bytes` for every row, if all columns have a fixed width; otherwise None."""
    bits: Bits = 0
    for field in schema:
        if pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType):
            return None
        try:
            bits = bits + field.type.bit_width + field.nullable
        except ValueError:
            return None
    return (int(bits) + 7) // 8


def sizes_of(batch: pa.RecordBatch) -> Array | None:
    """Bytes of each row; None if all columns have a fixed width."""
    return None if fixed_row_bytes(batch.schema) else row_bytes(batch)


def can_be_measured(type_: pa.DataType) -> bool:
    """Whether the size of values of this type is known."""
    try:
        sizes_of(pa.record_batch([pa.nulls(0, plain_type(type_))], names=[""]))
    except ValueError:
        return False
    return True


def fixed_row_bytes(schema: pa.Schema) -> int:
    """Bytes of a row if all columns have a fixed width, otherwise 0."""
    total = 0
    for field in schema:
        try:
            total += field.type.bit_width // 8 + 1
        except ValueError:
            return 0
    return total


def row_larger_than(limit_bytes: int, batch: pa.RecordBatch) -> tuple[int, int] | None:
    """A row that takes more than `limit_bytes`, and its size; None if there is none.

    The size of a row is that of its decoded values, of the offset of each string, binary or list (4 bytes,
    or 8 for the large types), and a bit for each value that may be null.
    """
    has_plain_columns = all(is_plain(field.type) for field in batch.schema)
    if has_plain_columns and batch.nbytes + len(batch.schema) < limit_bytes:
        return None
    for begin in range(0, batch.num_rows, _ROWS_AT_A_TIME):
        some = plain_columns(batch.slice(begin, _ROWS_AT_A_TIME))
        schema = pa.schema([field.with_nullable(True) for field in some.schema])
        sizes = row_bytes(pa.RecordBatch.from_arrays(some.columns, schema=schema))
        row = int(np.argmax(sizes))
        if sizes[row] > limit_bytes:
            return begin + row, int(sizes[row])
    return None


def without_neighbors(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy whose buffers hold only its own rows.

    Arrow serializes a slice with up to 63 bytes of neighboring rows in each buffer, and a nested column
    whose slice has no items with the offsets of all items of the whole column.
    """
    return batch.take(pa.array(np.arange(batch.num_rows)))


def message_of(batch: pa.RecordBatch, limit_bytes: int) -> pa.Buffer:
    """The batch as a message of at most `limit_bytes`, which must suffice according to `row_bytes`."""
    message = batch.serialize()
    if message.size > limit_bytes:
        message = without_neighbors(batch).serialize()
    if message.size > limit_bytes:
        raise ValueError(f"{batch.num_rows} rows take {message.size} bytes, more than {limit_bytes}")
    return message


def message_overhead(schema: pa.Schema) -> int:
    """Upper bound of the bytes of a message with these columns, in addition to those `row_bytes` counts."""
    return metadata_bytes(schema) + sum(_buffer_padding(field.type) for field in schema)


def metadata_bytes(schema: pa.Schema) -> int:
    """The bytes of a message with these columns before its first value, however many rows it has."""
    nulls = [pa.nulls(1, field.type) for field in schema]
    message = pa.record_batch(nulls, schema=schema).serialize()
    return 8 + int.from_bytes(message[4:8].to_pybytes(), "little")


def _row_bits(array: pa.Array, nullable: bool) -> Bits:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _row_bits(array.storage, nullable)
    if pa.types.is_null(kind):
        return 0
    return int(nullable) + _value_bits(array, kind)


def _value_bits(array: pa.Array, kind: pa.DataType) -> Bits:
    if has_offsets(kind):
        offsets = offsets_of(array)
        bounds = offsets.astype(np.int64)
        return 8 * (bounds[1:] - bounds[:-1] + offsets.itemsize)
    if pa.types.is_struct(kind):
        return _struct_bits([array.field(at) for at in range(kind.num_fields)], list(kind))
    if pa.types.is_map(kind):
        return _list_bits(array, lambda start, count: _map_bits(array, kind, start, count))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_bits(
            array, lambda start, count: _row_bits(array.values.slice(start, count), kind.value_field.nullable)
        )
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        children = array.values.slice(array.offset * size, len(array) * size)
        bits = np.broadcast_to(np.asarray(_row_bits(children, kind.value_field.nullable)), len(children))
        return np.asarray(bits.reshape(len(array), size).sum(axis=1, dtype=np.int64))
    return int(kind.bit_width)


def _struct_bits(columns: list[pa.Array], fields: list[pa.Field]) -> Bits:
    bits: Bits = 0
    for column, field in zip(columns, fields, strict=True):
        bits = bits + _row_bits(column, field.nullable)
    return bits


def _map_bits(array: pa.MapArray, kind: pa.MapType, start: int, count: int) -> Bits:
    entries = [array.keys.slice(start, count), array.items.slice(start, count)]
    return _struct_bits(entries, [kind.key_field, kind.item_field])


def _list_bits(array: pa.Array, child_bits) -> NDArray[np.int64]:  # type: ignore[no-untyped-def]
    offsets = offsets_of(array)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    bits = np.zeros(count + 1, np.int64)
    np.cumsum(np.broadcast_to(np.asarray(child_bits(start, count), np.int64), count), out=bits[1:])
    bounds = offsets.astype(np.int64) - start
    sums: NDArray[np.int64] = bits[bounds[1:]] - bits[bounds[:-1]]
    return sums + 8 * offsets.itemsize


def _buffer_padding(kind: pa.DataType) -> int:
    """Padding of all buffers of a column, including the extra offset and the last byte of the bitmap."""
    if isinstance(kind, pa.BaseExtensionType):
        return _buffer_padding(kind.storage_type)
    own = 2 * _PADDING_BYTES
    if has_offsets(kind):
        return own + 2 * _PADDING_BYTES
    if kind.num_fields:
        # For a map this is one padding too many, because of the struct of its entries.
        children = sum(_buffer_padding(kind.field(at).type) for at in range(kind.num_fields))
        return own + 2 * _PADDING_BYTES + children
    return own
