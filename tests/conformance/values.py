"""Columns of every type, filled at random, and pools of distinct keys with the awkward ones in them."""

import string
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Rng = np.random.Generator

_LETTERS = [*string.ascii_letters, *string.digits, " ", "é", "ß", "Ж", "東", "😀", "\x00"]
_FLOAT_EDGES = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.5]

PAYLOAD_TYPES: dict[str, pa.DataType] = {
    **{str(t): t for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): t for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "null": pa.null(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "fixed_binary": pa.binary(5),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32": pa.time32("ms"),
    "time64": pa.time64("ns"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_us": pa.timestamp("us"),
    "timestamp_ns_tz": pa.timestamp("ns", tz="Europe/Berlin"),
    "duration": pa.duration("us"),
    "decimal_small": pa.decimal128(9, 2),
    "decimal_wide": pa.decimal128(38, 10),
    "decimal_256": pa.decimal256(60, 5),
    "list": pa.list_(pa.int64()),
    "large_list": pa.large_list(pa.string()),
    "fixed_list": pa.list_(pa.float32(), 3),
    "struct": pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.bool_()))]),
    "list_of_struct": pa.list_(pa.struct([("x", pa.float64()), ("y", pa.large_string())])),
    "map": pa.map_(pa.string(), pa.int64()),
}

KEY_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    **{str(t): (t,) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): (t,) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "bool": (pa.bool_(),),
    "float16": (pa.float16(),),
    "float32": (pa.float32(),),
    "float64": (pa.float64(),),
    "date32": (pa.date32(),),
    "date64": (pa.date64(),),
    "time32": (pa.time32("s"),),
    "time64": (pa.time64("us"),),
    "timestamp_ms": (pa.timestamp("ms"),),
    "timestamp_ns_tz": (pa.timestamp("ns", tz="Europe/Berlin"),),
    "duration": (pa.duration("ns"),),
    "decimal_9": (pa.decimal128(9, 2),),
    "decimal_18": (pa.decimal128(18, 4),),
    "decimal_38": (pa.decimal128(38, 6),),
    "decimal_256": (pa.decimal256(50, 3),),
    "string": (pa.string(),),
    "large_string": (pa.large_string(),),
    "binary": (pa.binary(),),
    "large_binary": (pa.large_binary(),),
    "fixed_binary": (pa.binary(6),),
    "int32+string": (pa.int32(), pa.string()),
    "int64+int64": (pa.int64(), pa.int64()),
    "string+date32+decimal": (pa.string(), pa.date32(), pa.decimal128(12, 3)),
    "float64+binary": (pa.float64(), pa.binary()),
}

