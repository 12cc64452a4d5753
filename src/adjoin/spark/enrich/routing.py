"""Sends rows that need neighboring pages to the same partition, and the same number of rows to each.

Routing must never fail or lose a row: a key that cannot be encoded is not in the master, so its row may go
anywhere. That is why everything here is `try_cast`, `try_add`, `try_multiply`.
"""

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampType,
    VariantType,
)

from adjoin.keys.codec import KeyCodec
from adjoin.master.master import Master
from adjoin.spark.naming import column

ROUTES = ("range", "none")
_PAGES_PER_GROUP = 16
"""Smaller groups separate hot pages from cold ones better; of larger ones, fewer pages straddle two."""
_SHORT_DIGITS = 18  # decimals with at most this many digits can be encoded
_PER_MICROSECOND = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}


def route_by_range(stream: DataFrame, master: Master, columns: Sequence[str], partitions: int) -> DataFrame:
    """Send rows that need neighboring pages to the same partition, the same number of rows to each.

    Groups of a few neighboring pages are put in a fixed pseudo-random order. Spark samples the rows of
    every micro-batch and cuts that order into ranges with the same number of rows, so a hot group weighs
    as much as the stream makes it, and rarely used groups, which cost reads, are spread over all ranges.
    Within a group rows are ordered by key, and within a key by a hash of the row: even a single hot key
    is spread if it fills more than one partition.
    """
    key = master_order(master.codec, columns)
    row = F.xxhash64(*[column(field.name) for field in stream.schema if is_hashable(field.dataType)])
    return stream.repartitionByRange(partitions, *_groups(key, master), key, row)


def master_order(codec: KeyCodec, columns: Sequence[str]) -> Column:
    """An expression that sorts stream rows in the order of the master's pages.

    A key type for which Spark has no such expression is sorted by another hash: the join is the same, but
    several partitions may need the same page.
    """
    parts = zip(columns, codec.types, strict=False)  # a range has two columns: use the first
    values = [_as_encoded(column(name), type_) for name, type_ in parts]
    return values[0] if codec.ordered else F.xxhash64(*values)


def _groups(key: Column, master: Master) -> list[Column]:
    """The position of a key's group in the random order; hashed keys are in random order already."""
    if not master.codec.ordered or not _has_code(master.codec.types[0]) or not master.pages:
        return []
    least, most = master.checked_index.key_range
    span = most - least
    bits = max(0, (span * _PAGES_PER_GROUP // master.pages).bit_length() - 1)
    return [F.xxhash64(F.shiftright(key, min(bits, 62)))]


def _has_code(type_: pa.DataType) -> bool:
    """Whether Spark can compute the codec's int64 for a key of this type."""
    is_ = pa.types
    whole = is_.is_boolean(type_) or (is_.is_integer(type_) and not is_.is_uint64(type_))
    short = is_.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= _SHORT_DIGITS
    return bool(whole or short or is_.is_date32(type_) or is_.is_timestamp(type_))


def _as_encoded(key: Column, type_: pa.DataType) -> Column:
    """The key's int64, null if it has none; for types Spark cannot encode, the key itself."""
    is_ = pa.types
    if not _has_code(type_):
        return key
    if is_.is_date32(type_):
        return F.unix_date(key).cast("bigint")
    if is_.is_timestamp(type_):
        microseconds = F.unix_micros(key) if type_.tz else _microseconds_without_zone(key)
        times, over = _PER_MICROSECOND[type_.unit]
        return F.floor(microseconds / over) if over > 1 else F.try_multiply(microseconds, F.lit(times))
    if is_.is_decimal(type_):
        # With a decimal of this many digits the product has at most 38 digits and is exact.
        units = F.lit(Decimal(10**type_.scale))
        return (key.try_cast(DecimalType(type_.precision, type_.scale)) * units).try_cast("bigint")
    return key.try_cast("bigint")


def microseconds_of(moment: Column, type_: DataType) -> Column:
    """Microseconds since 1970 of a timestamp with or without a time zone, or of a date."""
    if isinstance(type_, DateType):
        return F.try_multiply(F.unix_date(moment).cast("bigint"), F.lit(86_400_000_000))
    return F.unix_micros(moment) if isinstance(type_, TimestampType) else _microseconds_without_zone(moment)


def _microseconds_without_zone(moment: Column) -> Column:
    """The same for a timestamp without a zone; Spark's own function uses the session's zone and can fail."""
    days = F.unix_date(moment.cast("date")).cast("bigint")
    minutes = F.hour(moment) * F.lit(60) + F.minute(moment)
    seconds = F.extract(F.lit("SECOND"), moment)  # a decimal with six digits after the point
    since_midnight = minutes.cast("bigint") * F.lit(60_000_000) + (seconds * F.lit(1_000_000)).try_cast(
        "bigint"
    )
    return F.try_add(F.try_multiply(days, F.lit(86_400_000_000)), since_midnight)


def is_hashable(type_: DataType) -> bool:
    """Whether Spark can hash and order values of this type: it can do both or neither."""
    if isinstance(type_, ArrayType):
        return is_hashable(type_.elementType)
    if isinstance(type_, StructType):
        return all(is_hashable(field.dataType) for field in type_)
    return not isinstance(type_, MapType | VariantType)
