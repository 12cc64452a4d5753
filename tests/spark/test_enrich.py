"""Rows of `enrich` on batch DataFrames, compared with the oracle."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import adjoin
from adjoin import OptionError, SchemaError
from adjoin.spark.enrich.routing import master_order
from tests.oracle import Predicate
from tests.spark.shop import as_dataframe, build, products, rows_of, sales, wanted

HOW = ["inner", "left", "semi", "anti"]


@pytest.mark.parametrize("route", ["range", "none"])
@pytest.mark.parametrize("how", HOW)
def test_every_kind_of_join_with_either_route(spark, tmp_path, how, route):
    table, stream = products(3_000), sales(4_000, 7_000)
    master = build(table, tmp_path / "master")
    result = adjoin.enrich(spark.createDataFrame(stream), master, on="id", how=how, route=route)
    assert rows_of(result) == wanted(stream, table, how=how)


JOINS = ["ssij", "hybridjoin", "xhybridjoin", "meshjoin", "rmeshjoin", "inlj"]


@pytest.mark.parametrize("algorithm", [*JOINS, *(f"{name}+front" for name in JOINS), "cmeshjoin", "auto"])
def test_every_algorithm(spark, tmp_path, algorithm):
    table, stream = products(500), sales(1_000, 1_200)
    master = build(table, tmp_path / "master")
    df = spark.createDataFrame(stream)
    result = adjoin.enrich(df, master, on="id", how="left", memory="16MB", algorithm=algorithm, partitions=1)
    assert rows_of(result) == wanted(stream, table, how="left")


KEYS: dict[str, Any] = {
    "int32": np.arange(500, dtype=np.int32),
    "text": [f"key {number}" for number in range(500)],
    "binary": [b"k%d" % number for number in range(500)],
    "date": [datetime.date(2020, 1, 1) + datetime.timedelta(number) for number in range(500)],
    "moment": pa.array(np.arange(500) * 1_000_003, pa.timestamp("us", "UTC")),
    "local time": pa.array(np.arange(500) * 1_000_003, pa.timestamp("us")),
    "decimal": [Decimal(number) / 4 for number in range(500)],
    "long decimal": pa.array([Decimal(number) / 4 for number in range(500)], pa.decimal128(30, 2)),
    "float": np.arange(500) / 8,
}


@pytest.mark.parametrize("kind", KEYS)
def test_every_type_of_key(spark, tmp_path, kind):
    keys = pa.array(KEYS[kind])
    table = pa.table({"id": keys, "name": np.arange(500)})
    stream = pa.table({"id": keys.take(pa.array(np.arange(900) % 600, mask=np.arange(900) % 600 >= 500))})
    stream = stream.append_column("sale", pa.array(np.arange(900)))
    master = build(table, tmp_path / "master")
    result = adjoin.enrich(as_dataframe(spark, stream), master, on="id", how="left", partitions=3)
    assert rows_of(result) == wanted(stream, table, how="left")


def test_a_composite_key_with_other_names(spark, tmp_path):
    places = np.arange(1_200)
    table = pa.table({"shop": [f"s{n % 40}" for n in places], "day": places // 40, "rent": places / 2})
    stream = pa.table({"store": [f"s{n % 50}" for n in places], "on_day": (places * 7) % 40, "sale": places})
    predicate = Predicate({"store": "shop", "on_day": "day"})
    master = build(table, tmp_path / "master", key=["shop", "day"])
    result = adjoin.enrich(spark.createDataFrame(stream), master, on=predicate.on, how="left", partitions=4)
    assert rows_of(result) == wanted(stream, table, predicate, "left")


def test_routing_sorts_hashed_keys_as_the_master_does(spark, tmp_path):
    moments = pa.array(np.arange(300) * 1_000_003, pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "a": [f"key {number}" for number in range(300)],
            "b": pa.array(np.arange(300), pa.int32()),
            "c": pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(n) for n in range(300)]),
            "d": moments,
            "e": moments.cast(pa.timestamp("us")),
            "f": [Decimal(number) / 4 for number in range(300)],
            "g": np.arange(300) % 2 == 0,
            "h": [b"%d" % number for number in range(300)],
        }
    )
    master = build(table, tmp_path / "master", key=table.column_names)
    df = as_dataframe(spark, table)
    hashed = df.select(master_order(master.codec, tuple(table.column_names)).alias("order")).toArrow()
    keys, _ = master.codec.encode([column.combine_chunks() for column in table.columns])
    assert hashed["order"].to_pylist() == keys.tolist()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "predicate",
    [Predicate("id", within=3), Predicate("id", between=("low", "high"))],
    ids=["within", "between"],
)
def test_ranges(spark, tmp_path, predicate, how):
    table = products(800, step=3)
    starts = np.random.default_rng(3).integers(-10, 2_500, 600)
    stream = pa.table({"id": starts, "low": starts, "high": starts + np.arange(600) % 9, "sale": starts})
    if predicate.between:
        stream = stream.drop(["id"])
    master = build(table, tmp_path / "master")
    df = spark.createDataFrame(stream)
    result = adjoin.enrich(df, master, how=how, partitions=3, **predicate.options)
    assert rows_of(result) == wanted(stream, table, predicate, how)


def test_chosen_columns_suffix_and_a_path(spark, tmp_path):
    table, stream = products(300), sales(500, 700).rename_columns(["id", "name", "amount"])
    build(table, tmp_path / "master").close()
    df = spark.createDataFrame(stream)
    result = adjoin.enrich(df, tmp_path / "master", "id", columns=["note", "name"], suffix="_of_product")
    assert result.columns == ["id", "name", "amount", "note", "name_of_product"]
    chosen: dict[str, Any] = {"columns": ["note", "name"], "suffix": "_of_product"}
    assert rows_of(result) == wanted(stream, table, **chosen)


def test_names_that_need_quotes(spark, tmp_path):
    table = products(50).rename_columns(["the `id`.x", "na me", "note"])
    stream = sales(80, 100).rename_columns(["the `id`.x", "sale.s", "a`b"])
    predicate = Predicate("the `id`.x")
    master = build(table, tmp_path / "master", key="the `id`.x")
    result = adjoin.enrich(spark.createDataFrame(stream), master, on="the `id`.x")
    assert rows_of(result) == wanted(stream, table, predicate)


def test_two_joins_in_a_row(spark, tmp_path):
    first, second = products(400), products(500, step=3, note="second").rename_columns(["sale", "b", "c"])
    stream = pa.table({"id": np.arange(900), "sale": np.arange(900)[::-1].copy()})
    df = adjoin.enrich(spark.createDataFrame(stream), build(first, tmp_path / "1"), on="id", how="left")
    df = adjoin.enrich(df, build(second, tmp_path / "2", key="sale"), on="sale", route="none")
    both = pa.table(first.join(stream, "id", join_type="right outer").select(["id", "sale", "name", "note"]))
    assert rows_of(df) == wanted(both, second, Predicate("sale"))


def test_nested_and_mapped_columns_of_the_stream_pass_through(spark, tmp_path):
    table = products(100)
    stream = pa.table(
        {
            "id": np.arange(150),
            "tags": pa.array([[("a", n), ("b", None)] for n in range(150)], pa.map_(pa.string(), pa.int64())),
            "lines": [[{"x": n, "y": str(n)}] * (n % 3) for n in range(150)],
        }
    )
    df = spark.createDataFrame(stream)
    result = adjoin.enrich(df, build(table, tmp_path / "master"), on="id", how="left")
    assert rows_of(result) == wanted(stream, table, how="left")


def test_an_empty_stream_and_an_empty_master(spark, tmp_path):
    table, stream = products(10), sales(20, 20)
    some, none = build(table, tmp_path / "some"), build(table.slice(0, 0), tmp_path / "none")
    assert rows_of(adjoin.enrich(spark.createDataFrame(stream).limit(0), some, on="id")) == {}
    result = adjoin.enrich(spark.createDataFrame(stream), none, on="id", how="left")
    assert rows_of(result) == wanted(stream, table.slice(0, 0), how="left")


def test_a_batch_sees_the_version_of_the_master_it_was_given(spark, tmp_path):
    old = build(products(50), tmp_path / "master")
    changes = products(50, note="v2").append_column("_op", pa.array(["upsert"] * 50))
    new = old.apply(changes)
    stream = sales(100, 100)
    df = spark.createDataFrame(stream)
    before = adjoin.enrich(df, old, on="id")
    assert rows_of(adjoin.enrich(df, tmp_path / "master", on="id")) == wanted(stream, products(50, note="v2"))
    assert rows_of(adjoin.enrich(df, new, on="id", version=1)) == wanted(stream, products(50))
    new.vacuum(keep=1)
    assert rows_of(before) == wanted(stream, products(50))


def test_a_single_hot_key_is_spread(spark, tmp_path):
    table = products(2_000)
    stream = pa.table({"id": np.zeros(8_000, np.int64), "sale": np.arange(8_000)})
    df = spark.createDataFrame(stream).repartition(2)
    result = adjoin.enrich(df, build(table, tmp_path / "m"), on="id", partitions=4)
    sizes = result.rdd.glom().map(len).collect()
    assert max(sizes) < 2 * 8_000 / 4
    assert sum(sizes) == 8_000


TABLE = products(500)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return build(TABLE, tmp_path_factory.mktemp("enrich") / "master")


def test_the_same_join_twice_in_one_task(spark, master):
    df = adjoin.enrich(
        spark.createDataFrame(sales(3_000, 5_000)), master, on="id", memory="32MB", partitions=1
    )
    padded = df.selectExpr("*", "repeat('q', 2000) AS pad")
    assert padded.rdd.zip(padded.rdd).count() == df.count()


@pytest.mark.parametrize("large", ["true", "TRUE"])
def test_strings_with_long_offsets(spark, master, large):
    batch = sales(300, 500)
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    try:
        result = rows_of(adjoin.enrich(spark.createDataFrame(batch), master, on="id", memory="32MB"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert result == wanted(batch, TABLE)


def test_names_that_differ_only_in_case(spark, master):
    df = spark.createDataFrame(sales(300, 500)).withColumnRenamed("amount", "Name")
    result = adjoin.enrich(df, master, on="id", memory="32MB")
    assert [name for name in result.columns if name.lower().startswith("name")] == ["Name", "name_master"]
    assert result.select("name", "name_master").count() == result.count()
    with pytest.raises(SchemaError, match="Spark considers the columns 'Note' and 'note' equal"):
        adjoin.enrich(df.selectExpr("*", "1 AS Note", "2 AS note"), master, on="id")
    with pytest.raises(OptionError, match="'_Adjoin_Report' has a name that adjoin reserves"):
        adjoin.enrich(df.withColumnRenamed("Name", "_Adjoin_Report"), master, on="id")


def test_a_version_is_kept_when_its_master_is_closed(spark, tmp_path):
    batch = sales(300, 500)
    with build(products(200, note="old"), tmp_path / "master") as opened:
        result = adjoin.enrich(spark.createDataFrame(batch), opened, on="id", memory="32MB")
    changes = pa.table({"_op": ["delete"], "id": [2]})
    adjoin.Master.open(tmp_path / "master").apply(changes).vacuum(keep=1)
    assert rows_of(result) == wanted(batch, products(200, note="old"))


@pytest.mark.parametrize(
    ("type_", "keys", "numbers", "value"),
    [
        (pa.uint32(), [1, 2], [1, -1, 1 << 32 | 1], "n"),
        (pa.uint64(), [1, 2], [1, -1, 9], "CAST(n AS decimal(20))"),
        (pa.timestamp("ms", "UTC"), [1, 2], [1_000, 1_500], "timestamp_micros(n)"),
        (pa.timestamp("ns", "UTC"), [1_000, 2_000], [1, 253_402_214_400_000_000], "timestamp_micros(n)"),
        (pa.date64(), [86_400_000, 0], [1, 5], "date_from_unix_date(CAST(n AS int))"),
        (pa.binary(3), [b"111", b"222"], [111, 1], "CAST(CAST(n AS string) AS binary)"),
    ],
)
@pytest.mark.parametrize("route", ["range", "none"])
def test_keys_of_types_that_spark_lacks(spark, tmp_path, type_, keys, numbers, value, route):
    master = build(pa.table({"id": pa.array(keys, type_), "name": ["a", "b"]}), tmp_path / "master")
    df = spark.createDataFrame([(number,) for number in numbers], "n long").selectExpr(f"{value} AS id")
    result = adjoin.enrich(df, master, on="id", how="left", memory="32MB", route=route)
    found = [row.name for row in result.collect()]
    assert found.count("a") == 1
    assert set(found) == {"a", None}
