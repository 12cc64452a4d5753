"""What users see of joins: metrics from inside foreachBatch, the useful line of an error, names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import AdjoinError, EnrichListener, EnrichProgress, Master, OptionError, SchemaError, etl
from tests.spark.programs import until
from tests.spark.shop import build, products, read_batches, rows_of, sales, wanted, write_batches
from tests.unit.master.tables import rows_of as stored_rows

FAST: dict[str, Any] = {"memory": "16MB", "partitions": 2}


class Heard:
    """A listener, and what it has received."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.progress: list[EnrichProgress] = []
        self.errors: list[tuple[str, AdjoinError]] = []
        self._listener = EnrichListener(
            self.progress.append, on_error=lambda query_id, error: self.errors.append((query_id, error))
        )

    def __enter__(self) -> "Heard":
        self._spark.streams.addListener(self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.streams.removeListener(self._listener)


def test_joins_inside_foreach_batch_report_to_the_same_listener(spark, tmp_path):
    batches = [sales(300, 900, seed) for seed in (1, 2)]
    build(products(200), tmp_path / "products").close()
    keys = pa.schema([("id", pa.int64()), ("key", pa.int64())])
    build(keys.empty_table(), tmp_path / "keys").close()
    build(pa.table({"sale": pa.array([], pa.int64())}), tmp_path / "seen", key="sale").close()
    write_batches(batches, tmp_path / "in")

    def body(df: DataFrame, batch_id: int) -> None:
        rows = etl.deduplicate(df, tmp_path / "seen", on="sale", **FAST)
        rows = etl.surrogate_keys(rows, tmp_path / "keys", on="id", key="key", keep_natural=True, **FAST)
        unknown = etl.new_rows(rows, tmp_path / "products", on="id", name="unknown", **FAST)
        unknown.write.format("noop").mode("append").save()
        adjoin.enrich(df, tmp_path / "products", on="id", **FAST)  # its rows are never computed
        for _ in range(2):  # the metrics are those of the first computation
            adjoin.enrich(df, tmp_path / "products", on="id", **FAST).collect()

    with Heard(spark) as heard:
        writer = read_batches(spark, tmp_path / "in").writeStream.foreachBatch(body).queryName("load")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        until(lambda: {one.batch_id for one in heard.progress} == {0, 1}, what="both micro-batches")
    for number, batch in enumerate(batches):
        found = [one for one in heard.progress if one.batch_id == number]
        assert {(one.query_id, one.query_name) for one in found} == {(query.id, "load")}
        named = {name: [one for one in found if one.name == name] for name in {one.name for one in found}}
        assert named.keys() == {"deduplicate", "surrogate_keys", "unknown", "adjoin_2", "adjoin_3"}
        assert [one.rows_in for one in named["deduplicate"]] == [300, 300]
        assert [one.rows_in for one in named["unknown"]] == [300]
        new_keys = len(set(batch["id"].to_pylist()) - {None})
        assert [one.rows_in for one in named["surrogate_keys"]] == [new_keys, 300]
        assert named["adjoin_2"][0].rows_out == sum(wanted(batch, products(200)).values())
        assert found == EnrichProgress.of(query.recentProgress[number])


def test_the_one_useful_line_of_an_error(spark, tmp_path):
    batch = sales(50, 90)
    build(products(100), tmp_path / "master").close()
    write_batches([batch], tmp_path / "in")
    (tmp_path / "file").touch()
    spark.conf.set("spark.adjoin.arena.dir", str(tmp_path / "file"))
    try:
        static = adjoin.enrich(spark.createDataFrame(batch), tmp_path / "master", on="id")
        stream = adjoin.enrich(read_batches(spark, tmp_path / "in"), tmp_path / "master", on="id")
    finally:
        spark.conf.unset("spark.adjoin.arena.dir")
    with pytest.raises(PythonException) as raised:
        static.collect()
    with Heard(spark) as heard:
        query = stream.writeStream.format("noop").start()
        with pytest.raises(StreamingQueryException) as ended:
            query.processAllAvailable()
        until(lambda: heard.errors, what="a listener that has heard of the error")
    reasons = [adjoin.reason(raised.value), adjoin.reason(ended.value), adjoin.reason(query.exception())]
    for error in (*reasons, heard.errors[0][1]):
        assert type(error) is adjoin.ArenaError
        assert str(error).endswith("set spark.adjoin.arena.dir to another directory"), error
        assert "\n" not in str(error)
        assert str(tmp_path / "file") in str(error)
    assert heard.errors[0][0] == query.id


def test_errors_inside_foreach_batch_and_in_generated_code(spark, tmp_path):
    write_batches([sales(5, 9)], tmp_path / "in")

    def body(df: DataFrame, batch_id: int) -> None:
        adjoin.enrich(df, tmp_path / "nowhere", on="id")

    query = read_batches(spark, tmp_path / "in").writeStream.foreachBatch(body).start()
    with pytest.raises(StreamingQueryException) as ended:
        query.processAllAvailable()
    error = adjoin.reason(ended.value)
    assert type(error) is adjoin.MasterNotFoundError
    assert str(error) == f"there is no master at {tmp_path / 'nowhere'}; build one with Master.build"
    hole = pa.table({"id": pa.array([1]), "key": pa.array([None], pa.int64())})
    build(hole, tmp_path / "keys").close()
    rows = etl.surrogate_keys(spark.range(1, 2), tmp_path / "keys", on="id", key="key", txn=("a", 0), **FAST)
    with pytest.raises(Exception, match="a natural key has no key") as raised:
        rows.collect()
    error = adjoin.reason(raised.value)
    assert type(error) is OptionError
    assert str(error).endswith("repeats the same rows)")


@pytest.mark.parametrize(
    ("report", "wanted"),
    [
        (
            "Traceback:\n  File x\nadjoin.errors.SchemaError: no 'a'; give b\n\n SQLSTATE: 38000\n",
            "no 'a'; give b",
        ),
        (
            "x adjoin.errors.OptionError: one\ntwo\n\tat java.lang.Thread.run(Thread.java:1)\nCaused by: y",
            "one\ntwo",
        ),
        ("adjoin.errors.OptionError: first\n\nadjoin.errors.OptionError: second", "second"),
        ("adjoin.errors.NewError: of a newer one", "NewError: of a newer one"),
        ("ValueError: adjoin has nothing to do with it", None),
        (ValueError("nothing"), None),
        (None, None),
    ],
)
def test_reasons_are_found_in_reports(report, wanted):
    error = adjoin.reason(report)
    assert (str(error) if error else None) == wanted


def test_the_error_behind_an_error_is_the_reason():
    own = SchemaError("mine")
    outer = RuntimeError("theirs")
    outer.__cause__ = own
    assert adjoin.reason(own) is own is adjoin.reason(outer)


def test_two_joins_with_one_name_are_rejected(spark, tmp_path):
    master = build(products(10), tmp_path / "master")
    write_batches([sales(5, 9)], tmp_path / "in")
    first = adjoin.enrich(read_batches(spark, tmp_path / "in"), master, on="id", name="price")
    with pytest.raises(OptionError, match="name='price' is already used by another join of this query"):
        adjoin.enrich(first, master, on="id", how="semi", name="price")


@contextmanager
def case_sensitive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_columns_are_matched_as_the_session_does(spark, tmp_path):
    table = products(100).rename_columns(["Id", "Name", "note"])
    master = build(table, tmp_path / "master", key="Id")
    batch = sales(200, 300).rename_columns(["ID", "Sale", "amount"])
    df = spark.createDataFrame(batch)
    wanted_rows = wanted(sales(200, 300), products(100), how="left")
    for on in ("id", ["iD"], {"id": "ID"}):
        joined = adjoin.enrich(df, master, on=on, how="left", **FAST)
        assert joined.columns == ["ID", "Sale", "amount", "Name", "note"]
        assert rows_of(joined.toDF("id", "sale", "amount", "name", "note")) == wanted_rows
    joined = adjoin.enrich(df, master, on="id", columns=["NOTE", "ID"], deadline=None, **FAST)
    assert joined.columns == ["ID", "Sale", "amount", "note"]
    ranged = adjoin.enrich(df, master, on="id", between=("id", "ID"), columns=["name"], how="semi", **FAST)
    assert ranged.count() == sum(wanted(sales(200, 300), products(100), how="semi").values())
    due = df.selectExpr("*", "current_timestamp() AS Due")
    assert adjoin.enrich(due, master, on="id", deadline="due", **FAST).columns[:4] == [
        "ID",
        "Sale",
        "amount",
        "Due",
    ]
    with case_sensitive(spark), pytest.raises(SchemaError, match="must name the key"):
        adjoin.enrich(df, master, on="id")
    both = build(pa.table({"k": [1], "a": ["x"], "A": ["y"]}), tmp_path / "both", key="k")
    one = spark.range(1, 2).toDF("k")
    assert adjoin.enrich(one, both, on="K", columns=["A"]).collect() == [(1, "y")]
    with case_sensitive(spark):
        assert adjoin.enrich(one, both, on="k", columns=["A", "a"]).collect() == [(1, "y", "x")]
    twins = build(pa.table({"k": [1], "aa": ["x"], "AA": ["y"]}), tmp_path / "twins", key="k")
    with pytest.raises(SchemaError, match=r"'Aa' is ambiguous: Spark considers \['aa', 'AA'\]"):
        adjoin.enrich(one, twins, on="k", columns=["Aa"])


def test_transformations_match_columns_as_the_session_does(spark, tmp_path):
    schema = pa.schema([("Id", pa.int64()), ("Key", pa.int64()), ("Label", pa.string())])
    build(schema.empty_table(), tmp_path / "keys", key="Id").close()
    df = spark.createDataFrame(
        [(7, "seven", 1), (8, "eight", 2), (7, "seven", 3)], "ID long, LABEL string, At int"
    )
    options: dict[str, Any] = {"on": "id", "key": "KEY", "attributes": ["label"], "txn": ("a", 0), **FAST}
    replaced = etl.surrogate_keys(df, tmp_path / "keys", **options)
    assert replaced.columns == ["LABEL", "At", "Key"]
    assert sorted(map(tuple, replaced.collect())) == [("eight", 2, 2), ("seven", 1, 1), ("seven", 3, 1)]
    stored = stored_rows(Master.open(tmp_path / "keys")).to_pylist()
    assert [tuple(row.values()) for row in stored] == [(7, 1, "seven"), (8, 2, "eight")]
    seen = pa.schema([("Id", pa.int64()), ("AT", pa.int32())])
    build(seen.empty_table(), tmp_path / "seen", key="Id").close()
    first = etl.deduplicate(df, tmp_path / "seen", on="iD", order_by="at", txn=("a", 0), **FAST)
    assert sorted(map(tuple, first.collect())) == [(7, "seven", 1), (8, "eight", 2)]
    stored = stored_rows(Master.open(tmp_path / "seen")).to_pylist()
    assert stored == [{"Id": 7, "AT": 1}, {"Id": 8, "AT": 2}]
    changes = df.selectExpr("'upsert' AS _OP", "id", "at").where("at > 1")
    etl.apply_changes(tmp_path / "seen", "feed", order_by="At")(changes, 0)
    assert stored_rows(Master.open(tmp_path / "seen")).to_pylist() == [{"Id": 7, "AT": 3}, {"Id": 8, "AT": 2}]
    assert Master.build(df.where("at > 1"), key="id", path=tmp_path / "built").key == ("ID",)
