"""Every type of a master survives the way to Spark and back, values and nulls."""

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from adjoin import SchemaError
from adjoin.spark.types import (
    arrow_schema_for_spark,
    arrow_settings,
    from_spark,
    spark_schema,
    stream_schema,
    to_spark,
)

NOON_UTC = datetime(2026, 3, 4, 12, 30, 15, 123456, tzinfo=UTC)
NOON = NOON_UTC.replace(tzinfo=None)
NANOSECONDS = 1_772_627_415_123_456_789
LONG = timedelta(days=3, seconds=7, microseconds=250)
GREATEST = Decimal("9" * 36 + ".99")

# type of the master, value given, value that comes back (Ellipsis: the same)
CASES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.null(), None, ...),
    (pa.bool_(), True, ...),
    (pa.int8(), -128, ...),
    (pa.int16(), -(2**15), ...),
    (pa.int32(), 2**31 - 1, ...),
    (pa.int64(), -(2**63), ...),
    (pa.uint8(), 255, ...),
    (pa.uint16(), 2**16 - 1, ...),
    (pa.uint32(), 2**32 - 1, ...),
    (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
    (pa.float16(), 1.5, ...),
    (pa.float32(), 0.25, ...),
    (pa.float64(), 0.1, ...),
    (pa.decimal32(5, 2), Decimal("-123.45"), ...),
    (pa.decimal64(17, 3), Decimal("12345678901234.567"), ...),
    (pa.decimal128(38, 2), GREATEST, ...),
    (pa.decimal128(5, -2), Decimal("1E+2"), Decimal(100)),
    (pa.decimal256(38, 2), GREATEST, ...),
    (pa.string(), "größer 大", ...),
    (pa.large_string(), "", ...),
    (pa.binary(), b"\0\xff", ...),
    (pa.large_binary(), b"", ...),
    (pa.binary(3), b"abc", ...),
    (pa.uuid(), uuid.UUID(int=7), uuid.UUID(int=7).bytes),
    (pa.date32(), date(1969, 12, 31), ...),
    (pa.date64(), date(2026, 3, 4), ...),
    (pa.timestamp("s"), NOON.replace(year=1900, microsecond=0), ...),
    (pa.timestamp("ms"), NOON.replace(microsecond=5000), ...),
    (pa.timestamp("us"), NOON, ...),
    (pa.timestamp("ns"), NANOSECONDS, NOON),
    (pa.timestamp("s", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), ...),
    (pa.timestamp("us", "Asia/Tokyo"), NOON_UTC, ...),
    (pa.timestamp("ns", "+02:00"), NANOSECONDS, NOON_UTC),
    (pa.time32("s"), time(23, 59, 59), ...),
    (pa.time32("ms"), time(1, 2, 3, 4000), ...),
    (pa.time64("us"), time(1, 2, 3, 4), ...),
    (pa.time64("ns"), 3_723_000_004_999, time(1, 2, 3, 4)),
    (pa.duration("s"), timedelta(days=-2), ...),
    (pa.duration("us"), LONG, ...),
    (pa.duration("ns"), 1999, timedelta(microseconds=1)),
    (pa.list_(pa.uint8()), [1, None, 3], ...),
    (pa.large_list(pa.large_string()), ["a", None], ...),
    (pa.list_(pa.float16(), 2), [1.5, None], ...),
    (pa.map_(pa.string(), pa.uint32()), [("a", 1), ("b", None)], ...),
    (
        pa.struct([("a", pa.timestamp("ns")), ("b", pa.date64())]),
        {"a": NANOSECONDS, "b": None},
        {"a": NOON, "b": None},
    ),
    (pa.list_(pa.struct([("m", pa.map_(pa.int8(), pa.binary(1)))])), [{"m": [(1, b"x")]}, None], ...),
]


def test_every_type_of_a_master_survives_the_way_through_spark(spark: SparkSession) -> None:
    given = pa.record_batch(
        [pa.array([value, None, value], type_) for type_, value, _ in CASES],
        names=[f"c{at}" for at in range(len(CASES))],
    )
    one = spark.range(0, 1, 1, 1)
    declared = spark_schema(given.schema)
    target = arrow_schema_for_spark(declared, *arrow_settings(one))

    def emit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield to_spark(given, target)

    passed = one.mapInArrow(emit, declared)
    assert passed.schema == declared
    received = _receive(passed)
    assert received.schema.equals(stream_schema(passed))
    assert received.schema.equals(target)
    for at, (type_, value, back) in enumerate(CASES):
        wanted = value if back is ... else back
        assert received.column(at).to_pylist() == [wanted, None, wanted], type_


