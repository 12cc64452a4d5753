"""When the keys that `deduplicate` remembers expire, and how they leave the master.

Everything follows from what the master's versions hold: stored times, and a clock in its marks. So a repeated
batch decides as it did before, and the wall clock is never consulted. The sweep only saves space: the
comparison itself looks at the stored time, so it makes no difference whether an expired key is still there.
"""

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from adjoin.arguments import parse_duration
from adjoin.errors import OptionError, SchemaError
from adjoin.etl.one_per_key import require_columns
from adjoin.keys.codec import KeyCodec
from adjoin.master.changes import OPERATION_COLUMN
from adjoin.master.data_file import read_pages
from adjoin.master.master import Master
from adjoin.spark.enrich.routing import microseconds_of
from adjoin.spark.naming import column, found_name
from adjoin.spark.types import spark_schema

_CLOCK = "deduplicate: time"
_STREAM = "deduplicate: stream"
_SWEPT = "deduplicate: swept up to"
_LEAST_PAGES_SWEPT = 16
_ROWS_SWEPT_PER_NEW_ROW = 4
"""This keeps expired rows to about a third of the live ones at most."""
_MICROSECONDS_OF_DAY = 86_400_000_000

TimeToLive = int | str | datetime.timedelta


def expiry_of(
    df: DataFrame, master: Master, ttl: TimeToLive | None, time: str | None, txn: tuple[str, int]
) -> "Expiry | None":
    """The rule for these arguments of `deduplicate`, None if keys never expire."""
    if ttl is None and time is None:
        return None
    if ttl is None or not isinstance(time, str):
        raise OptionError(f"ttl={ttl!r}, time={time!r}: give both or neither")
    stored = found_name(df, time, master.schema.names)
    if stored not in master.schema.names or stored in master.key:
        raise SchemaError(
            f"time={time!r} must name a column of the master other than its key {list(master.key)}; "
            "build the master with one"
        )
    if isinstance(ttl, int):
        return _by_batch(df, master, ttl, stored, txn)
    seconds = parse_duration("ttl", ttl)
    if seconds <= 0:
        raise OptionError(f"ttl={ttl!r} must be greater than 0")
    (own,) = require_columns(df, [time], "time")
    type_, stored_type = df.schema[own].dataType, spark_schema(master.schema)[stored].dataType
    if type(type_) is not type(stored_type) or not isinstance(
        type_, TimestampType | TimestampNTZType | DateType
    ):
        raise SchemaError(
            f"time={time!r} is {type_.simpleString()} in the DataFrame and {stored_type.simpleString()} "
            "in the master; both must be timestamps, timestamps without a time zone, or dates"
        )
    return EventTime(own, stored, type_, round(seconds * 1_000_000))


def _by_batch(df: DataFrame, master: Master, ttl: int, stored: str, txn: tuple[str, int]) -> "Batches":
    if isinstance(ttl, bool) or ttl < 1:
        raise OptionError(f"ttl={ttl!r}: give at least 1 micro-batch, or a duration")
    if stored in df.columns or not pa.types.is_int64(master.schema.field(stored).type):
        raise SchemaError(
            f"time={stored!r} must be an int64 column of the master that the DataFrame lacks, for the number "
            'of the micro-batch; to expire keys by event time give a duration such as ttl="7 days"'
        )
    name, number = txn
    return Batches(stored, ttl, name, number)


