"""Data sets on disk: the master as Parquet and in each store, and streams of sales in small Parquet files."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine import datasets as engine_datasets
from benchmarks.engine import workload
from workloads.zipf import Placement, Zipf

SALES_SCHEMA = pa.schema([("key", pa.int64()), ("sale", pa.int64()), ("amount", pa.float64())])
FILES_PER_BATCH = 2
CHECKED_BATCHES = 2
SCRATCH_PREFIX = "scratch-"

_FILE_ROWS = 2_500_000
_GROUP_ROWS = 500_000
_FIRST_SECOND = 1_700_000_000  # Spark takes files in the order of their modification times
_DISK_BYTES_PER_ROW = {"parquet": 130, "adjoin": 320}  # sorting a master needs its rows twice
_ENGINE_NAMES = {"adjoin": "ssij drained", "duckdb": "duckdb", "lmdb": "lmdb"}


@dataclass(frozen=True)
class Sales:
    """A stream over a master's keys."""

    master_rows: int
    batch_rows: int
    batches: int
    placement: Placement
    seed: int

    @property
    def name(self) -> str:
        sizes = f"{self.master_rows}-{self.batch_rows}-{self.batches}"
        return f"sales-{sizes}-{self.placement}-{self.seed}"

    def beginning(self) -> "Sales":
        """Its first batches, whose results are compared with the oracle's."""
        return Sales(self.master_rows, self.batch_rows, CHECKED_BATCHES, self.placement, self.seed)


def default_folder() -> Path:
    """`ADJOIN_BENCH_DATA`, or a folder in the user's cache."""
    named = os.environ.get("ADJOIN_BENCH_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else cache / "adjoin" / "bench-spark"


def master_of(data: Path, store: str, master_rows: int) -> Path:
    """The path of the master as "parquet", "adjoin", "duckdb" or "lmdb", created unless it exists."""
    data.mkdir(parents=True, exist_ok=True)
    if store in _ENGINE_NAMES:
        _check_room(data / f"{store}-{master_rows}", store, master_rows)
        path = engine_datasets.dataset_of(data, _ENGINE_NAMES[store], False, master_rows)
        return path / {"adjoin": "master", "duckdb": "indexed.db", "lmdb": ""}[store]
    path = data / f"{store}-{master_rows}"
    _check_room(path, store, master_rows)
    return engine_datasets.written_once(path, lambda: _write_master(path / "rows", master_rows)) / "rows"


def sales_of(data: Path, sales: Sales) -> Path:
    """The path of a stream's files, written unless they exist."""
    path = data / sales.name
    return engine_datasets.written_once(path, lambda: _write_sales(path / "rows", sales)) / "rows"


def _check_room(path: Path, store: str, master_rows: int) -> None:
    need = _DISK_BYTES_PER_ROW.get(store, 200) * master_rows
    free = shutil.disk_usage(path.parent).free
    if not path.exists() and free < need:
        raise SystemExit(
            f"{path} needs {need >> 20} MB of disk space, but only {free >> 20} MB are free: "
            "make room, use another folder with --data, or skip the large master with --skip growth"
        )


def _write_master(path: Path, master_rows: int) -> None:
    """Write it sorted by key, with Spark's default encodings and compression."""
    path.mkdir()
    batches = workload.master_batches(master_rows, batch_rows=_GROUP_ROWS)
    for number, first in enumerate(range(0, master_rows, _FILE_ROWS)):
        with pq.ParquetWriter(path / f"{number:04d}.parquet", workload.SCHEMA) as writer:
            for _ in range(first, min(first + _FILE_ROWS, master_rows), _GROUP_ROWS):
                writer.write_batch(next(batches))


def _write_sales(path: Path, sales: Sales) -> None:
    path.mkdir()
    for number, table in enumerate(_sales_tables(sales)):
        file = path / f"{number:06d}.parquet"
        pq.write_table(table, file)
        os.utime(file, (_FIRST_SECOND + number, _FIRST_SECOND + number))


def _sales_tables(sales: Sales) -> Iterator[pa.Table]:
    zipf = Zipf(sales.master_rows, placement=sales.placement, seed=sales.seed)
    rows = sales.batch_rows // FILES_PER_BATCH
    for number in range(sales.batches * FILES_PER_BATCH):
        sale = np.arange(number * rows, (number + 1) * rows)
        columns = [2 * zipf.draw(rows), sale, workload.price_of(sale)]
        yield pa.table([pa.array(column) for column in columns], schema=SALES_SCHEMA)
