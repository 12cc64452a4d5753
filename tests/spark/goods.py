"""Products for a master, sales for a stream; programs of the tests use them too, without the oracle."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from adjoin import Master

_FIRST_WRITTEN = 1_700_000_000


def products(rows: int, step: int = 2, note: str = "v1") -> pa.Table:
    keys = np.arange(rows) * step
    return pa.table({"id": keys, "name": [f"product {key:06d}" for key in keys], "note": [note] * rows})


def sales(rows: int, keys: int, seed: int = 1) -> pa.Table:
    """Skewed keys, some of them absent, some null."""
    random = np.random.default_rng(seed)
    chosen = (random.random(rows) ** 3 * keys).astype(np.int64)
    return pa.table(
        {
            "id": pa.array(chosen, mask=random.random(rows) < 0.05),
            "sale": np.arange(rows) + seed * 1_000_000,
            "amount": random.random(rows),
        }
    )


def build(table: pa.Table, path: Path, key: Any = "id", **options: Any) -> Master:
    return Master.build(table, key=key, path=path, page_bytes=4096, **options)


def write_batches(tables: list[pa.Table], directory: Path) -> None:
    """Write one file per micro-batch."""
    directory.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        path = directory / f"{number:05d}.parquet"
        pq.write_table(table, path)
        # Spark takes files in the order of their modification times, which could be equal.
        os.utime(path, (_FIRST_WRITTEN + number, _FIRST_WRITTEN + number))


def read_batches(spark: SparkSession, directory: Path) -> DataFrame:
    """A stream with one file in every micro-batch, in the order of their names."""
    schema = spark.read.parquet(str(directory)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))