WIDENED = {
    "int8 in int64": (pa.int8(), pa.int64()),
    "uint8 in int16": (pa.uint8(), pa.int16()),
    "uint16 in uint64": (pa.uint16(), pa.uint64()),
    "int16 in int32": (pa.int16(), pa.int32()),
    "float32 in float64": (pa.float32(), pa.float64()),
    "string in large_string": (pa.string(), pa.large_string()),
    "large_string in string": (pa.large_string(), pa.string()),
    "dictionary in string": (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    "dictionary in int64": (pa.dictionary(pa.int32(), pa.int64()), pa.int64()),
    "int16 in float32": (pa.int16(), pa.float32()),
    "int32 in decimal(14,2)": (pa.int32(), pa.decimal128(14, 2)),
    "binary in large_binary": (pa.binary(), pa.large_binary()),
    "timestamp(s) in timestamp(us)": (pa.timestamp("s"), pa.timestamp("us")),
    "time32(s) in time64(us)": (pa.time32("s"), pa.time64("us")),
    "decimal(7,2) in decimal(12,4)": (pa.decimal128(7, 2), pa.decimal128(12, 4)),
    "decimal(7,2) in decimal(30,4)": (pa.decimal128(7, 2), pa.decimal128(30, 4)),
}
"""A narrow type of the stream, or left, and the one it is compared in: that of the master, or right."""

_HASHED = {"decimal_38", "decimal_256", "string", "large_string", "binary", "large_binary", "fixed_binary"}
ORDERED_KEYS = [name for name, types in KEY_TYPES.items() if len(types) == 1 and name not in _HASHED]
MEASURABLE_KEYS = [name for name in ORDERED_KEYS if name != "bool"]


def random_column(kind: pa.DataType, rows: int, rng: Rng, null_share: float = 0.15) -> pa.Array:
    """A column of any type, with nulls and awkward values."""
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    make = _maker(kind)
    values = [None if rng.random() < null_share else make(rng) for _ in range(rows)]
    return _array(values, kind)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    storage = _integer_storage(kind)
    return pa.array(values, storage).cast(kind) if storage else pa.array(values, kind)


def _integer_storage(kind: pa.DataType) -> pa.DataType | None:
    if not pa.types.is_temporal(kind):
        return None
    return pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()


def _maker(kind: pa.DataType) -> Callable[[Rng], Any]:
    if pa.types.is_integer(kind):
        low, high = integer_bounds(kind)
        return lambda rng: _edge_or(
            rng, [low, high, 0], lambda: low + int(rng.integers(0, 2**63)) % (high - low)
        )
    if pa.types.is_temporal(kind):
        return _temporal_maker(kind)
    if pa.types.is_floating(kind):
        dtype = kind.to_pandas_dtype()
        return lambda rng: dtype(_edge_or(rng, _FLOAT_EDGES, rng.normal))
    if pa.types.is_boolean(kind):
        return lambda rng: bool(rng.random() < 0.5)
    if pa.types.is_decimal(kind):
        return lambda rng: _decimal(rng, kind)
    if pa.types.is_nested(kind):
        return _nested_maker(kind)
    if pa.types.is_fixed_size_binary(kind):
        return lambda rng: rng.bytes(kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda rng: rng.bytes(int(rng.integers(0, 30)))
    return lambda rng: "".join(_LETTERS[i] for i in rng.integers(0, len(_LETTERS), int(rng.integers(0, 20))))


def _nested_maker(kind: pa.DataType) -> Callable[[Rng], Any]:
    if pa.types.is_struct(kind):
        makers = {field.name: _maker(field.type) for field in kind}
        return lambda rng: {name: _maybe(rng, make) for name, make in makers.items()}
    if pa.types.is_map(kind):
        key, item = _maker(kind.key_type), _maker(kind.item_type)
        return lambda rng: [(key(rng), _maybe(rng, item)) for _ in range(int(rng.integers(0, 4)))]
    item = _maker(kind.value_type)
    size = getattr(kind, "list_size", None)
    return lambda rng: [_maybe(rng, item) for _ in range(size or int(rng.integers(0, 6)))]


def _maybe(rng: Rng, make: Callable[[Rng], Any]) -> Any:
    return None if rng.random() < 0.1 else make(rng)


def _edge_or(rng: Rng, edges: list[Any], make: Callable[[], Any]) -> Any:
    return edges[int(rng.integers(len(edges)))] if rng.random() < 0.2 else make()


def _temporal_maker(kind: pa.DataType) -> Callable[[Rng], int]:
    if pa.types.is_date64(kind):
        return lambda rng: int(rng.integers(-30_000, 30_000)) * 86_400_000
    if pa.types.is_time(kind):
        day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        return lambda rng: int(rng.integers(0, day))
    span = 30_000 if pa.types.is_date32(kind) else 4 * 10**9
    return lambda rng: int(rng.integers(-span, span))


def _decimal(rng: Rng, kind: pa.DataType) -> Decimal:
    digits = int(rng.integers(1, kind.precision + 1))
    unscaled = tuple(int(digit) for digit in rng.integers(0, 10, digits))
    return Decimal((int(rng.integers(0, 2)), unscaled, -kind.scale))


def integer_bounds(kind: pa.DataType) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def key_pool(types: tuple[pa.DataType, ...], size: int, seed: int) -> list[pa.Array]:
    """Distinct non-null keys, one array per key column, with the extremes of the type among them.

    0.0 and -0.0 may both be there: they are one key, which is what a test wants to meet.
    """
    rng = np.random.default_rng(seed)
    columns = [_distinct(kind, size, rng) for kind in types]
    if len(columns) == 1:
        return columns
    # Few values per column, so that rows often agree in one component and differ in another.
    few = [column.slice(0, min(len(column), 9)) for column in columns]
    rows = [rng.integers(0, len(column), size) for column in few]
    return [column.take(pa.array(index)) for column, index in zip(few, rows, strict=True)]


def _distinct(kind: pa.DataType, size: int, rng: Rng) -> pa.Array:
    make = _maker(kind)
    edges = _edges(kind)
    seen: dict[Any, Any] = {repr(value): value for value in edges}
    for _ in range(size * 4):
        if len(seen) >= size:
            break
        value = make(rng)
        seen.setdefault(repr(value), value)
    return _array(list(seen.values()), kind)


def _edges(kind: pa.DataType) -> list[Any]:
    if pa.types.is_integer(kind):
        low, high = integer_bounds(kind)
        return [low, high, high // 2, high // 2 + 1, 0, 1]
    if pa.types.is_floating(kind):
        dtype = kind.to_pandas_dtype()
        return [dtype(value) for value in (*_FLOAT_EDGES, -1.5)]
    if pa.types.is_decimal(kind):
        nines = tuple([9] * kind.precision)
        return [Decimal((sign, nines, -kind.scale)) for sign in (0, 1)] + [Decimal(0).scaleb(-kind.scale)]
    if pa.types.is_temporal(kind):
        return [0]
    if pa.types.is_boolean(kind):
        return [False, True]
    if pa.types.is_fixed_size_binary(kind):
        return [bytes(kind.byte_width)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [b"", b"\x00", b"\x00\x00", b"a" * 200]
    return ["", "\x00", "a", "ab", "é", "東京", "a" * 200]


def reach_of(kind: pa.DataType) -> Any:
    """A distance that some pairs of random keys of this type are within."""
    if pa.types.is_floating(kind):
        return 0.25
    if pa.types.is_decimal(kind):
        return Decimal("12.5")
    if pa.types.is_date(kind):
        return timedelta(days=200)
    if pa.types.is_time(kind):
        return timedelta(seconds=900)
    if pa.types.is_temporal(kind):
        return {"s": 1, "ms": 10**-3, "us": 10**-6, "ns": 10**-9}[kind.unit] * timedelta(seconds=4 * 10**7)
    return (integer_bounds(kind)[1] - integer_bounds(kind)[0]) // 40


def strings(rows: int, rng: np.random.Generator, longest: int = 120) -> pa.Array:
    """Payload that makes rows wide."""
    lengths = rng.integers(longest // 2, longest, rows)
    return pa.array([chr(97 + i % 26) * int(length) for i, length in enumerate(lengths)], pa.string())
