"""Stores queried by a Python worker: DuckDB and LMDB behind `mapInArrow`.

A task's rows are sent to the store in one query, because both benefit from it. Connections stay open for the
life of the worker, which serves many tasks.
"""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import ClassVar

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.engine.contenders.contender import Setup as EngineSetup
from benchmarks.engine.contenders.lmdb_getmulti import LmdbGetmulti
from benchmarks.spark.contenders.contender import MASTER_COLUMNS, OUTPUT_TYPES, Contender, PlanRule
from benchmarks.spark.contenders.routing import ROUTED_PLAN, routed

_DUCKDB_MEMORY = "512MB"
_OUTPUT_ROWS = 10_000
_FOUND = ", ".join(f"m.{name}" for name in MASTER_COLUMNS)
_DUCKDB_QUERY = f"SELECT s.*, {_FOUND} FROM s JOIN master AS m ON m.key = s.key"


@cache
def _duckdb_connection(path: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(path, read_only=True)
    connection.execute("SET threads = 1")
    connection.execute(f"SET memory_limit = '{_DUCKDB_MEMORY}'")
    connection.execute("SET preserve_insertion_order = false")
    return connection


@cache
def _lmdb_reader(path: str) -> LmdbGetmulti:
    return LmdbGetmulti(EngineSetup(Path(path), "readahead off", memory_bytes=0))


def ask_duckdb(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    """Join all rows of a task in SQL."""
    rows = list(batches)
    if rows:
        connection = _duckdb_connection(path)
        connection.register("s", pa.Table.from_batches(rows))
        answer = connection.sql(_DUCKDB_QUERY).to_arrow_table()
        connection.unregister("s")
        yield from answer.to_batches(max_chunksize=_OUTPUT_ROWS)


def ask_lmdb(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    """Look up all keys of a task, and append the values to its rows."""
    rows = list(batches)
    if rows:
        table = pa.Table.from_batches(rows).combine_chunks()
        for found in _lmdb_reader(path).answer(table.select(["key"]).to_batches()[0]):
            for name in MASTER_COLUMNS:
                table = table.append_column(name, found[name])
        yield from table.to_batches(max_chunksize=_OUTPUT_ROWS)


class Duckdb(Contender):
    """A database file, with one single-threaded connection per worker."""

    name: ClassVar[str] = "duckdb"
    store: ClassVar[str] = "duckdb"
    settings: ClassVar[str] = (
        f"database file with a primary key, sorted by it, read-only; one connection per worker, one thread, "
        f"`memory_limit` {_DUCKDB_MEMORY}; one query per task"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=("MapInArrow",), lacks=("Exchange", "Join"))

    def join(self, stream: DataFrame) -> DataFrame:
        """Query DuckDB."""
        return stream.mapInArrow(partial(ask_duckdb, path=str(self.setup.master)), OUTPUT_TYPES)


class RoutedDuckdb(Duckdb):
    """After the routing, so that a worker asks for neighboring keys."""

    name: ClassVar[str] = "duckdb routed"
    settings: ClassVar[str] = "`duckdb` after the routing of `enrich`"
    plan: ClassVar[PlanRule] = PlanRule(has=ROUTED_PLAN, lacks=("Join",))

    def join(self, stream: DataFrame) -> DataFrame:
        """Route, then query."""
        return super().join(routed(stream, self.setup.partitions))


class Lmdb(Contender):
    """A memory-mapped B+tree, with rows packed as fixed-width values."""

    name: ClassVar[str] = "lmdb"
    store: ClassVar[str] = "lmdb"
    settings: ClassVar[str] = (
        "read-only, no lock, integer keys, fixed-width values, readahead off; unique sorted keys of the "
        "whole task to `getmulti`, one array back; the system's page cache holds the whole file"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=("MapInArrow",), lacks=("Exchange", "Join"))

    def join(self, stream: DataFrame) -> DataFrame:
        """Query LMDB."""
        return stream.mapInArrow(partial(ask_lmdb, path=str(self.setup.master)), OUTPUT_TYPES)
