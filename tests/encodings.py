"""Columns of any type, nested, encoded or extended, and their values."""

import random
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

UUID = pa.uuid()
LEAVES = (
    pa.int8(),
    pa.float16(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary_view(),
    pa.binary(3),
    pa.decimal128(12, 2),
    pa.timestamp("us", "UTC"),
    pa.null(),
    UUID,
    pa.bool8(),
    pa.json_(),
)
KNOWN = (
    pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))]),
    pa.list_(pa.dictionary(pa.int32(), pa.string())),
    pa.list_(UUID),
    pa.map_(pa.string(), pa.dictionary(pa.int16(), pa.string_view())),
    pa.map_(pa.string(), UUID),
    pa.list_(UUID, 2),
    pa.struct([("u", UUID), ("l", pa.large_list(pa.struct([("v", pa.string_view())])))]),
    pa.run_end_encoded(pa.int16(), pa.string()),
    pa.list_(pa.run_end_encoded(pa.int32(), pa.string())),
    pa.run_end_encoded(pa.int32(), pa.struct([("a", pa.int8())])),
    pa.list_view(pa.int8()),
    pa.large_list_view(pa.dictionary(pa.int8(), pa.binary_view())),
    pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    pa.dictionary(pa.int16(), pa.struct([("a", pa.string_view())])),
    pa.dictionary(pa.int8(), pa.string_view()),
    pa.dictionary(pa.uint8(), pa.dictionary(pa.int8(), pa.string())),
    pa.dictionary(pa.int32(), UUID),
    pa.dictionary(pa.int8(), pa.string(), ordered=True),
    pa.list_(pa.dictionary(pa.int8(), pa.string(), ordered=True)),
    pa.struct([]),
    pa.binary(0),
    pa.list_(pa.int16(), 0),
    pa.list_(pa.null()),
    pa.fixed_shape_tensor(pa.int8(), [2, 2]),
    pa.opaque(pa.list_(pa.string_view()), "a", "b"),
)
"""Types at which joins once aborted, raised errors of Arrow, or lost information."""


def any_type(chance: random.Random, depth: int = 3) -> pa.DataType:
    """A random type."""
    if depth == 0 or chance.random() < 0.25:
        return chance.choice(LEAVES)

    def inner() -> pa.DataType:
        return any_type(chance, depth - 1)

    kind = chance.randrange(10)
    if kind == 0:
        return pa.struct([(name, inner()) for name in "abc"[: chance.randrange(4)]])
    if kind == 1:
        return pa.list_(inner(), chance.randrange(3))
    if kind == 2:
        return pa.map_(chance.choice([pa.string(), pa.int8(), pa.string_view()]), inner())
    if kind == 3:
        return pa.run_end_encoded(chance.choice([pa.int16(), pa.int32(), pa.int64()]), any_type(chance, 0))
    if kind in {4, 5}:
        return pa.dictionary(chance.choice([pa.int8(), pa.uint16(), pa.int32(), pa.int64()]), inner())
    make = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view][kind - 6]
    return make(inner())


def any_array(chance: random.Random, type_: pa.DataType, rows: int) -> pa.Array:
    """Random values, some of them null, in an array that is a slice of another one."""
    before = chance.randrange(3)
    return _array(chance, type_, before + rows).slice(before, rows)


def _array(chance: random.Random, type_: pa.DataType, rows: int) -> pa.Array:
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _array(chance, type_.storage_type, rows))
    if is_.is_dictionary(type_):
        values = _array(chance, type_.value_type, 5)
        if type_.ordered:
            values = pa.array(["small", "middle", "large", "huge", "all"], type_.value_type)
        indices = [None if chance.random() < 0.1 else chance.randrange(5) for _ in range(rows)]
        return pa.DictionaryArray.from_arrays(
            pa.array(indices, type_.index_type), values, ordered=type_.ordered
        )
    if is_.is_run_end_encoded(type_):
        runs = -(-rows // 3)
        ends = [min(3 * run + 3, rows) for run in range(runs)]
        values = _array(chance, type_.value_type, runs)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, type_.run_end_type), values, type_)
    if is_.is_struct(type_):
        children = [_array(chance, field.type, rows) for field in type_]
        return pa.Array.from_buffers(type_, rows, [_validity(chance, rows)], children=children)
    if is_.is_fixed_size_list(type_):
        values = _array(chance, type_.value_type, rows * type_.list_size)
        return pa.Array.from_buffers(type_, rows, [_validity(chance, rows)], children=[values])
    if is_.is_map(type_):
        offsets = _offsets(chance, rows)
        keys = pa.array([key % 100 for key in range(offsets[-1])], pa.int64())
        keys = keys.cast(pa.string()).cast(type_.key_type) if not is_.is_int8(type_.key_type) else keys
        items = _array(chance, type_.item_type, int(offsets[-1]))
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys.cast(type_.key_type), items, type_)
    if type_.num_fields:
        return _lists(chance, type_, rows)
    return pa.array([_value(chance, type_) for _ in range(rows)], type_)


def _lists(chance: random.Random, type_: pa.DataType, rows: int) -> pa.Array:
    offsets = _offsets(chance, rows)
    values = _array(chance, type_.value_type, int(offsets[-1]))
    is_large = pa.types.is_large_list(type_) or pa.types.is_large_list_view(type_)
    dtype = np.int64 if is_large else np.int32
    buffers = [_validity(chance, rows), pa.py_buffer(offsets.astype(dtype))]
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        buffers[1:] = [
            pa.py_buffer(offsets[:-1].astype(dtype)[::-1].copy()),
            pa.py_buffer(np.diff(offsets).astype(dtype)[::-1].copy()),
        ]
    return pa.Array.from_buffers(type_, rows, buffers, children=[values])


def _offsets(chance: random.Random, rows: int) -> np.ndarray:
    return np.cumsum([0] + [chance.choice([0, 1, 3]) for _ in range(rows)])


def _validity(chance: random.Random, rows: int) -> pa.Buffer:
    valid = np.array([chance.random() > 0.2 for _ in range(rows)], bool)
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _value(chance: random.Random, type_: pa.DataType) -> Any:
    is_ = pa.types
    if chance.random() < 0.2 or is_.is_null(type_):
        return None
    number = chance.randrange(100)
    if is_.is_fixed_size_binary(type_):
        return bytes([number]) * type_.byte_width
    if is_.is_floating(type_):
        return np.float16(number / 4)
    if is_.is_decimal(type_):
        return Decimal(number) / 4
    if is_.is_boolean(type_):
        return number % 2 == 0
    if is_.is_timestamp(type_):
        return number * 86_400_000_000
    if is_.is_integer(type_):
        return number
    return ("x" * (number % 20)) if "string" in str(type_) else b"y" * (number % 20)


def uuids(rows: int) -> pa.Array:
    """Distinct UUIDs."""
    return pa.array([uuid.UUID(int=number).bytes for number in range(rows)], pa.binary(16)).cast(UUID)
