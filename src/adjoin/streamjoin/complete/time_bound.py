"""A bound on the times of two rows that match: how far apart they may be, in the finer unit of both."""

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import arguments
from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.types import Array
from adjoin.keys.casts import tick_nanoseconds
from adjoin.keys.codec import fixed_values, valid_rows
from adjoin.operators.on import check_columns

LEFT, RIGHT = 0, 1
LEAST, GREATEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
_SECOND = 10**9
_SIGN = np.int64(LEAST)

Span = datetime.timedelta | int | float | Decimal | str


class TimeBound:
    """Rows match only if left time - before <= right time <= left time + after.

    Args:
        schemas: The schemas of both sides, in plain types.
        columns: The column of each side with its times.
        before: How long before a left row its partners may lie; None: any time.
        after: How long after it they may lie; None: any time.

    Attributes:
        columns: The columns with the times.
        before, after: The bounds in the common unit.
        windows: For rows of each side, the window of their partners' times, as kernels take it.
    """

    def __init__(
        self, schemas: Sequence[pa.Schema], columns: object, before: Span | None, after: Span | None
    ) -> None:
        named = arguments.names("time", columns)
        if len(named) != 2:
            raise OptionError(f"time={columns!r} must name a column of the left and one of the right")
        self.columns = named
        for schema, name, side in zip(schemas, named, ("left", "right"), strict=True):
            check_columns(schema, [name], f"the {side} input")
        self._types = [schema.field(name).type for schema, name in zip(schemas, named, strict=True)]
        self._tick = self._common_tick()
        if before is None and after is None:
            raise OptionError("time= needs before= or after=, or both; None means no bound on that side")
        self.before, self.after = self._units("before", before), self._units("after", after)
        if self.before is not None and self.after is not None and self.before + self.after < 0:
            raise OptionError(f"before={before!r} and after={after!r} leave no time in between")
        negated = [None if bound is None else -bound for bound in (self.before, self.after)]
        self.windows = [_window(negated[0], self.after), _window(negated[1], self.before)]

    def _common_tick(self) -> int | None:
        """The finer resolution of both columns in nanoseconds; None for integers."""
        is_, (left, right) = pa.types, self._types
        if is_.is_integer(left) and is_.is_integer(right):
            unsigned = [is_.is_uint64(type_) for type_ in self._types]
            if any(unsigned) and not all(unsigned):
                raise SchemaError(f"the times are {left} and {right}; cast one of them to the other type")
            return None
        for name, type_ in zip(self.columns, self._types, strict=True):
            if not (is_.is_timestamp(type_) or is_.is_date(type_) or is_.is_integer(type_)):
                raise SchemaError(
                    f"column {name!r} of type {type_} cannot be a time; give timestamps, dates or integers"
                )
        are_integers = [is_.is_integer(type_) for type_ in self._types]
        if any(are_integers) or self._has_zone(left) != self._has_zone(right):
            raise SchemaError(
                f"times of type {left} and of type {right} cannot be compared; cast one of them"
            )
        return min(map(tick_nanoseconds, self._types))

    @staticmethod
    def _has_zone(type_: pa.DataType) -> bool:
        return bool(pa.types.is_timestamp(type_)) and type_.tz is not None

    def _units(self, name: str, bound: Span | None) -> int | None:
        """A bound in the common unit, rounded down: times are whole units."""
        if bound is None:
            return None
        if self._tick is None:
            units = math.floor(arguments.exact_number(name, bound))
        else:
            units = math.floor(arguments.time_span(name, bound) * _SECOND / self._tick)
        return max(min(units, 1 << 65), -(1 << 65))

    def times(self, side: int, batch: pa.RecordBatch) -> tuple[Array, Array | None]:
        """The times of rows in the common unit, and which rows have one (None: all).

        A time that the finer unit cannot hold becomes the nearest that it can.
        """
        column, type_ = batch.column(self.columns[side]), self._types[side]
        valid = valid_rows([column])
        if self._tick is None:
            if pa.types.is_uint64(type_):
                return fixed_values(column, np.dtype(np.int64)) ^ _SIGN, valid
            kind = "u" if pa.types.is_unsigned_integer(type_) else "i"
            return fixed_values(column, np.dtype(f"{kind}{type_.bit_width // 8}")).astype(np.int64), valid
        values = fixed_values(column, np.dtype(f"i{type_.bit_width // 8}")).astype(np.int64)
        factor = tick_nanoseconds(type_) // self._tick
        if factor == 1:
            return values, valid
        most = GREATEST // factor
        scaled = np.where(values > most, GREATEST, np.where(values < -most, LEAST, values * factor))
        return scaled, valid

    def moment(self, name: str, moment: Any) -> int:
        """The least time in the common unit that is not before this moment."""
        if self._tick is None:
            units = math.ceil(arguments.exact_number(name, moment))
            return units - (1 << 63) if pa.types.is_uint64(self._types[LEFT]) else units
        if not isinstance(moment, datetime.date):
            raise OptionError(f"{name}={moment!r} must be a datetime, as the times are {self._types[LEFT]}")
        has_zone = isinstance(moment, datetime.datetime) and moment.tzinfo is not None
        if has_zone != self._has_zone(self._types[LEFT]):
            wanted = "without" if has_zone else "with"
            raise OptionError(f"{name}={moment!r}: give a datetime {wanted} a time zone, as the times are")
        if not isinstance(moment, datetime.datetime):
            moment = datetime.datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - dates have none
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if has_zone else None)
        nanoseconds = (moment - epoch) // datetime.timedelta(microseconds=1) * 1000
        return -(-nanoseconds // self._tick)

    def expired_before(self, moment: int) -> tuple[int | None, int | None]:
        """Left and right rows with a smaller time have no partner at this moment or later."""
        return (
            None if self.after is None else _clipped(moment - self.after),
            None if self.before is None else _clipped(moment - self.before),
        )


def _clipped(number: int) -> int:
    return max(LEAST, min(number, GREATEST))


def _window(low: int | None, high: int | None) -> Array:
    """The least and the greatest difference, each as two numbers that add up to it."""
    parts: list[int] = []
    for bound in (low, high):
        first = 0 if bound is None else _clipped(bound)
        second = 0 if bound is None else _clipped(bound - first)
        parts += [int(bound is not None), first, second]
    return np.array(parts, np.int64)
