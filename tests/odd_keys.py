"""Key columns of every type, their extreme values, and the exact meaning of these."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

Exact = Any
"""A Fraction, a string, bytes, a bool, or None."""
_TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9

TYPES: tuple[pa.DataType, ...] = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.decimal32(7, 2),
    pa.decimal64(18, 6),
    pa.decimal128(9, 2),
    pa.decimal128(18, 0),
    pa.decimal128(20, 0),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.decimal128(5, -3),
    pa.decimal256(76, 0),
    pa.decimal256(76, 40),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.timestamp(unit) for unit in _TICKS),
    *(pa.timestamp(unit, zone) for unit, zone in (("s", "UTC"), ("ns", "Europe/Athens"))),
    *(pa.duration(unit) for unit in _TICKS),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(3),
)


def is_clock(type_: pa.DataType) -> bool:
    """Whether values are counts of ticks."""
    return bool(pa.types.is_temporal(type_))


def tick(type_: pa.DataType) -> int:
    """The resolution in nanoseconds."""
    if pa.types.is_date32(type_):
        return _DAY
    return _TICKS["ms" if pa.types.is_date64(type_) else type_.unit]


def edges(type_: pa.DataType) -> pa.Array:
    """Extreme values, and a null."""
    is_ = pa.types
    if is_.is_boolean(type_):
        return pa.array([True, False, None], type_)
    if is_.is_integer(type_):
        low, high = (int(end) for end in (np.iinfo(str(type_)).min, np.iinfo(str(type_)).max))
        near: list[Any] = [
            low,
            low + 1,
            -1,
            0,
            1,
            100,
            127,
            128,
            255,
            256,
            2**31,
            2**53 + 1,
            2**63,
            high - 1,
            high,
        ]
        return pa.array([value for value in near if low <= value <= high] + [None], type_)
    if is_.is_floating(type_):
        dtype: Any = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]
        near = [0.0, -0.0, 1.0, 0.1, -2.5, 1 / 3, 65504.0, 65505.0, 3e38, 1e39, 1e-40, 1e300, 2**24 + 1]
        near += [math.inf, -math.inf, math.nan, 2**53 + 1, np.finfo(dtype).max, np.finfo(dtype).tiny]
        with np.errstate(over="ignore"):
            return pa.concat_arrays([pa.array(np.array(near).astype(dtype)), pa.nulls(1, type_)])
    if is_.is_decimal(type_):
        return _decimals(type_)
    if is_clock(type_):
        return _ticks(type_)
    if is_.is_fixed_size_binary(type_):
        return pa.array([b"abc", b"\0\0\0", None], type_)
    texts = ["", "abc", "ab", "\0\0\0", "a" * 30, "ä", None]
    if "binary" in str(type_):
        return pa.array([None if text is None else text.encode() for text in texts], type_)
    return pa.array(texts, type_)


def _decimals(type_: pa.DataType) -> pa.Array:
    most = 10**type_.precision - 1
    units = [0, 1, -1, most, -most, most // 7, 10 ** (type_.precision - 1), 10 ** (type_.precision // 2)]
    units += [value * 10**type_.scale for value in (1, 127, -128, 255, 2**31, 2**63, 2**64 - 1, -(2**63))] * (
        type_.scale >= 0
    )
    units = [unit for unit in units if abs(unit) <= most]
    values = [Decimal((unit < 0, tuple(map(int, str(abs(unit)))), -type_.scale)) for unit in units]
    return pa.array([*values, None], type_)


def _ticks(type_: pa.DataType) -> pa.Array:
    bits = type_.bit_width
    near = [0, 1, 2**bits // 4, 1_000, 86_399, 10**9, 9_223_372_036, 9_223_372_037, 10**18]
    if pa.types.is_time(type_):
        near = [value for value in near if value * tick(type_) < _DAY]
    else:
        near += [-1, -1_000, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 86_400_000, -9_223_372_037]
        near = [value for value in near if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)]
    storage = pa.int32() if bits == 32 else pa.int64()
    return pa.array([*near, None], storage).view(type_)


def exact(column: pa.Array) -> list[Exact]:
    """The exact values: numbers as fractions, times as nanoseconds, NaN as a string."""
    type_ = column.type
    if is_clock(type_):
        ticks = column.view(pa.int32() if type_.bit_width == 32 else pa.int64()).to_pylist()
        return [None if value is None else Fraction(value * tick(type_)) for value in ticks]
    return [_number(value) for value in column.to_pylist()]


def _number(value: Any) -> Exact:
    if value is None or isinstance(value, bool | str | bytes):
        return value
    if not isinstance(value, int | Decimal) and not math.isfinite(value):
        return str(float(value))
    return Fraction(value) if isinstance(value, int | Decimal) else Fraction(float(value))


def holds(type_: pa.DataType, value: Exact) -> bool:
    """Whether a type can represent this value."""
    is_ = pa.types
    if not isinstance(value, Fraction):
        return not is_.is_fixed_size_binary(type_) or (
            isinstance(value, bytes) and len(value) == type_.byte_width
        )
    if is_.is_integer(type_):
        limits = np.iinfo(str(type_))
        return value.denominator == 1 and int(limits.min) <= value <= int(limits.max)
    if is_.is_decimal(type_):
        units = value * Fraction(10) ** type_.scale
        return units.denominator == 1 and abs(units) < 10**type_.precision
    if is_clock(type_):
        ticks, bits = value / tick(type_), type_.bit_width
        return ticks.denominator == 1 and -(2 ** (bits - 1)) <= ticks < 2 ** (bits - 1)
    dtype: Any = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]
    with np.errstate(over="ignore"):
        nearest = float(dtype(float(value)))
    return math.isfinite(nearest) and Fraction(nearest) == value
