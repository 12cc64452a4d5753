"""The interface of a database system: start, load, join, stop."""

import contextlib
import io
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.databases.oracle import Oracle
from benchmarks.databases.programs import Programs
from benchmarks.databases.server import DatabaseError, Server

Array: TypeAlias = np.ndarray[Any, Any]
Answer: TypeAlias = list[list[str]]

MASTER_SCHEMA = pa.schema([pa.field("key", pa.int64()), pa.field("payload", pa.string())])
_LINES = csv.WriteOptions(include_header=False)
_STREAM_ROWS = 100_000


class PlanError(DatabaseError):
    """The planner chose a plan other than the index join to be measured."""


class RowsDifferError(DatabaseError):
    """A join returned rows that differ from the oracle's."""


class Joined(NamedTuple):
    """The rows of a join, and how long the statement took by the server's clock."""

    rows: int
    seconds: float


class Database(ABC):
    """A private database server, whose join with a disk-resident master is measured.

    How it works:
        The master is a table in key order with a B-tree on the key. A stream is first loaded into a table in
        memory, unmeasured. The plan must be an index nested loop with the stream as the outer side,
        or the join is rejected. The join counts its rows and sums their checksums in the server, so that it
        runs completely and sends nothing; both numbers must equal the oracle's.

    Example::

        with PostgreSQL().start(Path("/var/tmp/somewhere"), buffer_bytes=1 << 30) as database:
            database.load(batches)
            rows, seconds = database.join(keys)

    Cost: Pages that the load left in the buffer pool are still there when the join begins. The operating
    system's cache cannot be emptied from here, and helps every system that reads through it.

    Reference: the SSIJ paper, "Comparison with Index Nested Loops", figure 9.
    """

    name: ClassVar[str]
    settings: ClassVar[str]
    _query: ClassVar[str]
    _explain: ClassVar[str]
    _clock: ClassVar[str]
    _version: ClassVar[str]
    _stop_signal: ClassVar[signal.Signals]

    def __init__(self) -> None:
        self._programs = self.find()
        self._server: Server | None = None
        self._oracle = Oracle()
        self.version = ""

    @staticmethod
    @abstractmethod
    def find() -> Programs:
        """The system's programs; raises `UnavailableError` if there are none."""

    def start(self, directory: Path, buffer_bytes: int) -> Self:
        """Create a database in a new folder of this directory, with a buffer pool of this size."""
        self._server = Server(self._programs, directory.resolve() / self.name)
        self._programs = self._server.programs
        try:
            self._launch(self._server, buffer_bytes)
            self.version = self._run(self._version)[0][0].split()[0].split("-")[0]
        except BaseException:
            self.stop()
            raise
        return self

    def load(self, master: Iterable[pa.RecordBatch]) -> None:
        """Fill the master table with the columns of `MASTER_SCHEMA`; key order is fastest."""

        def noted() -> Iterator[pa.RecordBatch]:
            for batch in master:
                rows = batch.select(MASTER_SCHEMA.names).cast(MASTER_SCHEMA)
                if any(column.null_count for column in rows.columns):
                    raise ValueError("the master has nulls; every row needs a key and a payload")
                self._oracle.add(rows)
                yield rows

        self._load_master(noted())

    def join(self, keys: Array) -> Joined:
        """Join a stream of keys with the master; only the join itself is timed."""
        self._load_stream(_stream(keys))
        self._check_plan(self._run(self._explain + self._query))
        (started,), (rows, checksum), (ended,) = self._run(self._clock, self._query, self._clock)
        found, expected = (int(rows), int(checksum)), self._oracle.expected(keys)
        if found != expected:
            raise RowsDifferError(f"{self.name}: rows and checksum {found}, expected {expected}")
        return Joined(found[0], float(ended) - float(started))

    def stop(self) -> None:
        """Stop the server; its folder remains."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(self._stop_signal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _launch(self, server: Server, buffer_bytes: int) -> None: ...

    @abstractmethod
    def _load_master(self, batches: Iterable[pa.RecordBatch]) -> None: ...

    @abstractmethod
    def _load_stream(self, batches: Iterable[pa.RecordBatch]) -> None: ...

    @abstractmethod
    def _check_plan(self, plan: Answer) -> None:
        """Raise `PlanError` unless the plan is the index join."""

    @abstractmethod
    def _client(self, statements: tuple[str, ...]) -> list[str]:
        """The command that runs statements and prints rows with tab-separated columns."""

    def _answers(self) -> bool:
        with contextlib.suppress(DatabaseError):
            return self._run("SELECT 1") == [["1"]]
        return False

    def _run(self, *statements: str, feed: Iterable[pa.RecordBatch] = ()) -> Answer:
        """Run statements in one session; one of them may read `feed` as lines of CSV."""
        with subprocess.Popen(
            self._client(statements),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._programs.environment(),
        ) as client:
            assert client.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                for batch in feed:
                    client.stdin.write(_as_csv(batch))
                client.stdin.flush()
            answer, complaint = client.communicate()
        if client.returncode != 0:
            raise DatabaseError(f"{self.name}: {complaint.decode(errors='replace').strip()}")
        return [line.split("\t") for line in answer.decode().splitlines()]


def _stream(keys: Array) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _STREAM_ROWS):
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys[start : start + _STREAM_ROWS], pa.int64())})


def _as_csv(batch: pa.RecordBatch) -> bytes:
    lines = io.BytesIO()
    csv.write_csv(batch, lines, _LINES)
    return lines.getvalue()
