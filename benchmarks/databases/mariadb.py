"""MariaDB: a table stored in its B-tree, looked up with batches of sorted keys."""

import signal
from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from benchmarks.databases.database import Answer, Database, PlanError
from benchmarks.databases.programs import Programs, find_mariadb
from benchmarks.databases.server import Server

_DATABASE = "adjoin"
_OPTIONS = (
    "--innodb-page-size=8k",
    "--loose-innodb-flush-method=O_DIRECT_NO_FSYNC",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-stats-persistent=0",
    "--innodb-stats-transient-sample-pages=100",
    "--innodb-log-file-size=512M",
    "--innodb-buffer-pool-load-at-startup=0",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--max-heap-table-size=4G",
    "--join-cache-level=6",
    "--optimizer-switch=mrr=on,mrr_sort_keys=on",
    "--max-connections=5",
    "--performance-schema=0",
    "--skip-networking",
    "--skip-grant-tables",
    "--skip-log-bin",
    "--local-infile=1",
)


class MariaDB(Database):
    """MariaDB with InnoDB, which bypasses the operating system's cache.

    The server has no system tables: they hold accounts and persistent statistics, and writing them would take
    longer than everything else. A folder in its data directory is a database.
    """

    name: ClassVar[str] = "mariadb"
    settings: ClassVar[str] = (
        "InnoDB with 8 KB pages, the table clustered by key; stream in a MEMORY table; `STRAIGHT_JOIN` and "
        "`FORCE INDEX`; batched key access: keys are looked up sorted, in a join buffer of a quarter of the "
        "buffer, on top of it; `O_DIRECT` "
        "without `fsync`, log not flushed at commit, no doublewrite; the buffer is the buffer pool"
    )
    _query: ClassVar[str] = (
        "SELECT count(*), coalesce(sum(ascii(m.payload)), 0) "
        "FROM stream s STRAIGHT_JOIN master m FORCE INDEX (PRIMARY) ON m.`key` = s.`key`"
    )
    _explain: ClassVar[str] = "EXPLAIN "
    _clock: ClassVar[str] = "SELECT unix_timestamp(sysdate(6))"
    _version: ClassVar[str] = "SELECT version()"
    _stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    @staticmethod
    def find() -> Programs:
        """MariaDB of the machine or of `make databases`."""
        return find_mariadb()

    def _launch(self, server: Server, buffer_bytes: int) -> None:
        self._socket = server.directory / "socket"
        data = server.folder("data")
        server.folder(f"data/{_DATABASE}")
        server.start(
            "mariadbd",
            "--no-defaults",
            *_OPTIONS,
            f"--basedir={server.programs.root}",
            f"--datadir={data}",
            f"--socket={self._socket}",
            f"--innodb-buffer-pool-size={buffer_bytes}",
            f"--join-buffer-size={buffer_bytes // 4}",
            f"--join-buffer-space-limit={buffer_bytes // 4}",
            ready=self._answers,
        )

    def _load_master(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._run(
            "CREATE TABLE master (`key` BIGINT NOT NULL, payload VARBINARY(1000) NOT NULL, "
            "number BIGINT NOT NULL, PRIMARY KEY (`key`, number)) ENGINE=InnoDB"
        )
        self._run(_load_lines("master"), feed=_numbered(batches))
        self._run("ANALYZE TABLE master")

    def _load_stream(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._run("DROP TABLE IF EXISTS stream", "CREATE TABLE stream (`key` BIGINT NOT NULL) ENGINE=MEMORY")
        self._run(_load_lines("stream"), feed=batches)

    def _check_plan(self, plan: Answer) -> None:
        steps = [(table, how, index) for _, _, table, how, _, index, *_ in plan]
        if steps != [("s", "ALL", "NULL"), ("m", "ref", "PRIMARY")] or "BKA join" not in plan[1][-1]:
            raise PlanError(f"not an index join of stream and master: {plan}")

    def _client(self, statements: tuple[str, ...]) -> list[str]:
        return self._programs.command(
            "mariadb",
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--local-infile=1",
            f"--socket={self._socket}",
            f"--database={_DATABASE}",
            f"--execute={'; '.join(statements)}",
        )


def _load_lines(table: str) -> str:
    return (
        f"LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE {table} "
        "FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' ESCAPED BY ''"
    )


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with a number each, because a primary key must be unique."""
    seen_rows = 0
    for batch in batches:
        numbers = np.arange(seen_rows, seen_rows + batch.num_rows)
        seen_rows += batch.num_rows
        yield batch.append_column("number", pa.array(numbers))
