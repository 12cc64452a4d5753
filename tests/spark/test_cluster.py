"""A real cluster of two workers: rows, distributed builds, and the loss of an executor."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.spark.cluster import Cluster
from tests.spark.on_cluster import COLD_AT, FAULTS, LOST_AT, ROWS
from tests.spark.programs import Program, read_json, until
from tests.spark.shop import build, products, rows_of, sales, wanted, write_batches

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def done(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One driver runs all scenarios: starting it and two executors takes longer than they do."""
    work = tmp_path_factory.mktemp("driver")
    batches = [sales(2_000, 2 * ROWS, seed) for seed in (1, 2, 3)]
    build(products(ROWS), work / "master").close()
    write_batches(batches, work / "in")
    write_batches([batches[0]] * (len(FAULTS) + 1), work / "same")
    driver = Program("on_cluster", work, cluster.url, work=work / "logs")
    assert driver.wait() == -signal.SIGKILL, driver.told()
    return SimpleNamespace(work=work, batches=batches, report=read_json(work / "report.json"))


def test_a_batch_gives_the_rows_of_the_oracle(spark, done):
    everything = pa.concat_tables(done.batches)
    assert _rows(spark, done.work / "batch") == wanted(everything, products(ROWS), how="left")


def test_a_stream_is_joined_on_both_executors(spark, done):
    for number, batch in enumerate(done.batches):
        assert _rows(spark, done.work / "stream" / f"{number:05d}") == wanted(batch, products(ROWS))
    assert [len(tasks) for tasks in done.report["stream"]] == [2, 2, 2]
    assert all(rows_in > 0 for tasks in done.report["stream"] for rows_in, _ in tasks)
    assert len(done.report["tasks"]) == 2
    assert min(done.report["tasks"].values()) >= len(done.batches)


def test_a_master_is_built_and_changed_on_the_cluster(spark, done):
    everything = pa.concat_tables(done.batches)
    table = products(ROWS)
    keys = range(0, 3 * (ROWS // 2), 3)
    rows = {row["id"]: row for row in table.to_pylist() if row["id"] not in keys[1::2]}
    rows |= {key: {"id": key, "name": f"product {key:06d}", "note": "new"} for key in keys[::2]}
    changed = pa.Table.from_pylist(list(rows.values()), table.schema)
    assert _rows(spark, done.work / "applied") == wanted(everything, changed, how="left")
    assert _rows(spark, done.work / "first") == wanted(everything, table)


def test_dying_workers_and_failing_tasks_lose_no_rows(spark, done):
    assert done.report["faulty faults"] == len(FAULTS)
    for number in range(len(FAULTS) + 1):
        found = _rows(spark, done.work / "faulty" / f"{number:05d}")
        assert found == wanted(done.batches[0], products(ROWS)), number
    first, cold, last = ([pages for _, pages in done.report["faulty"][at]] for at in (0, COLD_AT, -1))
    # One of two workers died while writing to its page file, which starts cold and is warm again afterwards.
    assert sorted(now > before / 2 for now, before in zip(cold, first, strict=True)) == [False, True]
    assert sum(last) < sum(first) / 4


def test_an_executor_is_lost_in_the_middle_of_a_micro_batch(spark, done):
    assert done.report["lost faults"] == 1
    for number, batch in enumerate(done.batches):
        assert _rows(spark, done.work / "lost" / f"{number:05d}") == wanted(batch, products(ROWS))
    assert sum(rows_in for rows_in, _ in done.report["lost"][LOST_AT]) == len(done.batches[LOST_AT])


def test_page_files_go_with_the_executors(done):
    """The driver was killed while a query ran, so no listener reported its end."""
    assert done.report["page_files"] >= 2
    until(lambda: not list((done.work / "pages").iterdir()), what="an empty directory")


def _rows(spark, directory: Path):
    return rows_of(spark.read.parquet(str(directory)))
