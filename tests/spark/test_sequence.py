"""DataFrames of changes with a sequence: the greatest value wins, in whichever micro-batch it comes."""

import datetime as dt
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from adjoin import Master, OptionError, SchemaError, StorageError, etl
from adjoin.master.rewriter import Rewritten
from adjoin.spark import apply as apply_module
from tests.spark.failing_jobs import failing_after
from tests.spark.programs import Program
from tests.unit.master.sequenced import Change, Model, as_changes, as_rows, key_table, latest_rows
from tests.unit.master.tables import build_master, files_below, multiset, rows_of

VALUES = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in range(20)]
TYPE = pa.timestamp("us", "UTC")


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_module, "_ROWS_PER_TASK", 100)
    monkeypatch.setattr(apply_module, "_FEW_ROWS", 0)


def build(path: Path, kind: str, rows: list[tuple[int, str]], hash_bits: int = 64) -> Master:
    keys = list(key_table([], kind).column_names)
    return build_master(as_rows(rows, kind), keys, path, page_bytes=4096, hash_bits=hash_bits)


def draw_batch(draw: np.random.Generator, number: int, rows: int = 400) -> list[Change]:
    """Changes of which no two have the same key, value and tie."""
    return [
        Change("delete" if draw.random() < 0.3 else "upsert", int(key), f"{number} {at}", VALUES[hour], at)
        for at, (key, hour) in enumerate(
            zip(draw.integers(0, 401, rows), draw.integers(0, len(VALUES), rows), strict=True)
        )
    ]


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("kind", ["int64", "composite"])
def test_executors_and_the_driver_agree_with_the_model(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    draw = np.random.default_rng(3)
    start = [(int(key), "v" * 60) for key in draw.integers(0, 300, 500)]
    model = Model(start)
    master = build(tmp_path / "m", kind, start, hash_bits=6)
    for number in range(2):
        batch = draw_batch(draw, number)
        model.apply(batch, VALUES, by_tie=True)
        changes = spark.createDataFrame(as_changes(batch, kind, TYPE)).repartition(1 + number)
        txn = ("feed", number)
        master = master.apply(changes, txn, sequence="changed", order_by="tie", memory="1MB")
        assert Master.open(master.path).apply(changes, txn, sequence="changed").version == master.version
        master.verify()
        assert multiset(rows_of(master)) == multiset(as_rows(model.rows(), kind))
        assert latest_rows(master, kind, pa.array(VALUES, TYPE)) == model.latest
    assert len(master.files) > 2
    assert master.vacuum(keep=3).files == 0
    assert not [name for name in files_below(tmp_path) if name.endswith((".run", ".keys"))]


@pytest.mark.parametrize("many", [True, False])
def test_changes_that_cannot_be_ordered_are_rejected(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, many: bool
) -> None:
    if many:
        request.getfixturevalue("many_tasks")
    master = build(tmp_path / "m", "int64", [(1, "a")])
    before = files_below(tmp_path)
    rows = "SELECT * FROM VALUES ('upsert', 1L, 'x', 5), ('upsert', 1L, 'y', 5), ('delete', 1L, '', 4)"
    changes = spark.sql(rows).toDF("_op", "key", "value", "at")
    with pytest.raises(
        OptionError, match=r"key \{'key': 1\} have the same at; drop duplicates, or add columns"
    ):
        master.apply(changes, sequence="at")
    with pytest.raises(SchemaError, match="the sequence column 'at' has 1 nulls"):
        master.apply(changes.selectExpr("_op", "key", "value", "nullif(at, 4) AS at"), sequence="at")
    with pytest.raises(OptionError, match="_op='insert' cannot be used with a sequence"):
        master.apply(changes.selectExpr("'insert' AS _op", "key", "value", "at"), sequence="at")
    with pytest.raises(SchemaError, match=r"unsupported type .* for the sequence column 'at'"):
        master.apply(changes.selectExpr("_op", "key", "value", "array(at) AS at"), sequence="at")
    assert files_below(tmp_path) == before
    newer = master.apply(changes, sequence="at", order_by=["value", "AT"])
    assert rows_of(newer)["value"].to_pylist() == ["y"]
    late = changes.where("at = 4").withColumnRenamed("at", "At")
    assert rows_of(newer.apply(late, "late", sequence="AT"))["value"].to_pylist() == ["y"]


def test_a_late_micro_batch_of_a_stream_does_not_win(spark: SparkSession, tmp_path: Path) -> None:
    """Files of changes come in any order, the query is stopped after each, and its last batch is repeated."""
    draw = np.random.default_rng(9)
    batches = [draw_batch(draw, number, 100) for number in range(3)]
    start = [(key, "old") for key in range(0, 401, 3)]
    model = Model(start)
    build(tmp_path / "m", "int64", start)
    body = etl.apply_changes(tmp_path / "m", "feed", sequence="changed", order_by="tie")
    seen: list[int] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        seen.append(batch_id)
        body(batch, batch_id)

    schema = spark.createDataFrame(as_changes(batches[0], "int64", TYPE)).schema

    def stream() -> None:
        changes = spark.readStream.schema(schema).parquet(str(tmp_path / "source"))
        query = changes.writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    for number in (1, 0, 2):
        model.apply(batches[number], VALUES, by_tie=True)
        df = spark.createDataFrame(as_changes(batches[number], "int64", TYPE))
        df.coalesce(1).write.mode("append").parquet(str(tmp_path / "source"))
        stream()
    noted = tmp_path / "checkpoint" / "commits" / "2"
    noted.unlink()
    noted.with_name(".2.crc").unlink()
    stream()
    assert seen == [0, 1, 2, 2]
    master = Master.open(tmp_path / "m")
    assert master.version == 4
    assert multiset(rows_of(master)) == multiset(as_rows(model.rows(), "int64"))
    with pytest.raises(OptionError, match=r"sequence='tie' cannot be compared with the sequence 'changed'"):
        master.apply(spark.createDataFrame(as_changes(batches[0], "int64", TYPE)), sequence="tie")


@pytest.mark.slow
def test_killed_drivers_neither_lose_nor_repeat_a_change(tmp_path: Path) -> None:
    """Repeatedly killed with signal 9 at random steps of commits; the model does not notice."""
    draw = np.random.default_rng(17)
    start = [(key, "old") for key in range(0, 401, 3)]
    model = Model(start)
    build(tmp_path / "master", "int64", start).close()
    (tmp_path / "in").mkdir()
    for number in range(6):
        batch = draw_batch(draw, number, 120)
        model.apply(batch, VALUES, by_tie=True)
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(as_changes(batch, "int64", TYPE), path)
        os.utime(path, (number, number))  # the source takes files in the order of their modification times
    killed = 0
    for step in (*draw.integers(1, 30, 6).tolist(), 0):
        driver = Program("on_sequence", tmp_path, step, work=tmp_path / "logs")
        code = driver.wait()
        assert code in {0, -signal.SIGKILL}, driver.told()
        killed += code != 0
        Master.open(tmp_path / "master").verify()
    assert killed > 3
    master = Master.open(tmp_path / "master")
    assert master.version == 7
    assert multiset(rows_of(master)) == multiset(as_rows(model.rows(), "int64"))
    assert latest_rows(master, "int64", pa.array(VALUES, TYPE)) == model.latest
    master.vacuum(keep=1)
    assert not [name for name in files_below(tmp_path / "master") if name.endswith((".run", ".keys"))]


@pytest.mark.usefixtures("many_tasks")
def test_a_failed_job_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither pages of tasks nor the records they have prepared."""

    master = build(tmp_path / "m", "int64", [(1, "a")])
    before = files_below(tmp_path)

    def has_records(part: tuple[int, Rewritten]) -> None:
        assert part[1].records is not None

    monkeypatch.setattr(apply_module, "run", failing_after("/somewhere: no space; make room", has_records))
    changes = spark.sql("SELECT 'upsert' AS _op, id AS key, 'x' AS value, 5 AS at FROM range(300)")
    with pytest.raises(StorageError, match="/somewhere"):
        master.apply(changes, sequence="at")
    assert files_below(tmp_path) == before


@pytest.mark.usefixtures("many_tasks")
def test_a_sequence_works_with_new_columns(spark: SparkSession, tmp_path: Path) -> None:
    """The sequence does not become a column of the master, others do."""
    master = build(tmp_path / "m", "int64", [(1, "a")])
    select = "SELECT 'upsert' AS _op, id AS key, 'x' AS value, {} AS more, {} AS at FROM range(200)"
    newer = master.apply(spark.sql(select.format("id", 5)), sequence="at", evolve=True)
    late = newer.apply(spark.sql(select.format("-id", 4)), "a", sequence="at", evolve=True)
    assert late.schema.names == ["key", "value", "more"]
    assert late.version == 3
    assert rows_of(late)["more"].to_pylist() == list(range(200))
