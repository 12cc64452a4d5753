"""Which partition a stream row goes to: ranges of the master's order, drawn anew for every micro-batch."""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType, VariantType

from adjoin.master.keys import KeyCodec
from adjoin.semistream.spec import JoinSpec

ROUTES = ("range", "none")
_PER_MICROSECOND = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}


def route_by_range(stream: DataFrame, codec: KeyCodec, spec: JoinSpec, partitions: int) -> DataFrame:
    """Send rows that want neighbouring pages to the same partition, and as many rows to each.

    Spark samples the keys of every micro-batch and cuts them into ranges of equally many rows, so that
    a hot page weighs what the stream makes it weigh. Rows of one key are told apart by a hash of the
    whole row: even a single hot key is spread when it fills more than a partition.
    """
    row = F.xxhash64(*[column(field.name) for field in stream.schema if is_hashable(field.dataType)])
    return stream.repartitionByRange(partitions, master_order(codec, spec.predicate.columns), row)


def master_order(codec: KeyCodec, columns: tuple[str, ...]) -> Column:
    """An expression that sorts stream rows as the master's pages are sorted.

    A key type for which Spark has no such expression is sorted by another hash: rows are joined all the
    same, but a page may be wanted by several partitions.
    """
    if codec.ordered:
        return column(columns[0])
    parts = zip(columns, codec.types, strict=True)
    return F.xxhash64(*[_as_hashed(column(name), type_) for name, type_ in parts])


def column(name: str) -> Column:
    """The column of this name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _as_hashed(key: Column, type_: pa.DataType) -> Column:
    """The value whose bytes the codec hashes."""
    is_ = pa.types
    if is_.is_boolean(type_) or (is_.is_integer(type_) and not is_.is_uint64(type_)):
        return key.cast("bigint")
    if is_.is_date32(type_):
        return F.unix_date(key).cast("bigint")
    if is_.is_timestamp(type_):
        epoch = F.to_timestamp_ntz(F.lit("1970-01-01 00:00:00"))
        microseconds = F.unix_micros(key) if type_.tz else F.timestamp_diff("MICROSECOND", epoch, key)
        times, over = _PER_MICROSECOND[type_.unit]
        return F.floor(microseconds * times / over) if over > 1 else microseconds * times
    if is_.is_decimal(type_) and type_.precision <= 18:
        unscaled = key.cast(DecimalType(type_.precision, type_.scale)) * F.lit(10**type_.scale)
        return unscaled.cast("bigint")
    return key


def is_hashable(type_: DataType) -> bool:
    """Whether Spark can hash and order values of this type; it can do both or neither."""
    if isinstance(type_, ArrayType):
        return is_hashable(type_.elementType)
    if isinstance(type_, StructType):
        return all(is_hashable(field.dataType) for field in type_)
    return not isinstance(type_, MapType | VariantType)
