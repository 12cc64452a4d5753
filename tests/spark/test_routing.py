"""The routing expression: right if the key can be encoded, and it never fails, whatever the key."""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

import adjoin
from adjoin import etl
from adjoin.keys.casts import is_comparable
from adjoin.keys.codec import KeyCodec
from adjoin.spark.enrich.routing import _has_code, master_order
from adjoin.spark.types import arrow_schema_for_spark, arrow_settings, spark_schema, to_spark
from tests.spark.shop import build, read_batches, write_batches

INT64 = [-(2**63), 2**63 - 1, 0, -1, 1_700_000_000_123_457]
NINES = "9" * 38

# types of Spark streams, with extreme values
STREAMS: dict[str, pa.Array] = {
    "boolean": pa.array([True, False], pa.bool_()),
    "tinyint": pa.array([-128, 127], pa.int8()),
    "int": pa.array([-(2**31), 2**31 - 1, 7], pa.int32()),
    "bigint": pa.array(INT64, pa.int64()),
    "decimal20": pa.array([Decimal(10**20 - 1), Decimal(-(10**20) + 1), Decimal(7)], pa.decimal128(20, 0)),
    "decimal38": pa.array(map(Decimal, [NINES, f"-{NINES}", "0", "5", f"{10**20}"]), pa.decimal128(38, 0)),
    "decimal38_18": pa.array(
        [Decimal(NINES[:20] + "." + NINES[20:]), Decimal("-0.5"), Decimal(7)], pa.decimal128(38, 18)
    ),
    "decimal9_2": pa.array([Decimal("9999999.99"), Decimal("-0.01"), Decimal("7.00")], pa.decimal128(9, 2)),
    "float": pa.array([float("nan"), float("-inf"), -0.0, 1e38], pa.float32()),
    "double": pa.array([float("nan"), float("inf"), -0.0, -1e308], pa.float64()),
    "date": pa.array([-(2**31), 2**31 - 1, -1, 19_000], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array(INT64, pa.int64()).cast(pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array(INT64, pa.int64()).cast(pa.timestamp("us")),
    "time": pa.array([0, 86_399_999_999_000], pa.int64()).cast(pa.time64("ns")),
    "interval": pa.array(INT64, pa.int64()).cast(pa.duration("us")),
    "string": pa.array(["", "é" * 100]),
    "binary": pa.array([b"", b"\0\xff"]),
}
MASTERS = [
    *[pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()],
    *[
        pa.decimal128(9, 2),
        pa.decimal128(18, 18),
        pa.decimal128(18, 0),
        pa.decimal128(5, -2),
        pa.decimal128(38, 0),
    ],
    *[pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ns"), pa.duration("us")],
    *[pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")],
    *[pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.binary(2)],
]
PAIRS = [
    (name, type_)
    for name, values in STREAMS.items()
    for type_ in MASTERS
    if is_comparable(values.type, type_)
]


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {"ansi": "spark.sql.ansi.enabled", "zone": "spark.sql.session.timeZone"}
    before = {names[short]: str(spark.conf.get(names[short])) for short in values}
    for short, value in values.items():
        spark.conf.set(names[short], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def on_spark(spark: SparkSession, batch: pa.RecordBatch) -> DataFrame:
    """A DataFrame of exactly these values; Spark's own conversions would reject some."""
    one = spark.range(0, 1, 1, 1)
    declared = spark_schema(batch.schema)
    target = arrow_schema_for_spark(declared, *arrow_settings(one))

    def emit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield to_spark(batch, target)

    return one.mapInArrow(emit, declared)


def everything() -> pa.RecordBatch:
    """All streams next to each other, as long as the longest."""
    rows = 1 + max(map(len, STREAMS.values()))
    padded = [
        pa.concat_arrays([values, pa.nulls(rows - len(values), values.type)]) for values in STREAMS.values()
    ]
    return pa.record_batch(padded, names=list(STREAMS))


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_every_key_of_every_type_can_be_routed(spark, ansi, zone):
    batch = everything()
    with settings(spark, ansi=ansi, zone=zone):
        df = on_spark(spark, batch)
        orders = []
        for name, type_ in PAIRS:
            single = KeyCodec.of(pa.schema([(name, type_)]), [name])
            pair = KeyCodec.of(pa.schema([("a", type_), ("b", pa.int32())]), ["a", "b"])
            orders += [master_order(single, [name]), master_order(pair, [name, "int"])]
        got = df.select(*[order.alias(f"c{at}") for at, order in enumerate(orders)]).toArrow()
    assert got.num_rows == batch.num_rows
    for at, (name, type_) in enumerate(PAIRS):
        codec = KeyCodec.of(pa.schema([(name, type_)]), [name])
        if not (_has_code(type_) and codec.ordered):
            continue
        given = batch.column(name)
        given = given if zone_free(given.type) else given.cast(pa.timestamp("us", "UTC"))
        conformed = conform_each(codec, given)
        for row, (key, found) in enumerate(zip(conformed, got.column(2 * at).to_pylist(), strict=True)):
            assert key is None or near(key, found), (name, type_, given[row], key, found)


def zone_free(type_: pa.DataType) -> bool:
    return not pa.types.is_timestamp(type_) or type_.tz is None


def conform_each(codec: KeyCodec, values: pa.Array) -> list[int | None]:
    """The encoding of every key that the master could hold."""
    codes: list[int | None] = []
    for at in range(len(values)):
        try:
            conformed = codec.conform([values.slice(at, 1)], exact=False)
        except adjoin.SchemaError:
            codes.append(None)
            continue
        keys, _ = codec.encode(conformed)
        codes.append(None if conformed[0].null_count else int(keys[0]))
    return codes


def near(key: int, found: int | None) -> bool:
    """Coarse units are computed as floats; microseconds at the limits of int64 cannot be encoded."""
    if found is None:
        return abs(key) > 2**63 - 86_400_000_000
    return abs(key - found) <= abs(key) // 2**50


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("route", ["range", "none"])
def test_keys_that_no_master_key_can_equal_have_no_match(spark, tmp_path, ansi, route):
    """As in Spark's own join; one of them used to fail the job."""
    schema = pa.schema([("id", pa.int64()), ("d", pa.decimal128(9, 2)), ("name", pa.string())])
    rows = pa.table([[7, 2**63 - 1], [Decimal("7.00"), Decimal("1.25")], ["seven", "most"]], schema=schema)
    keys = [Decimal(10**20 - 1), Decimal(7), Decimal(-(10**20) + 1), Decimal(2**63 - 1), None]
    batch = pa.record_batch(
        [
            pa.array(range(5)),
            pa.array(keys, pa.decimal128(20, 0)),
            pa.array(
                [Decimal("7.001"), Decimal(10**30), Decimal(7), Decimal("1.25"), None], pa.decimal128(38, 3)
            ),
        ],
        names=["row", "wide", "fine"],
    )
    with settings(spark, ansi=ansi):
        df = on_spark(spark, batch)
        for key, stream, wanted in [
            ("id", "wide", {1: "seven", 3: "most"}),
            ("d", "fine", {2: "seven", 3: "most"}),
        ]:
            master = build(rows, tmp_path / key, key=key)
            joined = adjoin.enrich(df, master, on={stream: key}, how="left", route=route, columns=["name"])
            found = {row["row"]: row["name"] for row in joined.toArrow().to_pylist()}
            assert found == {row: wanted.get(row) for row in range(5)}
            unknown = etl.new_rows(df, master, on={stream: key}, route=route)
            assert sorted(unknown.toArrow()["row"].to_pylist()) == [
                row for row in range(5) if row not in wanted
            ]


def count(key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"id": [key[0]], "rows": [sum(map(len, parts))]})


def test_enrich_follows_an_operator_whose_rows_spark_cannot_shuffle(spark, tmp_path: Path):
    """Spark's own repartitionByRange fails there."""
    ids = np.array([1, 2, 2, 3, 3, 3])
    write_batches([pa.table({"id": ids})], tmp_path / "in")
    master = build(pa.table({"id": [1, 3], "name": ["one", "three"]}), tmp_path / "master")
    counted = (
        read_batches(spark, tmp_path / "in")
        .groupBy("id")
        .applyInPandasWithState(count, "id long, rows long", "n long", "append", GroupStateTimeout.NoTimeout)
    )
    joined = adjoin.enrich(counted, master, on="id", how="left", memory="16MB")
    query = joined.writeStream.format("memory").queryName("counted").trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(map(tuple, spark.table("counted").collect())) == [
        (1, 1, "one"),
        (2, 2, None),
        (3, 3, "three"),
    ]
