"""Spark Connect: the same rows and the same metrics as on classic Spark."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.spark import programs
from tests.spark.on_connect import ROWS
from tests.spark.programs import read_json
from tests.spark.shop import build, products, rows_of, sales, wanted, write_batches


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One client runs all scenarios."""
    work = tmp_path_factory.mktemp("connect")
    batches = [sales(1_500, 2 * ROWS, seed) for seed in (1, 2, 3)]
    build(products(ROWS), work / "master").close()
    write_batches(batches, work / "in")
    programs.run("on_connect", work, work=work / "logs")
    return SimpleNamespace(work=work, batches=batches, report=read_json(work / "report.json"))


def test_a_batch_gives_the_rows_of_the_oracle(spark, done):
    everything = pa.concat_tables(done.batches)
    assert _rows(spark, done.work / "batch") == wanted(everything, products(ROWS), how="left")


def test_a_stream_gives_the_rows_of_the_oracle(spark, done):
    everything = pa.concat_tables(done.batches)
    assert _rows(spark, done.work / "stream") == wanted(everything, products(ROWS))


def test_metrics_arrive_by_listener_and_by_progress(done):
    shown, heard = done.report["shown"], done.report["heard"]
    assert len(shown) == 2 * len(done.batches)
    assert sorted(shown, key=_order) == sorted(heard, key=_order)
    assert Counter(one["name"] for one in shown) == {"first": 3, "second": 3}
    for one in shown:
        assert (one["query_id"], one["master_version"]) == (done.report["query"], 1)
        if one["name"] == "first":
            batch = done.batches[one["batch_id"]]
            assert one["rows_in"] == len(batch) == sum(task["rows_in"] for task in one["tasks"])
            assert one["rows_out"] == sum(wanted(batch, products(ROWS)).values())


def test_enrich_works_inside_foreach_batch(spark, done):
    for number, batch in enumerate(done.batches):
        found = _rows(spark, done.work / "foreach" / f"{number:05d}")
        assert found == wanted(batch, products(ROWS), how="anti")


def test_a_master_is_built_and_changed_from_connect(spark, done):
    everything = pa.concat_tables(done.batches)
    rows = {row["id"]: row for row in products(ROWS).to_pylist()}
    rows |= {row["id"]: row for row in products(ROWS // 2, step=4, note="new").to_pylist()}
    changed = pa.Table.from_pylist(list(rows.values()))
    assert _rows(spark, done.work / "applied") == wanted(everything, changed)


def test_errors_are_those_of_adjoin(done):
    assert "'id'" in done.report["refusal"]


def test_the_reason_of_a_failure_reaches_the_client(done):
    reasons = done.report["reasons"]
    assert len(reasons) == 3
    assert done.report["failed"]
    for name, message in reasons:
        assert name == "ArenaError"
        assert str(done.work / "file") in message
        assert message.endswith("set spark.adjoin.arena.dir to another directory"), message


def test_two_joins_with_one_name_are_rejected(done):
    assert "name='price' is already used by another join" in done.report["twice"]


def _order(progress: dict) -> tuple[int, str]:
    return progress["batch_id"], progress["name"]


def _rows(spark, directory: Path):
    return rows_of(spark.read.parquet(str(directory)))