@pytest.mark.parametrize("large", ["true", "false"])
def test_schema_of_a_stream_is_what_arrives_in_a_task(spark: SparkSession, large: str) -> None:
    rows = spark.sql(
        """SELECT 'a' AS text, x'00' AS bytes, map('k', array(x'01', null)) AS nested,
           timestamp'2026-01-01' AS zoned, timestamp_ntz'2026-01-01' AS plain, time'12:00:00' AS clock,
           interval '1 02' day to hour AS span, parse_json('[1]') AS variant,
           struct(1 AS a, 'b' AS b) AS both, CAST(1 AS decimal(7, 3)) AS money, null AS nothing"""
    )
    time_zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        arrived, foretold = _receive(rows).schema, stream_schema(rows)
        assert arrived.names == foretold.names
        assert arrived.types == foretold.types
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
        spark.conf.set("spark.sql.session.timeZone", str(time_zone))


def test_a_variant_remains_a_variant(spark: SparkSession) -> None:
    rows = spark.sql("""SELECT parse_json('{"a": 1}') AS v""")
    schema = stream_schema(rows)
    declared = spark_schema(schema)
    assert declared["v"].dataType == rows.schema["v"].dataType

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield to_spark(batch, schema)

    assert rows.mapInArrow(pass_on, declared).selectExpr("variant_get(v, '$.a', 'int')").first() == (1,)


def test_matching_types_are_not_copied() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    schema = arrow_schema_for_spark(spark_schema(batch.schema), "UTC", False)
    assert [column.address for column in to_spark(batch, schema).column(1).buffers()[1:]] == [
        column.address for column in batch.column(1).buffers()[1:]
    ]


@pytest.mark.parametrize(
    "type_",
    [pa.decimal256(39, 0), pa.month_day_nano_interval(), pa.struct([("a", pa.int8()), ("a", pa.int8())])],
)
def test_types_that_spark_cannot_hold_are_named_with_the_cure(type_: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"'odd' has type .* cannot hold; leave it out with columns="):
        spark_schema(pa.schema([("fine", pa.int8()), ("odd", pa.list_(type_))]))


def test_a_value_beyond_the_range_of_microseconds_is_named() -> None:
    batch = pa.record_batch({"t": pa.array([2**60], pa.timestamp("s"))})
    with pytest.raises(SchemaError, match="column 't'"):
        to_spark(batch, arrow_schema_for_spark(spark_schema(batch.schema), "UTC", False))


def test_a_value_from_spark_that_the_master_cannot_hold_is_named() -> None:
    batch = pa.record_batch({"n": pa.array([Decimal(-1)], pa.decimal128(20, 0)), "other": [1]})
    with pytest.raises(SchemaError, match="column 'n' has a value that the master's uint64 cannot hold"):
        from_spark(batch, pa.schema([("n", pa.uint64())]))
    assert from_spark(batch, pa.schema([("n", pa.string())])).equals(batch)


@pytest.mark.parametrize("value", ["interval '1-2' year to month", "make_interval(1, 2)"])
def test_a_type_that_spark_does_not_exchange_with_python_is_named(spark: SparkSession, value: str) -> None:
    with pytest.raises(SchemaError, match="'odd' has type interval"):
        stream_schema(spark.sql(f"SELECT {value} AS odd"))


def _receive(rows: Any) -> pa.Table:
    """The rows exactly as a Python worker receives them."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            plain = pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)
            with pa.ipc.new_stream(sink, plain.schema) as writer:
                writer.write_batch(plain)
            yield pa.record_batch({"stream": pa.array([sink.getvalue().to_pybytes()], pa.binary())})

    packed = rows.mapInArrow(pack, "stream binary").collect()
    return pa.concat_tables([pa.ipc.open_stream(row.stream).read_all() for row in packed])
