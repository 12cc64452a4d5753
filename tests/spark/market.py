"""The data of the soak test: an endless stream, a master that keeps changing, and its history."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

KEYS = 60_000
ROWS_PER_BATCH = 1_000
MEMORY_BYTES = 6 << 20
ABSENT = -1


def keys_of(sales: np.ndarray) -> np.ndarray:
    """Skewed keys: small ones are sold more often."""
    spread = sales * 7_919 % KEYS
    return spread * spread // KEYS


def stream(spark: SparkSession) -> DataFrame:
    """Sales 0, 1, 2, ... with the key that `keys_of` says, a fixed number of them in each micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    numbered = source.option("numPartitions", 2).load().selectExpr("value AS sale")
    spread = numbered.selectExpr("sale", f"sale * 7919 % {KEYS} AS spread")
    return spread.selectExpr("sale", f"spread * spread div {KEYS} AS id")


def rows(keys: np.ndarray, version: int) -> pa.Table:
    """Rows of the master; the note names their version."""
    names = [f"{key:06d} " + "x" * 150 for key in keys]
    return pa.table({"id": keys, "name": names, "note": np.full(len(keys), version)})


def first_notes() -> np.ndarray:
    """Version 1: every other key."""
    return np.where(np.arange(KEYS) % 2 == 0, 1, ABSENT)


def changes(version: int, random: np.random.Generator) -> pa.Table:
    """The changes of some keys, hot ones among them, in this version."""
    keys = np.unique(keys_of(random.integers(0, KEYS, 60)))
    operations = np.where(random.random(len(keys)) < 0.7, "upsert", "delete")
    return rows(keys, version).append_column("_op", pa.array(operations))


class History:
    """The changes of each version, in files; versions must be requested in order."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._version, self._notes = 1, first_notes()

    def keep(self, version: int, changed: pa.Table) -> None:
        pq.write_table(changed.select(["id", "_op"]), self._directory / "aside")
        (self._directory / "aside").rename(self._path(version))

    def knows(self, version: int) -> bool:
        return version == self._version or self._path(version).exists()

    def notes_at(self, version: int) -> np.ndarray:
        """The note of each key, or ABSENT."""
        assert version >= self._version, f"version {version} after {self._version}"
        while self._version < version:
            self._version += 1
            changed = pq.read_table(self._path(self._version))
            is_there = np.array(changed["_op"].to_pylist()) == "upsert"
            self._notes[changed["id"].to_numpy()] = np.where(is_there, self._version, ABSENT)
            self._path(self._version).unlink()
        return self._notes

    def _path(self, version: int) -> Path:
        return self._directory / f"{version}.parquet"
