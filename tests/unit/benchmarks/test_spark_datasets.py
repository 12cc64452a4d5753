from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.engine import workload
from benchmarks.spark import datasets
from benchmarks.spark.datasets import Sales, master_of, sales_of


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)


def test_the_master_is_the_one_of_the_workload_in_key_order(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_FILE_ROWS", 400)
    monkeypatch.setattr(datasets, "_GROUP_ROWS", 100)
    folder = master_of(tmp_path, "parquet", 950)
    assert [pq.read_metadata(file).num_rows for file in files(folder)] == [400, 400, 150]
    rows = pa.concat_tables([pq.read_table(file) for file in files(folder)])
    assert rows.equals(pa.Table.from_batches(workload.master_batches(950)))


def test_a_micro_batch_is_two_files_ordered_by_time(tmp_path):
    tables = [pq.read_table(file) for file in files(sales_of(tmp_path, Sales(500, 100, 3, "random", 1)))]
    assert [table.num_rows for table in tables] == [50] * 6
    sales = pa.concat_tables(tables)
    assert (sales["sale"].to_numpy() == np.arange(300)).all()
    assert workload.exists(sales["key"].to_numpy()).all()
    assert sales["key"].to_numpy().max() < 1_000


def test_the_checked_rows_are_the_beginning_of_the_stream(tmp_path):
    sales = Sales(500, 100, 5, "random", 1)
    whole = pq.read_table(sales_of(tmp_path, sales))
    beginning = pq.read_table(sales_of(tmp_path, sales.beginning()))
    assert beginning.num_rows == 100 * datasets.CHECKED_BATCHES
    assert beginning.equals(whole.slice(0, beginning.num_rows))


def test_hot_keys_are_neighbors_without_a_permutation(tmp_path):
    def share_of_first_keys(placement):
        keys = pq.read_table(sales_of(tmp_path, Sales(10_000, 2_000, 2, placement, 1)))["key"].to_numpy()
        return (keys < 20).mean()

    assert share_of_first_keys("noperm") > 0.25
    assert share_of_first_keys("random") < 0.25


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path):
    with pytest.raises(SystemExit, match="--skip growth"):
        master_of(tmp_path, "adjoin", 10**13)
    assert list(tmp_path.iterdir()) == []
