"""DuckDB: the batch as an Arrow table, joined in SQL with a table in a database file."""

from pathlib import Path
from typing import ClassVar

import duckdb
import pyarrow as pa

from benchmarks.engine import workload
from benchmarks.engine.contenders.contender import Answers, Setup, Store

_MEMORY_LIMIT = "256MB"
_COLUMNS = "m.key, m.surrogate, m.price, m.text"


class DuckdbJoin(Store):
    """Tables sorted by key, so that DuckDB can skip what the batch does not need."""

    name: ClassVar[str] = "duckdb"
    dataset: ClassVar[str] = "duckdb"
    settings: ClassVar[str] = (
        f"`memory_limit` {_MEMORY_LIMIT}, table sorted by key, insertion order not preserved, Arrow in "
        "and out; 1 and 2 threads; with and without a primary key index"
    )
    variants: ClassVar[tuple[str, ...]] = (
        "plain, 2 threads",
        "plain, 1 thread",
        "indexed, 2 threads",
        "indexed, 1 thread",
    )

    def __init__(self, setup: Setup) -> None:
        table, threads = setup.variant.split(", ")
        self._connection = duckdb.connect(str(setup.path / f"{table}.db"), read_only=True)
        self._connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        self._connection.execute(f"SET threads = {threads.split()[0]}")
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.execute(f"SET temp_directory = '{setup.path / 'spill'}'")

    @classmethod
    def build(cls, path: Path, master_rows: int) -> None:
        """One database with a plain table, one with a primary key."""
        for table, key in (("plain", "BIGINT"), ("indexed", "BIGINT PRIMARY KEY")):
            with duckdb.connect(str(path / f"{table}.db")) as connection:
                connection.execute("SET memory_limit = '4GB'")
                connection.execute(
                    f"CREATE TABLE master (key {key}, surrogate BIGINT, price DOUBLE, text VARCHAR)"
                )
                source = pa.RecordBatchReader.from_batches(
                    workload.SCHEMA, workload.master_batches(master_rows)
                )
                connection.register("source", source)
                connection.execute("INSERT INTO master SELECT * FROM source")
                connection.unregister("source")
                connection.execute("CHECKPOINT")

    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Register, join, fetch."""
        self._connection.register("batch", pa.Table.from_batches([batch]))
        result = self._connection.execute(
            f"SELECT {_COLUMNS} FROM batch AS b JOIN master AS m ON m.key = b.key"
        )
        answer = result.to_arrow_table()
        self._connection.unregister("batch")
        return [answer]

    def close(self) -> None:
        self._connection.close()
