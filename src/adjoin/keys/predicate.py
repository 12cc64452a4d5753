"""Join predicates: the range of encoded master keys that each stream row matches."""

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.types import Array
from adjoin.keys.casts import tick_nanoseconds, widens
from adjoin.keys.codec import KeyCodec, fixed_values, valid_rows

Distance = int | float | Decimal | datetime.timedelta
Bounds = tuple[Array, Array, Array | None]
"""For each row the least and greatest encoded key that match it, and which rows have a key (None: all)."""

_LEAST = np.iinfo(np.int64).min
_GREATEST = np.iinfo(np.int64).max
_DOMAIN = 1 << 64
"""The number of encoded keys; no two of them are this far apart."""
_FAR = 1 << 1100
"""Greater than any key, and than any distance between keys, even for floats."""
_MOST_DIGITS = 400
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Predicate(Protocol):
    columns: tuple[str, ...]
    """The stream's columns that the predicate uses."""
    is_equality: bool

    def bounds(self, batch: pa.RecordBatch) -> Bounds:
        """The range of matching keys for each row of the batch."""


class Equality:
    """Master key = stream key."""

    is_equality = True

    def __init__(self, codec: KeyCodec, columns: tuple[str, ...]) -> None:
        self._codec = codec
        self.columns: tuple[str, ...] = columns

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of the batch, in the master's types."""
        return self._codec.conform([batch.column(name) for name in self.columns], exact=False)

    def bounds(self, batch: pa.RecordBatch) -> Bounds:
        low, valid = self._codec.encode(self.keys(batch))
        return low, low, valid


class Between:
    """Stream's low <= master key <= stream's high."""

    is_equality = False

    def __init__(self, codec: KeyCodec, columns: tuple[str, str]) -> None:
        _require_order(codec)
        self._codec = codec
        self.columns: tuple[str, ...] = columns

    def bounds(self, batch: pa.RecordBatch) -> Bounds:
        low, low_valid = _ends(self._codec, batch.column(self.columns[0]), 0)[0]
        high, high_valid = _ends(self._codec, batch.column(self.columns[1]), 0)[1]
        return low, high, _both(low_valid, high_valid)


class Within:
    """Stream key - distance <= master key <= stream key + distance, computed in the key's type."""

    is_equality = False

    def __init__(self, codec: KeyCodec, column: str, distance: Distance) -> None:
        _require_order(codec)
        self._codec = codec
        self.columns: tuple[str, ...] = (column,)
        self._is_float = pa.types.is_floating(codec.types[0])
        self._distance = _in_key_units(distance, codec.types[0])

    def bounds(self, batch: pa.RecordBatch) -> Bounds:
        column = batch.column(self.columns[0])
        if not self._is_float:
            (low, low_valid), (high, high_valid) = _ends(self._codec, column, int(self._distance))
            return low, high, _both(low_valid, high_valid)
        (key,) = self._codec.conform([column])
        values = key.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = values - self._distance, values + self._distance
        encoded = [self._codec.encode([pa.array(end)])[0] for end in (low, high)]
        return encoded[0], encoded[1], valid_rows([key])


End = tuple[Array, Array | None]
"""Encoded keys, and which rows have one (None: all)."""


def _ends(codec: KeyCodec, column: pa.Array, distance: int) -> tuple[End, End]:
    """The ends of the range within this distance of each value, clipped to int64.

    Times in a coarser unit than the key's may lie outside of int64, and still be within the distance of keys.
    """
    factor = 1
    if pa.types.is_temporal(column.type) and widens(column.type, codec.types[0]):
        factor = tick_nanoseconds(column.type) // tick_nanoseconds(codec.types[0])
    if factor == 1:
        values, valid = codec.encode(codec.conform([column]))
    else:
        width = column.type.bit_width // 8
        values, valid = fixed_values(column, np.dtype(f"i{width}")).astype(np.int64), valid_rows([column])
    low, _, above = _saturated(values, factor, -distance)
    high, below, _ = _saturated(values, factor, distance)
    return (low, _without(valid, above)), (high, _without(valid, below))


