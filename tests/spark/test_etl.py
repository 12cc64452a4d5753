"""The steps of a load, compared with oracles: through crashes and replays, and with several writers."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adjoin import Master, OptionError, SchemaError, etl
from tests.spark.shop import build, products, read_batches, rows_of, sales, wanted, write_batches
from tests.unit.master.tables import rows_of as stored_rows

FAST: dict[str, Any] = {"route": "none", "memory": "32MB"}
KEYS = [("shop", pa.string()), ("item", pa.int64())]
DIMENSION = pa.schema([*KEYS, ("product_key", pa.int64()), ("name", pa.string())])


class CrashError(Exception):
    """Ends a query like the death of the driver."""


class Load:
    """A query that passes each file of a directory to a transformation and writes the result."""

    def __init__(self, spark, directory: Path, transform, crashes: tuple[str, ...] = ()) -> None:
        self._spark = spark
        self._directory = directory
        self._transform = transform
        self._crashes = list(crashes)

    def body(self, df: DataFrame, batch_id: int) -> None:
        result = self._transform(df)
        self._crash(f"before write {batch_id}")
        result.write.mode("overwrite").parquet(str(self._directory / "out" / f"{batch_id}"))
        self._crash(f"after write {batch_id}")

    def _crash(self, moment: str) -> None:
        if moment in self._crashes:
            self._crashes.remove(moment)
            raise CrashError(moment)

    def run(self) -> None:
        """Use up the input, starting again from the checkpoint after each crash."""
        for _ in range(len(self._crashes) + 1):
            stream = read_batches(self._spark, self._directory / "in").writeStream.foreachBatch(self.body)
            checkpoint = str(self._directory / "checkpoint")
            query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                assert "CrashError" in str(error), error  # noqa: PT017 (no other error is expected)
        assert not self._crashes

    def forget_last_commit(self) -> None:
        commits = list((self._directory / "checkpoint" / "commits").iterdir())
        newest = max(int(path.name) for path in commits if path.name.isdigit())
        for path in commits:
            if path.name.strip(".").split(".")[0] == str(newest):
                path.unlink()

    def rows(self, batch_id: int) -> Counter[tuple[str, ...]]:
        return rows_of(self._spark.read.parquet(str(self._directory / "out" / f"{batch_id}")))


def facts(keys: Sequence[tuple[str | None, int | None]], first: int = 0) -> pa.Table:
    shops, items = zip(*keys, strict=True)
    sale = list(range(first, first + len(keys)))
    columns = [pa.array(shops, pa.string()), pa.array(items, pa.int64()), pa.array(sale)]
    return pa.table(columns, names=["store", "item", "sale"])


BATCHES = [
    facts([("a", 1), ("b", 1), ("a", 2), ("b", 1), (None, 1)]),
    facts([("b", 1), ("é", -7), ("a", 9), ("c", None), ("", 0)], 100),
    facts([("a", 1), ("é", -7)], 200),
    facts([("z", 5), ("a", 9), ("z", 5), ("y", 6), (None, None), ("a", 2)], 300),
]
ON = {"store": "shop", "item": "item"}


def replaced(batch: pa.Table, known: dict[tuple[str, int], int], highest: int) -> tuple[pa.Table, int]:
    """The expected result of `surrogate_keys`; issues keys into `known`."""
    keys = list(zip(batch["store"].to_pylist(), batch["item"].to_pylist(), strict=True))
    new = sorted({key for key in keys if None not in key} - set(known))
    known |= {key: highest + 1 + place for place, key in enumerate(new)}
    surrogates = pa.array([known.get(key) for key in keys], pa.int64())
    return pa.table({"sale": batch["sale"], "product_key": surrogates}), highest + len(new)


def delete_everything(path: Path) -> None:
    master = Master.open(path)
    keys = stored_rows(master).select(master.key)
    master.apply(keys.append_column("_op", pa.array(["delete"] * len(keys)))).vacuum(keep=1)


def test_surrogate_keys_through_crashes_replays_and_deletes(spark, tmp_path):
    known = {("a", 1): 40}
    start = pa.table([["a"], [1], [40], ["x"]], schema=DIMENSION)
    build(start, tmp_path / "master", key=["shop", "item"]).close()
    write_batches(BATCHES, tmp_path / "in")
    load = Load(
        spark,
        tmp_path,
        lambda df: etl.surrogate_keys(df, tmp_path / "master", on=ON, key="product_key", **FAST),
        ("before write 0", "after write 1", "before write 3"),
    )
    load.run()
    highest = 40
    for number, batch in enumerate(BATCHES):
        result, highest = replaced(batch, known, highest)
        assert load.rows(number) == rows_of(result)
    master = Master.open(tmp_path / "master")
    rows = stored_rows(master).to_pylist()
    assert {(row["shop"], row["item"]): row["product_key"] for row in rows} == known
    assert (master.rows, master.version, master.marks) == (len(known), 4, {"product_key": highest})
    delete_everything(tmp_path / "master")
    load.forget_last_commit()
    before = load.rows(3)
    load.run()
    assert load.rows(3) == before


def test_surrogates_are_never_reused(spark, tmp_path):
    build(DIMENSION.empty_table(), tmp_path / "master", key=["shop", "item"]).close()
    seen = []
    for number, keys in enumerate([[("a", 1), ("b", 2)], [("b", 2)], [("c", 3), ("a", 1)]]):
        df = spark.createDataFrame(facts(keys))
        load: dict[str, Any] = {"on": ON, "key": "product_key", "txn": ("load", number), **FAST}
        result = etl.surrogate_keys(df, tmp_path / "master", **load).orderBy("sale").toArrow()
        seen.append(result["product_key"].to_pylist())
        delete_everything(tmp_path / "master")
    assert seen == [[1, 2], [3], [5, 4]]


def test_a_new_dimension_row_holds_key_and_attributes(spark, tmp_path):
    build(DIMENSION.empty_table(), tmp_path / "master", key=["shop", "item"]).close()
    table = facts([("b", 1), ("a", 1), ("a", 1), ("a", 1), (None, 1)])
    names = pa.array(["pen", None, "paper", "ink", "glue"])
    df = spark.createDataFrame(table.append_column("name", names))
    options: dict[str, Any] = {
        "attributes": ["name"],
        "keep_natural": True,
        "unknown_key": -1,
        "txn": ("load", 0),
    }
    result = etl.surrogate_keys(df, tmp_path / "master", on=ON, key="product_key", **options)
    assert result.columns == ["store", "item", "sale", "name", "product_key"]
    assert result.orderBy("sale").toArrow()["product_key"].to_pylist() == [2, 1, 1, 1, -1]
    rows = stored_rows(Master.open(tmp_path / "master")).sort_by("product_key").to_pylist()
    assert rows == [
        {"shop": "a", "item": 1, "product_key": 1, "name": "ink"},
        {"shop": "b", "item": 1, "product_key": 2, "name": "pen"},
    ]


def test_strings_that_spark_considers_equal_are_different_keys(spark, tmp_path):
    schema = pa.schema([("id", pa.string()), ("key", pa.int32())])
    build(schema.empty_table(), tmp_path / "master").close()
    df = spark.createDataFrame([("A", 1), ("a", 2), ("A", 3)], "id string, sale int")
    df = df.withColumn("id", F.collate("id", "UTF8_LCASE"))
    result = etl.surrogate_keys(df, tmp_path / "master", on="id", key="key", txn=("load", 0), **FAST)
    assert result.orderBy("sale").toArrow()["key"].to_pylist() == [1, 2, 1]
    build(pa.table({"id": ["x"]}), tmp_path / "seen").close()
    result = etl.deduplicate(df, tmp_path / "seen", on="id", txn=("load", 0), **FAST)
    assert sorted(result.toArrow()["sale"].to_pylist()) == [1, 2]


def test_deduplicate_through_crashes_and_replays(spark, tmp_path):
    schema = pa.schema([*KEYS, ("sale", pa.int64()), ("note", pa.string())])
    start = pa.table([["a"], [2], [None], ["old"]], schema=schema)
    build(start, tmp_path / "m", key=["shop", "item"]).close()
    write_batches(BATCHES, tmp_path / "in")
    load = Load(
        spark,
        tmp_path,
        lambda df: etl.deduplicate(df, tmp_path / "m", on=ON, order_by=F.col("sale").desc(), **FAST),
        ("before write 0", "after write 1", "before write 3"),
    )
    load.run()
    seen: dict[Any, int | None] = {("a", 2): None}
    for number, batch in enumerate(BATCHES):
        stays = []
        for row in reversed(batch.to_pylist()):
            key = (row["store"], row["item"])
            if key not in seen or None in key:
                stays.append(row)
                seen |= {key: row["sale"]} if None not in key else {}
        assert load.rows(number) == rows_of(pa.Table.from_pylist(stays, batch.schema))
    master = Master.open(tmp_path / "m")
    rows = stored_rows(master).to_pylist()
    assert {(row["shop"], row["item"]): row["sale"] for row in rows} == seen
    assert (master.rows, master.version) == (len(seen), 4)
    delete_everything(tmp_path / "m")
    load.forget_last_commit()
    before = load.rows(3)
    load.run()
    assert load.rows(3) == before


def test_the_row_kept_does_not_depend_on_arrival_order(spark, tmp_path):
    rows = [("a", 1, {"x": 2}), ("a", 1, {"x": 1}), ("a", None, {"x": 0}), ("b", 3, None), ("b", 3, {"y": 0})]
    for number, given in enumerate([rows, rows[::-1], rows[2:] + rows[:2]]):
        build(pa.table({"id": ["other"]}), tmp_path / f"{number}").close()
        df = spark.createDataFrame(given, "id string, n int, tags map<string,int>").repartition(3)
        result = etl.deduplicate(df, tmp_path / f"{number}", on="id", txn=("load", 0), **FAST)
        assert sorted(map(tuple, result.collect())) == [("a", 1, {"x": 1}), ("b", 3, {"y": 0})]


@pytest.mark.parametrize("transform", ["surrogate_keys", "deduplicate"])
def test_a_name_used_for_other_rows_is_rejected(spark, tmp_path, transform):
    build(DIMENSION.empty_table(), tmp_path / "master", key=["shop", "item"]).close()
    options: dict[str, Any] = {"key": "product_key"} if transform == "surrogate_keys" else {}
    rows = [spark.createDataFrame(facts(keys)) for keys in ([("a", 1)], [("b", 1)])]
    options |= {"on": ON, "txn": ("load", 7), **FAST}
    getattr(etl, transform)(rows[0], tmp_path / "master", **options)
    with pytest.raises(Exception, match="each call and each checkpoint its own"):
        getattr(etl, transform)(rows[1], tmp_path / "master", **options).collect()


def test_two_writers_at_once_share_the_keys(spark, tmp_path):
    build(DIMENSION.empty_table(), tmp_path / "master", key=["shop", "item"]).close()
    path, results = tmp_path / "master", []

    def issue(name: str, own: int) -> None:
        for number in range(3):
            df = spark.createDataFrame(facts([("own", own + number), ("both", number), ("both", number + 1)]))
            load: dict[str, Any] = {"on": ON, "key": "product_key", "keep_natural": True, **FAST}
            results.append(etl.surrogate_keys(df, path, txn=(name, number), **load).toArrow())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(issue, ["writer 1", "writer 2"], [10, 20]))
    assert len(results) == 6
    rows = [row for table in results for row in table.to_pylist()]
    issued = {(row["store"], row["item"]): row["product_key"] for row in rows}
    assert all(issued[row["store"], row["item"]] == row["product_key"] for row in rows)
    assert sorted(issued.values()) == list(range(1, 11))
    assert Master.open(tmp_path / "master").rows == 10


def test_new_rows_of_a_batch_and_of_a_stream(spark, tmp_path):
    table, batch = products(200), sales(300, 600)
    build(table, tmp_path / "master").close()
    assert batch["id"].null_count
    new = wanted(batch, table, how="anti")
    assert rows_of(etl.new_rows(spark.createDataFrame(batch), tmp_path / "master", on="id")) == new
    write_batches([batch], tmp_path / "in")
    stream = etl.new_rows(read_batches(spark, tmp_path / "in"), tmp_path / "master", on="id", **FAST)
    query = stream.writeStream.format("memory").queryName("new_rows").trigger(availableNow=True).start()
    query.awaitTermination()
    assert rows_of(spark.table("new_rows")) == new


def test_a_change_stream_is_applied_once_and_keeps_the_surrogates(spark, tmp_path):
    build(DIMENSION.empty_table(), tmp_path / "master", key=["shop", "item"]).close()
    columns = ["_op", "shop", "item", "name", "at"]
    feed: list[list[tuple[Any, ...]]] = [
        [("upsert", "a", 1, "ink", 1), ("upsert", "b", 1, "pen", 1)],
        [("delete", "b", 1, None, 2), ("upsert", "a", 1, "blue", 2), ("upsert", "a", 1, "red", 3)],
        [("upsert", "b", 1, "pencil", 5), ("upsert", "c", 1, "paper", 5)],
    ]
    write_batches(
        [pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows]) for rows in feed],
        tmp_path / "in",
    )
    apply_batch = etl.apply_changes(tmp_path / "master", "feed", order_by="at")
    applied = []

    def body(df: DataFrame, batch_id: int) -> None:
        natural: dict[str, Any] = {"on": ["shop", "item"], "key": "product_key", "keep_natural": True}
        apply_batch(etl.surrogate_keys(df, tmp_path / "master", **natural, **FAST), batch_id)
        applied.append(batch_id)
        if applied == [0, 1]:
            raise CrashError

    for _ in range(2):
        stream = read_batches(spark, tmp_path / "in").writeStream.foreachBatch(body)
        query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException:
            continue
    assert applied == [0, 1, 1, 2]
    master = Master.open(tmp_path / "master")
    rows = stored_rows(master).select(["shop", "product_key", "name"]).sort_by("shop").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("a", 1, "red"), ("b", 3, "pencil"), ("c", 4, "paper")]


def test_a_change_stream_waits_for_faster_writers(spark, tmp_path, monkeypatch):
    build(products(3), tmp_path / "master").close()
    real_apply = Master.apply
    faster = [pa.table({"_op": ["delete"], "id": [key]}) for key in (0, 2, 4)]

    def be_overtaken(master: Master, *args: Any, **options: Any) -> Master:
        if faster:
            real_apply(Master.open(master.path), faster.pop())
        return real_apply(master, *args, **options)

    columns = "_op string, id long, name string, note string"
    changes = spark.createDataFrame([("upsert", 2, "new", "n")], columns)
    with monkeypatch.context() as patched:
        patched.setattr(Master, "apply", be_overtaken)
        etl.apply_changes(tmp_path / "master", "feed")(changes, 0)
    master = Master.open(tmp_path / "master")
    assert stored_rows(master).to_pylist() == [{"id": 2, "name": "new", "note": "n"}]
    etl.apply_changes(master, "feed")(changes, 0)
    assert Master.open(tmp_path / "master").version == master.version == 5


def test_a_new_checkpoint_under_an_old_name_is_rejected(spark, tmp_path):
    master = build(products(3), tmp_path / "master")
    changes = spark.createDataFrame([("delete", 2)], "_op string, id long")
    apply_batch = etl.apply_changes(master, "feed")
    apply_batch(changes, 0)
    apply_batch(changes, 1)
    apply_batch(changes, 1)
    message = r"micro-batch 0 of 'feed' comes from another checkpoint.*up to 1; give"
    with pytest.raises(OptionError, match=message):
        apply_batch(changes, 0)
    assert Master.open(tmp_path / "master").version == 3


def test_invalid_calls_fail_at_once(spark, tmp_path):
    master = build(DIMENSION.empty_table(), tmp_path / "master", key=["shop", "item"])
    df = spark.createDataFrame(facts([("a", 1)]))
    write_batches([facts([("a", 1)])], tmp_path / "in")
    stream = read_batches(spark, tmp_path / "in")
    with pytest.raises(OptionError, match=r"etl\.surrogate_keys\(batch"):
        etl.surrogate_keys(stream, master, on=ON, key="product_key")
    with pytest.raises(OptionError, match=r"etl\.deduplicate\(batch"):
        etl.deduplicate(stream, master, on=ON)
    with pytest.raises(OptionError, match="which micro-batch this is"):
        etl.deduplicate(df, master, on=ON)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": "item"}, "other than its key"),
        ({"key": "name"}, "surrogates are integers"),
        ({"key": "product_key", "attributes": ["sale"]}, "must name a column of the master"),
        ({"key": "product_key", "attributes": ["nothing"]}, "not a column of the DataFrame"),
        ({"key": "product_key", "on": {"shop": "shop", "item": "item"}}, "not a column of the DataFrame"),
    ]
    for options, message in wrong:
        with pytest.raises(SchemaError, match=message):
            etl.surrogate_keys(df, master, **{"on": ON, "txn": ("load", 0), **options})
    with pytest.raises(SchemaError, match="already has a column 'product_key'"):
        etl.surrogate_keys(df.withColumn("product_key", F.lit(1)), master, on=ON, key="product_key")
    with pytest.raises(SchemaError, match="order_by='when'"):
        etl.deduplicate(df, master, on=ON, order_by="when", txn=("load", 0))
    with pytest.raises(OptionError, match="give the change stream a name"):
        etl.apply_changes(master, "")
    assert Master.open(tmp_path / "master").version == 1


MAPS = "SELECT EXPLODE(array(1, 2, 3, 4)) AS number, 1L AS id"


@pytest.mark.parametrize(
    "value",
    [
        "map(CAST(CAST(number AS string) AS binary), number)",
        "map('a', timestamp_micros(number), 'b', timestamp_micros(-number))",
        "array(named_struct('m', map(number, array(map(1, number)))))",
        "parse_json(CAST(number AS string))",
    ],
)
def test_the_same_row_with_maps_is_kept_every_time(spark, tmp_path, value):
    rows = spark.sql(f"SELECT id, {value} AS value FROM ({MAPS})")
    build(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "master").close()
    kept = set()
    for parts in (1, 3):
        df = rows.repartition(parts).sortWithinPartitions(F.rand(parts))
        kept.add(repr(etl.deduplicate(df, tmp_path / "master", on="id", txn=("load", 0), **FAST).collect()))
    assert len(kept) == 1


def test_columns_of_types_that_spark_lacks_are_stored(spark, tmp_path):
    empty = pa.table(
        {"id": pa.array([], pa.int64()), "h": pa.array([], pa.binary(3)), "u": pa.array([], pa.uint64())}
    )
    build(empty.append_column("key", pa.array([], pa.int32())), tmp_path / "master").close()
    df = spark.sql("SELECT 2L AS id, binary('xyz') AS h, CAST(7 AS decimal(20)) AS u")
    etl.deduplicate(df, tmp_path / "master", on="id", txn=("a", 0), **FAST)
    more = df.selectExpr("id + 1 AS id", "h", "u")
    options: dict[str, Any] = {"on": "id", "key": "key", "attributes": ["h", "u"], "txn": ("b", 0), **FAST}
    etl.surrogate_keys(more, tmp_path / "master", **options)
    rows = stored_rows(Master.open(tmp_path / "master")).to_pylist()
    assert rows == [{"id": 2, "h": b"xyz", "u": 7, "key": None}, {"id": 3, "h": b"xyz", "u": 7, "key": 1}]


def test_exhausted_surrogate_keys_are_an_error(spark, tmp_path):
    full = pa.table({"id": pa.array([1], pa.int64()), "key": pa.array([126], pa.int8())})
    master = build(full, tmp_path / "master")
    options: dict[str, Any] = {"on": "id", "key": "key", "txn": ("a", 0), **FAST}
    with pytest.raises(
        SchemaError, match=r"column 'key' cannot hold 3 more surrogate keys after 126 \(maximum 127\)"
    ):
        etl.surrogate_keys(spark.range(2, 5), master, **options)
    with pytest.raises(OptionError, match="unknown_key=257 does not fit column 'key'"):
        etl.surrogate_keys(spark.range(2, 3), master, unknown_key=257, **options)
    with pytest.raises(SchemaError, match="already has a column 'key'"):
        etl.surrogate_keys(spark.range(2, 3).withColumn("KEY", F.lit(1)), master, **options)
    assert Master.open(tmp_path / "master").version == 1


def test_the_first_micro_batch_of_a_new_checkpoint_is_not_lost(spark, tmp_path):
    build(products(3), tmp_path / "master").close()
    changes = pa.table({"_op": ["delete"], "id": [2]})
    write_batches([changes], tmp_path / "in")
    for checkpoint, error in (("a", None), ("b", "comes from another checkpoint")):
        body = etl.apply_changes(tmp_path / "master", "feed")
        stream = read_batches(spark, tmp_path / "in").writeStream.foreachBatch(body)
        query = (
            stream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        )
        if error is None:
            query.awaitTermination()
        else:
            with pytest.raises(StreamingQueryException, match=error):
                query.awaitTermination()
