"""Applying a DataFrame of changes equals applying one change after another."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from adjoin import ConflictError, Master, NullKeyError, OptionError, SchemaError, StorageError
from adjoin.master.apply import ApplyOptions, Base, commit_next, rewrite
from adjoin.master.index import PageIndex
from adjoin.master.versions import Home
from adjoin.spark import apply as apply_module
from adjoin.spark.apply import page_cuts
from adjoin.spark.types import arrow_schema_for_spark, spark_schema, to_spark
from tests.spark.failing_jobs import failing_after
from tests.unit.master.tables import build_master, changes, files_below, multiset, rows_of, typed_column

Step = tuple[str, int, str]
KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int64": (pa.int64(), lambda number: number),
    "text": (pa.string(), lambda number: f"key {number}"),
}


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_module, "_ROWS_PER_TASK", 100)
    monkeypatch.setattr(apply_module, "_FEW_ROWS", 0)


def model(rows: list[tuple[int, str]], steps: list[Step]) -> list[tuple[int, str]]:
    """The oracle: one change after another."""
    held: dict[int, list[str]] = {}
    for key, value in rows:
        held.setdefault(key, []).append(value)
    for operation, key, value in steps:
        held[key] = [*(held.get(key, []) if operation == "insert" else []), value]
        if operation == "delete":
            held[key] = []
    return [(key, value) for key, values in held.items() for value in values]


def as_table(rows: list[tuple[int, str]], kind: str) -> pa.Table:
    key_type, key_of = KEYS[kind]
    return pa.table(
        {
            "key": pa.array([key_of(key) for key, _ in rows], key_type),
            "value": pa.array([value for _, value in rows], pa.string()),
        }
    )


def as_changes(steps: list[Step], kind: str = "int64") -> pa.Table:
    """With a column `at` for their order, which the master lacks."""
    key_type, key_of = KEYS[kind]
    table = changes([(operation, key_of(key), value) for operation, key, value in steps], key_type)
    return table.append_column("at", pa.array(range(len(steps)), pa.int32()))


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("kind", KEYS)
def test_executors_change_pages_as_one_process_would(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    draw = np.random.default_rng(1)
    rows = [(int(key), "v" * 60) for key in draw.integers(0, 800, 2000)]
    master = build_master(as_table(rows, kind), "key", tmp_path, page_bytes=4096, filter_bits=8)
    for number in range(2):
        operations = draw.choice(["upsert", "delete", "insert"], 700, p=[0.4, 0.2, 0.4])
        keys = np.where(draw.random(700) < 0.4, draw.integers(300, 330, 700), draw.integers(-100, 1500, 700))
        steps = [
            (str(operation), int(key), f"{number} {at}" + "w" * 40)
            for at, (operation, key) in enumerate(zip(operations, keys, strict=True))
        ]
        rows = model(rows, steps)
        df = spark.createDataFrame(as_changes(steps, kind)).repartition(1 + 3 * number)
        master = master.apply(df, ("steps", number), order_by="at")
        master.verify()
        assert multiset(rows_of(master)) == multiset(as_table(rows, kind))
    assert len(master.files) > 4
    assert master.vacuum(keep=3).files == 0


def test_few_changes_are_applied_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_module, "_apply_on_executors", None)
    master = build_master(as_table([(1, "a"), (2, "b"), (2, "c")], "int64"), "key", tmp_path)
    df = spark.createDataFrame(as_changes([("upsert", 1, "x"), ("delete", 2, ""), ("upsert", 1, "y")]))
    newer = master.apply(df.orderBy("at", ascending=False), order_by=["at"], marks={"highest": 7})
    assert rows_of(newer).to_pylist() == [{"key": 1, "value": "y"}]
    assert newer.marks == {"highest": 7}
    assert not df.is_cached


@pytest.mark.usefixtures("many_tasks")
def test_rows_after_the_last_page_are_split_among_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    master = build_master(as_table([(key, "v") for key in range(100)], "int64"), "key", tmp_path)
    steps = [("insert", key, f"new {key}") for key in range(50, 1050)]
    newer = master.apply(spark.createDataFrame(as_changes(steps).drop_columns("at")), keep=None)
    newer.verify()
    assert newer.rows == 1100
    assert len(newer.files) > 8


@pytest.mark.usefixtures("many_tasks")
def test_an_empty_master_is_filled_by_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    master = build_master(as_table([], "int64"), "key", tmp_path)
    newer = master.apply(
        spark.createDataFrame(as_changes([("upsert", key, "v") for key in range(500)])).drop("at")
    )
    newer.verify()
    assert rows_of(newer)["key"].to_pylist() == list(range(500))
    assert len(newer.files) > 3


@pytest.mark.parametrize("many", [True, False])
def test_changes_in_unknown_order_are_rejected(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, many: bool
) -> None:
    if many:
        request.getfixturevalue("many_tasks")
    master = build_master(as_table([(1, "a")], "int64"), "key", tmp_path, filter_bits=8)
    before = files_below(tmp_path)
    df = spark.createDataFrame(as_changes([("upsert", 1, "x"), ("insert", 2, ""), ("delete", 1, "")]))
    with pytest.raises(OptionError, match=r"key \{'key': 1\} have no order, .* as sequence= or order_by="):
        master.apply(df.drop("at"))
    with pytest.raises(OptionError, match=r"key \{'key': 1\} have the same at; drop duplicates"):
        master.apply(df.selectExpr("_op", "key", "value", "1 AS at"), order_by="at")
    with pytest.raises(SchemaError, match="'at' orders the changes but has nulls"):
        master.apply(df.selectExpr("_op", "key", "value", "CAST(null AS int) AS at"), order_by="at")
    assert files_below(tmp_path) == before
    inserts = spark.createDataFrame(as_changes([("insert", 1, "x"), ("insert", 1, "y")])).drop("at")
    assert master.apply(inserts).rows == 3


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "UTC"])
def test_changes_are_applied_in_order_of_their_times(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, many: bool, zone: str
) -> None:
    if many:
        request.getfixturevalue("many_tasks")
    master = build_master(as_table([(1, "a")], "int64"), "key", tmp_path)
    before = spark.conf.get("spark.sql.session.timeZone") or ""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.createDataFrame(as_changes([("upsert", 1, "x"), ("upsert", 2, "y"), ("upsert", 1, "z")]))
        timed = df.selectExpr("_op", "key", "value", "timestamp_seconds(-at) AS at")
        newer = master.apply(timed, order_by="at")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert rows_of(newer)["value"].to_pylist() == ["x", "y"]


@pytest.mark.usefixtures("many_tasks")
def test_invalid_changes_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    master = build_master(as_table([(1, "a")], "int64"), "key", tmp_path)
    with pytest.raises(NullKeyError, match=r"2 changes have a null in the key \['key'\]"):
        master.apply(spark.sql("SELECT 'delete' AS _op, EXPLODE(array(1L, null, 2L, null)) AS key"))
    with pytest.raises(SchemaError, match=r"columns \['more'\] that the master lacks"):
        master.apply(spark.sql("SELECT 'delete' AS _op, 1L AS key, 1 AS more"))
    with pytest.raises(OptionError, match="_op='merge'"):
        master.apply(spark.sql("SELECT 'merge' AS _op, 1L AS key, 'x' AS value"))
    with pytest.raises(OptionError, match="foreachBatch"):
        master.apply(spark.readStream.format("rate").load())
    master.apply(spark.sql("SELECT 'upsert' AS _op, 1L AS key, 'x' AS value"))
    with pytest.raises(ConflictError):
        master.apply(spark.sql("SELECT 'delete' AS _op, 1L AS key"))
    assert master.versions() == [1, 2]


@pytest.mark.usefixtures("many_tasks")
def test_a_failed_job_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = build_master(as_table([(1, "a")], "int64"), "key", tmp_path, filter_bits=8)
    before = files_below(tmp_path)
    monkeypatch.setattr(apply_module, "run", failing_after("/somewhere: no space; make room"))
    with pytest.raises(StorageError, match="/somewhere"):
        master.apply(spark.sql("SELECT 'upsert' AS _op, id AS key, 'x' AS value FROM range(300)"))
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("many", [True, False])
def test_types_that_spark_lacks(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, many: bool
) -> None:
    if many:
        request.getfixturevalue("many_tasks")
    names = [
        "uint64",
        "half",
        "fixed_binary",
        "date64",
        "large_list",
        "fixed_list",
        "decimal64",
        "timestamp_tz",
    ]
    table = pa.table(
        {"key": pa.array(range(30), pa.uint64())}
        | {name: typed_column(name, 30, nulls=True) for name in names}
    )
    master = build_master(table.slice(0, 1), "key", tmp_path)
    empty = build_master(table.slice(0, 0), "key", tmp_path / "other")
    declared = spark_schema(table.schema)
    target = arrow_schema_for_spark(declared, "UTC", False)
    [batch] = table.combine_chunks().to_batches()

    def emit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield to_spark(batch, target)

    df = spark.range(0, 1, 1, 1).mapInArrow(emit, declared).selectExpr("*", "'upsert' AS _op")
    for changed in (master.apply(df), empty.apply(df)):
        changed.verify()
        assert rows_of(changed).sort_by("key").equals(table)


@pytest.mark.usefixtures("many_tasks")
def test_a_change_stream_that_stops_starts_and_repeats(spark: SparkSession, tmp_path: Path) -> None:
    path, source = tmp_path / "master", tmp_path / "source"
    build_master(as_table([(key, "old") for key in range(200)], "int64"), "key", path)
    steps = [("upsert" if at % 3 else "delete", at * 7 % 260, f"value {at}") for at in range(900)]
    df = spark.createDataFrame(as_changes(steps))
    seen: list[int] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        for _ in range(2):  # like a driver that dies before it has recorded the batch
            Master.open(path).apply(batch, ("products", batch_id), order_by="at")

    def stream() -> None:
        changed = spark.readStream.schema(df.schema).parquet(str(source))
        query = changed.writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    for third in range(3):
        df.where(f"at DIV 300 = {third}").coalesce(1).write.mode("append").parquet(str(source))
        stream()
    noted = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    noted.unlink()
    noted.with_name(f".{noted.name}.crc").unlink()
    stream()
    assert seen == [0, 1, 2, 2]
    master = Master.open(path)
    assert master.version == 4
    wanted = model([(key, "old") for key in range(200)], steps)
    assert multiset(rows_of(master)) == multiset(as_table(wanted, "int64"))


_pages = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12)


@given(pages=_pages, cuts=st.lists(st.integers(-3, 60), max_size=8))
def test_no_page_is_on_both_sides_of_a_cut(pages: list[tuple[int, int]], cuts: list[int]) -> None:
    first, last, key = [], [], 0
    for gap, length in pages:
        first.append(key + gap)
        key = key + gap + length
        last.append(key)
    nothing = np.zeros(len(pages), np.int32)
    index = PageIndex(
        first=np.array(first, np.int64),
        last=np.array(last, np.int64),
        file=nothing,
        block=nothing,
        blocks=nothing,
        rows=nothing,
        checksum=nothing.astype(np.uint64),
    )
    moved = page_cuts(index, np.unique(np.array(cuts, np.int64)))
    assert (np.diff(moved) > 0).all()
    for cut in moved.tolist():
        assert not ((index.first < cut) & (index.last >= cut)).any()
        assert len(index) == 0 or cut > index.first[0]


@settings(max_examples=25)
@given(
    start=st.lists(st.integers(0, 60), max_size=80),
    steps=st.lists(
        st.tuples(st.sampled_from(["upsert", "delete", "insert"]), st.integers(-20, 120), st.just("w" * 300)),
        max_size=80,
    ),
    cuts=st.lists(st.integers(-20, 120), max_size=6, unique=True),
)
def test_parts_rewritten_separately_make_one_version(
    start: list[int], steps: list[Step], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [(key, "v" * 300) for key in start]
    path = tmp_path_factory.mktemp("m")
    master = build_master(as_table(rows, "int64"), "key", path, page_bytes=4096, filter_bits=8)
    home, options = Home(path), ApplyOptions()
    base = Base(home.read_manifest(1), master.index, master.filter)
    table = as_changes(steps).drop_columns("at")
    edges = page_cuts(base.index, np.array(sorted(cuts), np.int64))
    part_of = np.searchsorted(edges, table["key"].to_numpy(), "right")
    firsts = [0, *np.searchsorted(base.index.first, edges, "left").tolist()]
    parts = []
    for number, first in enumerate(firsts):
        mine = table.filter(pc.equal(pa.array(part_of), number))
        parts.append(
            rewrite(home, base.manifest, base.index, mine.schema, iter(mine.to_batches()), options, first)
        )
    changed = commit_next(home, base, parts, options)
    newest = Master.open(path)
    newest.verify()
    assert changed == (2 if newest.version == 2 else None)
    assert multiset(rows_of(newest)) == multiset(as_table(model(rows, steps), "int64"))
    assert newest.vacuum(keep=2).files == 0
