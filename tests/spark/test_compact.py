"""Pages of large masters are moved by executors."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from adjoin import Master, StorageError
from adjoin.etl import apply_changes
from adjoin.master.page_moves import same_pages
from adjoin.spark import jobs, page_moves
from tests.unit.master.disk_use import named_and_present
from tests.unit.master.tables import build_master, changes, multiset, rows_of


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes executors move pages however few there are; records the number of tasks."""
    counts: list[int] = []

    def counted(df: Any, work: Any) -> list[Any]:
        found = jobs.run(df, work)
        counts.append(len(found))
        return found

    monkeypatch.setattr(page_moves, "MUCH_BYTES", 1)
    monkeypatch.setattr(page_moves, "_TASK_BYTES", 64 << 10)
    monkeypatch.setattr(page_moves, "run", counted)
    return counts


def _scattered(path: Path) -> Master:
    table = pa.table({"key": pa.array(range(3000), pa.int64()), "value": ["x" * 100] * 3000})
    master = build_master(table, "key", path, page_bytes=4096)
    for commit in range(4):
        upserts = [("upsert", key, f"{commit} " + "y" * 90) for key in range(commit, 3000, 83)]
        master = master.apply(changes(upserts, pa.int64()), keep=None)
    return master


def test_executors_move_pages(spark: SparkSession, always: list[int], tmp_path: Path) -> None:
    master = _scattered(tmp_path / "m")
    rows = multiset(rows_of(master))
    compacted = master.compact()
    assert always[0] > 2
    assert len(compacted.files) == always[0]
    assert same_pages(master.index, compacted.index)
    assert multiset(rows_of(compacted)) == rows
    compacted.verify()
    named, present = named_and_present(compacted)
    assert named == present


def test_copies_by_executors_are_removed_if_the_job_fails(
    spark: SparkSession, always: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = _scattered(tmp_path / "m")
    monkeypatch.setattr(page_moves, "run", lambda df, work: jobs.run(df, work)[1:])
    with pytest.raises(StorageError, match="Spark lost results"):
        master.compact()
    named, present = named_and_present(master)
    assert named == present
    assert master.versions()[-1] == master.version


def test_a_change_stream_keeps_its_master_small(
    spark: SparkSession, always: list[int], tmp_path: Path
) -> None:
    """Ten micro-batches leave three versions in few files."""
    table = pa.table({"key": pa.array(range(500), pa.int64()), "value": ["x" * 100] * 500})
    build_master(table, "key", tmp_path / "m", page_bytes=4096).close()
    body = apply_changes(tmp_path / "m", "prices", keep=3)
    for batch in range(10):
        upserts = changes([("upsert", key, f"{batch}") for key in (batch, 250 + batch)], pa.int64())
        body(spark.createDataFrame(upserts), batch)
    with Master.open(tmp_path / "m") as newest:
        assert newest.versions() == [9, 10, 11]
        assert len(newest.files) < 8
        newest.verify()
        named, present = named_and_present(newest)
        assert named == present