@dataclass(frozen=True)
class EventTime:
    """Keys expire by the event time of the rows.

    The clock is the greatest event time of any row returned for an earlier batch; it is kept in the
    master's marks.
    """

    own: str
    column: str
    type: DataType
    ttl_microseconds: int

    def is_expired(self, stored: Column, base: Master) -> Column:
        """Whether a row that meets this stored time counts as new."""
        now = F.greatest(microseconds_of(column(self.own), self.type), _literal(base.marks.get(_CLOCK)))
        age = F.try_subtract(now, microseconds_of(stored, self.type))
        return F.coalesce(age >= F.lit(self.ttl_microseconds), F.lit(False))

    def horizon(self, base: Master) -> int | None:
        """Keys stored at or before this time have expired for all rows to come; None: no key has."""
        clock = base.marks.get(_CLOCK)
        return None if clock is None else clock - self.ttl_microseconds

    def stamped(self, rows: pa.Table, base: Master) -> tuple[pa.Table, dict[str, int]]:
        """The new rows with the times to store, and the marks that change.

        A late row is remembered as of the clock, or it would be forgotten at once.
        """
        place = rows.column_names.index(self.column)
        times = self.times(rows.column(place))
        before = base.marks.get(_CLOCK)
        known = [time for time in (before, pc.max(times).as_py()) if time is not None]
        if not known:
            return rows, {}
        clock = max(known)
        # The maximum skips nulls, so a row without a time gets the clock's.
        times = pc.max_element_wise(times, pa.scalar(before, pa.int64()))
        times = pc.coalesce(times, pa.scalar(clock, pa.int64()))
        field = rows.schema.field(place)
        return rows.set_column(place, field, _from_microseconds(times, field.type)), {_CLOCK: clock}

    def times(self, stored: pa.ChunkedArray) -> pa.ChunkedArray:
        """Stored times in the unit of the horizon."""
        if pa.types.is_date(stored.type):
            days = stored.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
            fits = pc.less(pc.abs(days), pa.scalar(2**63 // _MICROSECONDS_OF_DAY, pa.int64()))
            days = pc.if_else(fits, days, pa.scalar(None, pa.int64()))
            return pc.multiply(days, pa.scalar(_MICROSECONDS_OF_DAY, pa.int64()))
        return stored.cast(pa.timestamp("us", stored.type.tz), safe=False).cast(pa.int64())


@dataclass(frozen=True)
class Batches:
    """Keys expire by micro-batches of one stream: the batch number is both time and clock."""

    column: str
    ttl: int
    stream: str
    number: int

    def is_expired(self, stored: Column, base: Master) -> Column:
        """Whether a row that meets this stored time counts as new."""
        self._refuse_other_streams(base)
        return F.coalesce(stored <= F.lit(self.number - self.ttl), F.lit(False))

    def horizon(self, _: Master) -> int | None:
        """Keys stored at or before this time have expired for all rows to come."""
        return self.number - self.ttl

    def stamped(self, rows: pa.Table, _: Master) -> tuple[pa.Table, dict[str, int]]:
        """The new rows with the times to store, and the marks that change."""
        numbers = pa.array(np.full(rows.num_rows, self.number, np.int64))
        return rows.append_column(self.column, numbers), {_STREAM: self._stream_number}

    def times(self, stored: pa.ChunkedArray) -> pa.ChunkedArray:
        """Stored times in the unit of the horizon."""
        return stored

    @property
    def _stream_number(self) -> int:
        return int.from_bytes(hashlib.sha256(self.stream.encode()).digest()[:7], "big")

    def _refuse_other_streams(self, base: Master) -> None:
        if base.marks.get(_STREAM, self._stream_number) != self._stream_number:
            raise OptionError(
                f"the keys in {base.path} expire by the micro-batches of another stream or checkpoint than "
                f"{self.stream!r}; give txn=(the previous name, a number that continues), use a separate "
                "master, or expire keys by event time"
            )


Expiry = EventTime | Batches


@dataclass(frozen=True)
class Sweep:
    """Keys to delete, and how far the sweep has got."""

    deletes: pa.Table
    marks: Mapping[str, int]


def sweep(base: Master, expiry: Expiry, new_rows: int) -> Sweep:
    """Look for expired keys in the next few pages; more new rows mean more pages, so that it keeps up."""
    pages = _next_pages(base, new_rows)
    horizon = expiry.horizon(base)
    if horizon is None or len(pages) == 0:
        return Sweep(base.schema.empty_table().select(base.key), {})
    rows = read_pages(base.stored, base.files, base.index, pages)
    old = pc.less_equal(expiry.times(rows[expiry.column]), pa.scalar(horizon, pa.int64()))
    deletes = rows.filter(pc.fill_null(old, False)).select(base.key)
    is_last = pages[-1] == base.pages - 1
    swept = np.iinfo(np.int64).min if is_last else int(base.index.last[pages[-1]])
    return Sweep(deletes, {_SWEPT: int(swept)})


def _next_pages(base: Master, new_rows: int) -> NDArray[np.int64]:
    """The pages after the key where the last sweep ended, because every version numbers its pages anew."""
    if base.pages == 0:
        return np.empty(0, np.int64)
    rows_per_page = max(1, base.rows // base.pages)
    count = _LEAST_PAGES_SWEPT + _ROWS_SWEPT_PER_NEW_ROW * new_rows // rows_per_page
    swept = base.marks.get(_SWEPT, np.iinfo(np.int64).min)
    first = int(np.searchsorted(base.index.last, swept, "right"))
    first = 0 if first >= base.pages else first
    return np.arange(first, min(base.pages, first + count))


def without(codec: KeyCodec, deletes: pa.Table, rows: pa.Table) -> pa.Table:
    """The deletes, as changes, without keys that the rows bring back at once."""
    kept = deletes
    if rows.num_rows and deletes.num_rows:
        both = pa.concat_tables([deletes, rows.select(deletes.column_names).cast(deletes.schema)])
        numbers = codec.identify([both[name].combine_chunks() for name in codec.columns])
        again = np.isin(numbers[: deletes.num_rows], numbers[deletes.num_rows :])
        kept = deletes.filter(pa.array(~again))
    return kept.append_column(OPERATION_COLUMN, pa.array(["delete"] * kept.num_rows, pa.string()))


def _literal(number: int | None) -> Column:
    return F.lit(number).cast("bigint")


def _from_microseconds(times: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_date(type_):
        days = pc.divide(times, pa.scalar(_MICROSECONDS_OF_DAY, pa.int64()))
        return days.cast(pa.int32()).cast(pa.date32()).cast(type_)
    return times.cast(pa.timestamp("us", type_.tz)).cast(type_, safe=False)
