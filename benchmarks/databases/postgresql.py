"""PostgreSQL: a clustered heap with a B-tree, joined by a nested loop over index scans."""

import json
import signal
from collections.abc import Iterable
from typing import ClassVar

import pyarrow as pa

from benchmarks.databases.database import Answer, Database, PlanError
from benchmarks.databases.programs import Programs, find_postgresql
from benchmarks.databases.server import Server

_PAGE_BYTES = 8192
_OPTIONS = {
    "listen_addresses": "",
    "max_connections": "5",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "256MB",
    "autovacuum": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_memoize": "off",
    "enable_material": "off",
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",  # of the master: the stream has no index, so it is scanned all the same
}


class PostgreSQL(Database):
    """PostgreSQL in one process; it reads through the operating system's cache, which helps it."""

    name: ClassVar[str] = "postgresql"
    settings: ClassVar[str] = (
        "heap of 8 KB pages clustered by key, B-tree on the key; stream in an unlogged table; hash and merge "
        "join, memoize, materialize, bitmap scans, parallel workers and JIT off; `fsync` off; the buffer is "
        "`shared_buffers`, in addition to the operating system's cache"
    )
    _query: ClassVar[str] = (
        "SELECT count(*), coalesce(sum(ascii(m.payload)), 0) FROM stream s JOIN master m ON m.key = s.key"
    )
    _explain: ClassVar[str] = "EXPLAIN (FORMAT JSON, COSTS OFF) "
    _clock: ClassVar[str] = "SELECT extract(epoch FROM clock_timestamp())"
    _version: ClassVar[str] = "SHOW server_version"
    _stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    @staticmethod
    def find() -> Programs:
        """PostgreSQL of the machine or of `make databases`."""
        return find_postgresql()

    def _launch(self, server: Server, buffer_bytes: int) -> None:
        self._socket = server.directory
        data = str(server.directory / "data")
        server.prepare(
            "initdb", "-D", data, "-U", "adjoin", "-A", "trust", "-E", "SQL_ASCII", "--locale=C", "--no-sync"
        )
        options = {
            **_OPTIONS,
            "unix_socket_directories": str(self._socket),
            "shared_buffers": str(buffer_bytes // _PAGE_BYTES),
        }
        given = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        server.start("postgres", "-D", data, *given, ready=self._answers)

    def _load_master(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._run("CREATE TABLE master (key bigint NOT NULL, payload text NOT NULL)")
        self._run("COPY master FROM STDIN (FORMAT csv)", feed=batches)
        self._run("CREATE INDEX master_key ON master (key)")
        self._run("CLUSTER master USING master_key", "VACUUM ANALYZE master", "CHECKPOINT")

    def _load_stream(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._run("DROP TABLE IF EXISTS stream", "CREATE UNLOGGED TABLE stream (key bigint NOT NULL)")
        self._run("COPY stream FROM STDIN (FORMAT csv)", feed=batches)
        self._run("VACUUM ANALYZE stream")

    def _check_plan(self, plan: Answer) -> None:
        text = "\n".join("\t".join(line) for line in plan)
        join = json.loads(text)[0]["Plan"]["Plans"][0]
        outer, inner = [*join.get("Plans", []), {}, {}][:2]
        if (
            join["Node Type"] != "Nested Loop"
            or (outer.get("Node Type"), outer.get("Relation Name")) != ("Seq Scan", "stream")
            or (inner.get("Node Type"), inner.get("Index Name")) != ("Index Scan", "master_key")
        ):
            raise PlanError(f"not an index join of stream and master:\n{text}")

    def _client(self, statements: tuple[str, ...]) -> list[str]:
        words = [word for statement in statements for word in ("-c", statement)]
        return self._programs.command(
            "psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1",
            "-h", str(self._socket), "-U", "adjoin", "-d", "postgres", *words,
        )  # fmt: skip
