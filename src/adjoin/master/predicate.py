"""Which master keys a stream row matches, as a range of encoded keys."""

import datetime
import math
from decimal import Decimal
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.types import Array
from adjoin.master.keys import KeyCodec

Distance = int | float | Decimal | datetime.timedelta
Bounds = tuple[Array, Array, Array | None]
"""Least and greatest encoded key that match each row, and which rows have a key (None: all)."""

_LEAST = np.iinfo(np.int64).min
_GREATEST = np.iinfo(np.int64).max
_DOMAIN = 1 << 64
"""No two encoded keys are so far apart."""
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Predicate(Protocol):
    columns: tuple[str, ...]
    """The stream's columns that it looks at."""
    is_equality: bool

    def bounds(self, batch: pa.RecordBatch) -> Bounds:
        """The range of each row of the batch."""


class Equality:
    """Master key = stream key."""

    is_equality = True

    def __init__(self, codec: KeyCodec, columns: tuple[str, ...]) -> None:
        self._codec = codec
        self.columns: tuple[str, ...] = columns

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of the batch in the master's types."""
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
        low, low_valid = self._encode(batch, self.columns[0])
        high, high_valid = self._encode(batch, self.columns[1])
        if low_valid is None or high_valid is None:
            return low, high, low_valid if high_valid is None else high_valid
        return low, high, low_valid & high_valid

    def _encode(self, batch: pa.RecordBatch, name: str) -> tuple[Array, Array | None]:
        return self._codec.encode(self._codec.conform([batch.column(name)]))


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
        key = self._codec.conform([batch.column(self.columns[0])])
        encoded, valid = self._codec.encode(key)
        if self._is_float:
            values = key[0].fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = values - self._distance, values + self._distance
            return self._codec.encode([pa.array(low)])[0], self._codec.encode([pa.array(high)])[0], valid
        low = high = encoded
        left = min(self._distance, _DOMAIN)
        while left > 0:
            step = np.int64(min(left, _GREATEST))
            low = np.where(low < _LEAST + step, _LEAST, low - step)
            high = np.where(high > _GREATEST - step, _GREATEST, high + step)
            left -= int(step)
        return low, high, valid


def _require_order(codec: KeyCodec) -> None:
    if not codec.ordered:
        raise SchemaError(
            f"a range predicate needs one key column whose order is kept; {list(codec.columns)} of type "
            f"{[str(type_) for type_ in codec.types]} is stored by hash: join by equality, or build the "
            "master on a number, date or timestamp"
        )


def _in_key_units(distance: Distance, type_: pa.DataType) -> float | int:
    """The distance as a number of the key's smallest steps, rounded down (floats: as it is)."""
    if isinstance(distance, datetime.timedelta):
        units: float | int = _ticks(distance, type_)
    elif not isinstance(distance, int | float | Decimal) or isinstance(distance, bool):
        raise OptionError(f"within={distance!r} is not a number or timedelta")
    elif math.isnan(distance) or distance < 0:
        raise OptionError(f"within={distance!r} must not be negative")
    elif math.isinf(distance):
        units = math.inf if pa.types.is_floating(type_) else _DOMAIN
    elif pa.types.is_floating(type_):
        units = float(distance)
    elif pa.types.is_decimal(type_):
        units = math.floor(Decimal(str(distance)).scaleb(type_.scale))
    elif pa.types.is_integer(type_) or pa.types.is_date32(type_):
        units = math.floor(distance)
    else:
        raise OptionError(f"within={distance!r} on a key of type {type_}: give a datetime.timedelta")
    if not units >= 0:
        raise OptionError(f"within={distance!r} must not be negative")
    return units


def _ticks(distance: datetime.timedelta, type_: pa.DataType) -> int:
    microseconds = distance // datetime.timedelta(microseconds=1)
    if pa.types.is_date32(type_):
        return distance // datetime.timedelta(days=1)
    if pa.types.is_date64(type_):
        return microseconds // 1000
    if pa.types.is_timestamp(type_) or pa.types.is_time(type_) or pa.types.is_duration(type_):
        return microseconds * _TICKS_PER_SECOND[type_.unit] // 10**6
    raise OptionError(f"within={distance!r} on a key of type {type_}: give a number")
