"""Deadlines: by when a row must be answered, and how long answering will take."""

import datetime

import numpy as np
import pyarrow as pa

from adjoin.arguments import seconds
from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.types import Array
from adjoin.keys.casts import tick_nanoseconds


class Deadline:
    """By when a row must be answered: some seconds after it arrived, the time in a column, or at any time."""

    def __init__(self, given: float | datetime.timedelta | str | None) -> None:
        self._given: float | str | None
        if given is None or isinstance(given, str):
            self._given = given
            return
        self._given = seconds("deadline", given)
        if self._given == 0:
            raise OptionError(f"deadline={given!r} must be more than 0 seconds, or the name of a column")

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self._given is not None

    def check(self, stream: pa.Schema) -> None:
        """Raise a SchemaError if the stream lacks the column, or it does not hold times."""
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


def _seconds(column: pa.Array) -> Array:
    """Times as seconds since 1970; null and NaN are infinitely late."""
    if pa.types.is_timestamp(column.type):
        ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False)
        per_second = 10**9 / tick_nanoseconds(column.type)
        return ticks.fill_null(np.inf).to_numpy(zero_copy_only=False) / per_second
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        moments = column.cast(pa.float64(), safe=False).fill_null(np.inf).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(moments), np.inf, moments)
    raise SchemaError(f"the deadline column has type {column.type}; give a timestamp, or seconds since 1970")


class JoinTimeEstimate:
    """The seconds that a join phase over a number of pages takes.

    Starts from one random read per page. Later, the worst time seen for a similar number of pages (the same
    power of two) replaces it, per page.

    >>> estimate = JoinTimeEstimate(0.01)
    >>> estimate.seconds(100)
    1.0
    >>> estimate.observe(90, 0.45)
    >>> estimate.seconds(100)
    0.5
    """

    def __init__(self, seconds_per_page: float) -> None:
        self._seconds_per_page = seconds_per_page
        self._worst_per_page: dict[int, float] = {}

    def seconds(self, pages: int) -> float:
        per_page = self._worst_per_page.get(pages.bit_length(), self._seconds_per_page)
        return pages * per_page

    def observe(self, pages: int, seconds: float) -> None:
        if pages:
            bucket = pages.bit_length()
            self._worst_per_page[bucket] = max(self._worst_per_page.get(bucket, 0.0), seconds / pages)
