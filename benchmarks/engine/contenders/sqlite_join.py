"""SQLite: a table clustered by its integer primary key."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from benchmarks.engine import workload
from benchmarks.engine.contenders.contender import Answers, Setup, Store

_LIST_KEYS = 30_000
_COLUMNS = "m.key, m.surrogate, m.price, m.text"


class SqliteJoin(Store):
    """The batch is passed as a temporary table or as lists of keys; rows are returned as tuples."""

    name: ClassVar[str] = "sqlite"
    dataset: ClassVar[str] = "sqlite"
    settings: ClassVar[str] = (
        "integer primary key; `temporary table`: the sorted batch is inserted and joined, `key lists`: "
        f"unique sorted keys in lists of {_LIST_KEYS:,}, rows repeated afterwards; with the "
        "file memory-mapped, or with SQLite's own page cache"
    )
    variants: ClassVar[tuple[str, ...]] = (
        "temporary table, cache 200 MB",
        "temporary table, mapped",
        "key lists, cache 200 MB",
        "key lists, mapped",
    )

    def __init__(self, setup: Setup) -> None:
        self._connection = sqlite3.connect(setup.path / "master.db", isolation_level=None)
        run = self._connection.execute
        run("PRAGMA temp_store = MEMORY")
        if setup.variant.endswith("mapped"):
            run("PRAGMA mmap_size = 17179869184")
        else:
            run("PRAGMA mmap_size = 0")
            cache_kib = int(setup.variant.split()[-2]) * 1024
            run(f"PRAGMA cache_size = -{cache_kib}")
        self._answer = self._by_table if setup.variant.startswith("temporary table") else self._by_lists
        run("CREATE TEMP TABLE batch (key INTEGER)")

    @classmethod
    def build(cls, path: Path, master_rows: int) -> None:
        """Insert the rows in key order."""
        connection = sqlite3.connect(path / "master.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            "CREATE TABLE master (key INTEGER PRIMARY KEY, surrogate INTEGER, price REAL, text TEXT)"
        )
        connection.execute("BEGIN")
        for batch in workload.master_batches(master_rows):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            connection.executemany("INSERT INTO master VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.execute("ANALYZE")
        connection.close()

    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Query SQLite and convert its tuples to Arrow columns."""
        return self._answer(batch["key"].to_numpy())

    def _by_table(self, keys: np.ndarray) -> Answers:
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO batch VALUES (?)", zip(np.sort(keys).tolist(), strict=True))
        query = f"SELECT {_COLUMNS} FROM batch AS b CROSS JOIN master AS m ON m.key = b.key"
        answers = list(_in_slices(self._connection.execute(query)))
        self._connection.execute("DELETE FROM batch")
        self._connection.execute("COMMIT")
        return answers

    def _by_lists(self, keys: np.ndarray) -> Answers:
        unique, row_of = np.unique(keys, return_inverse=True)
        found: list[pa.RecordBatch] = []
        for start in range(0, len(unique), _LIST_KEYS):
            part = unique[start : start + _LIST_KEYS].tolist()
            marks = ",".join("?" * len(part))
            query = f"SELECT {_COLUMNS} FROM master AS m WHERE m.key IN ({marks}) ORDER BY m.key"
            found += _in_slices(self._connection.execute(query, part))
        table = pa.Table.from_batches(found).combine_chunks()
        if table.num_rows != len(unique):
            raise AssertionError("this contender runs only on keys that exist")
        return [table.take(pa.array(row_of))]

    def close(self) -> None:
        self._connection.close()


def _in_slices(cursor: sqlite3.Cursor) -> Iterator[pa.RecordBatch]:
    """Tuples are large: only a limited number is alive at a time."""
    while rows := cursor.fetchmany(_LIST_KEYS):
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), workload.SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=workload.SCHEMA)
