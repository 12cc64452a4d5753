"""Options of SSIJ, checked once at the door."""

import datetime
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arguments import seconds, share, whole_number
from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.types import Array
from adjoin.keys.casts import tick_nanoseconds


class Deadline:
    """By when a row must be answered: so many seconds after it came, the moment in a column, or any time."""

    def __init__(self, given: float | datetime.timedelta | str | None) -> None:
        self._given: float | str | None
        if given is None or isinstance(given, str):
            self._given = given
            return
        self._given = seconds("deadline", given)
        if self._given == 0:
            raise OptionError(f"deadline={given!r} must be more than 0 seconds, or a column's name")

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self._given is not None

    def check(self, stream: pa.Schema) -> None:
        """Raise a SchemaError if the stream has no such column, or not of moments."""
        if not isinstance(self._given, str):
            return
        if self._given not in stream.names:
            raise SchemaError(f"the stream has no column {self._given!r} for the deadline")
        _seconds(pa.nulls(0, stream.field(self._given).type))

    def due(self, batch: pa.RecordBatch, now: float) -> Array | None:
        """When each row must be answered, in seconds; None without deadlines."""
        if self._given is None:
            return None
        if isinstance(self._given, str):
            return _seconds(batch.column(self._given))
        return np.full(batch.num_rows, now + self._given)


@dataclass(frozen=True)
class Options:
    """What a caller can set beside the join itself; see `SSIJ`."""

    input_rows: int | None
    stream_rows: int | None
    max_scan: int
    decay: float
    deadline: Deadline

    def __post_init__(self) -> None:
        for name in ("input_rows", "stream_rows", "max_scan"):
            value = getattr(self, name)
            is_unset = value is None and name != "max_scan"
            if not is_unset:
                whole_number(name, value, 1)
        share("decay", self.decay)


def _seconds(column: pa.Array) -> Array:
    """Moments as seconds since 1970; null and not a number are never."""
    if pa.types.is_timestamp(column.type):
        ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False)
        per_second = 10**9 / tick_nanoseconds(column.type)
        return ticks.fill_null(np.inf).to_numpy(zero_copy_only=False) / per_second
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        moments = column.cast(pa.float64(), safe=False).fill_null(np.inf).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(moments), np.inf, moments)
    raise SchemaError(f"the deadline column has type {column.type}; give a timestamp, or seconds since 1970")