def _saturated(values: Array, factor: int, shift: int) -> tuple[Array, Array, Array]:
    """Values times factor plus shift, clipped to int64, and which of them lay below and above it."""
    below = _less(values, -((shift - _LEAST) // factor))
    above = _less(-1 - values, -1 - (_GREATEST - shift) // factor)
    wrapped = values.view(np.uint64) * np.uint64(factor) + np.uint64(shift % _DOMAIN)
    exact = wrapped.view(np.int64)
    return np.where(below, _LEAST, np.where(above, _GREATEST, exact)), below, above


def _less(values: Array, bound: int) -> Array:
    """Whether each value is less than the bound, which need not fit into int64."""
    if bound > _GREATEST:
        return np.ones(len(values), bool)
    return values < np.int64(max(bound, _LEAST))


def _without(valid: Array | None, beyond: Array) -> Array | None:
    if not beyond.any():
        return valid
    return ~beyond if valid is None else valid & ~beyond


def _both(one: Array | None, other: Array | None) -> Array | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _require_order(codec: KeyCodec) -> None:
    if not codec.ordered:
        raise SchemaError(
            f"a range predicate needs a single key column whose order is preserved, but the key "
            f"{list(codec.columns)} of type {[str(type_) for type_ in codec.types]} is hashed; join by "
            "equality, or build the master with a number, date or timestamp as its key"
        )


def _in_key_units(distance: Distance, type_: pa.DataType) -> float | int:
    """The distance in units of the key's resolution, rounded down; for floats, unchanged."""
    if isinstance(distance, datetime.timedelta):
        units: float | int = _ticks(distance, type_)
        if units < 0:
            raise OptionError(f"within={distance!r} must not be negative")
        return units
    exact = _exact(distance)
    if pa.types.is_floating(type_):
        return _as_float(exact)
    if pa.types.is_decimal(type_):
        exact = exact if exact is None else exact * Fraction(10) ** type_.scale
    elif not (pa.types.is_integer(type_) or pa.types.is_date32(type_)):
        raise OptionError(
            f"within={distance!r} does not fit a key of type {type_}; give a datetime.timedelta"
        )
    return _DOMAIN if exact is None else min(math.floor(exact), _DOMAIN)


def _exact(distance: object) -> Fraction | None:
    """The exact value as written; None if it is infinite, or larger than any distance."""
    if isinstance(distance, np.integer | np.floating) and distance.dtype.kind != "m":
        distance = distance.item()
    if not isinstance(distance, int | float | Decimal) or isinstance(distance, bool):
        raise OptionError(f"within={distance!r}: give a number or a timedelta")
    number = Decimal(str(distance)) if isinstance(distance, float) else distance
    if (isinstance(number, Decimal) and number.is_nan()) or number < 0:
        raise OptionError(f"within={distance!r} must not be negative or NaN")
    if isinstance(number, int):
        return Fraction(min(number, _FAR))
    if number.is_infinite() or number.adjusted() > _MOST_DIGITS:
        return None
    return Fraction(number) if number.adjusted() > -_MOST_DIGITS else Fraction(0)


def _as_float(exact: Fraction | None) -> float:
    try:
        return math.inf if exact is None else float(exact)
    except OverflowError:
        return math.inf


def _ticks(distance: datetime.timedelta, type_: pa.DataType) -> int:
    microseconds = distance // datetime.timedelta(microseconds=1)
    if pa.types.is_date32(type_):
        return distance // datetime.timedelta(days=1)
    if pa.types.is_date64(type_):
        return microseconds // 1000
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_) or pa.types.is_duration(type_):
        return microseconds * _TICKS_PER_SECOND[type_.unit] // 10**6
    raise OptionError(f"within={distance!r} does not fit a key of type {type_}; give a number")
