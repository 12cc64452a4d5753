"""Options of SSIJ, checked once at the door."""

import datetime
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.types import Array


class Deadline:
    """By when a row must be answered: so many seconds after it came, the moment in a column, or any time."""

    def __init__(self, given: float | datetime.timedelta | str | None) -> None:
        self._given = given.total_seconds() if isinstance(given, datetime.timedelta) else given
        is_time = isinstance(self._given, int | float) and self._given > 0
        if not is_time and not isinstance(self._given, str | None):
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
            if not is_unset and not (isinstance(value, int) and value >= 1):
                raise OptionError(f"{name}={value!r} must be a whole number of at least 1")
        if not 0 <= self.decay <= 1:
            raise OptionError(f"decay={self.decay} must be between 0 and 1")


def _seconds(column: pa.Array) -> Array:
    """Moments as seconds since 1970; null and not a number are never."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return column.cast(pa.float64(), safe=False).fill_null(np.inf).to_numpy(zero_copy_only=False) / 1e6
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        moments = column.cast(pa.float64(), safe=False).fill_null(np.inf).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(moments), np.inf, moments)
    raise SchemaError(f"the deadline column has type {column.type}; give a timestamp, or seconds since 1970")
