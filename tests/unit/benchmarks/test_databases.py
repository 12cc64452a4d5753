"""Real servers where they are, each with a tiny join."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.databases import install, programs, workload
from benchmarks.databases.catalogue import SYSTEMS
from benchmarks.databases.database import MASTER_SCHEMA, Database, PlanError, RowsDifferError
from benchmarks.databases.oracle import Oracle
from benchmarks.databases.programs import Programs, UnavailableError
from benchmarks.databases.server import DatabaseError, Server

BUFFER_BYTES = 16 << 20
MASTER = [
    (-5, "minus"),
    (1, "a,b"),
    (1, 'say "x"'),
    (1, ""),
    (2, "back\\slash"),
    (3, "über"),
    (1 << 40, "far"),
]
STREAM = np.array([1, 7, 2, 1, -5, 0, 1 << 40, 3, 9], np.int64)


def batches(rows: list[tuple[int, str]]) -> list[pa.RecordBatch]:
    """One small and one large batch."""
    keys, payloads = zip(*rows, strict=True)
    table = pa.table([keys, payloads], schema=MASTER_SCHEMA)
    return [table.slice(0, 2).to_batches()[0], table.slice(2).to_batches()[0]]


def joined(rows: list[tuple[int, str]], stream: np.ndarray) -> tuple[int, int]:
    found = [text.encode() for key in stream.tolist() for other, text in rows if other == key]
    return len(found), sum(text[0] for text in found if text)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can enter, as those of pytest are closed."""
    with tempfile.TemporaryDirectory(prefix="adjoin-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(params=SYSTEMS, ids=lambda system: system.name)
def database(request: pytest.FixtureRequest, folder: Path) -> Iterator[Database]:
    try:
        started = request.param().start(folder, BUFFER_BYTES)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with started:
        yield started


def test_a_join_counts_what_the_oracle_counts(database: Database) -> None:
    database.load(batches(MASTER))
    rows, seconds = database.join(STREAM)
    assert rows == joined(MASTER, STREAM)[0]
    assert seconds > 0
    assert database.version[0].isdigit()
    assert database.join(STREAM[:3]).rows == joined(MASTER, STREAM[:3])[0]


def test_a_changed_payload_and_another_plan_are_found(database: Database) -> None:
    database.load(workload.master_batches(5_000, seed=1))
    keys = workload.stream_keys(50, 5_000, seed=1)
    assert database.join(keys).rows >= 50 * (5_000 % workload.ROWS_PER_KEY)
    changed = f"UPDATE master SET payload = 'A' WHERE master.key = {keys[0]}"
    database._run(changed)
    with pytest.raises(RowsDifferError, match="expected"):
        database.join(keys)
    other = {"postgresql": "DROP INDEX master_key", "mariadb": "SET GLOBAL join_cache_level = 0"}
    database._run(other[database.name])
    with pytest.raises(PlanError):
        database.join(keys)


def test_no_query_is_answered_after_the_server_has_stopped(database: Database) -> None:
    assert database._answers()
    database.stop()
    assert not database._answers()
    database.stop()


@pytest.mark.parametrize("piece_rows", [1, 3, 7])
def test_the_oracle_agrees_with_nested_loops(piece_rows: int) -> None:
    table = pa.table(dict(zip(("key", "payload"), zip(*MASTER, strict=True), strict=True)))
    oracle = Oracle()
    assert oracle.expected(STREAM) == (0, 0)
    for piece in table.to_batches()[0].slice(0, 0), *table.to_batches(max_chunksize=piece_rows):
        oracle.add(piece)
    for stream in STREAM, STREAM[:0], STREAM[1:2]:
        assert oracle.expected(stream) == joined(MASTER, stream)


def test_a_master_row_has_128_bytes_and_a_key_320_rows() -> None:
    table = pa.Table.from_batches(workload.master_batches(1_000, seed=1, batch_rows=300))
    counts = np.unique(table["key"].to_numpy(), return_counts=True)[1]
    assert counts.tolist() == [320, 320, 320, 40]
    assert {8 + len(text) for text in table["payload"].to_pylist()} == {workload.ROW_BYTES}
    assert set(workload.stream_keys(1_000, 1_000, seed=1).tolist()) == {0, 1, 2, 3}


def script(root: Path, text: str) -> Programs:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "server").write_text(f"#!/bin/sh\n{text}\n")
    (root / "bin" / "server").chmod(0o755)
    return Programs(root)


def test_a_server_that_exits_at_once_is_an_error_with_its_last_output(folder: Path) -> None:
    server = Server(script(folder / "programs", "echo no room; exit 3"), folder / "server")
    with pytest.raises(DatabaseError, match="no room"):
        server.prepare("server")
    with pytest.raises(DatabaseError, match="did not start:\nno room\nno room"):
        server.start("server", ready=lambda: False)


def test_a_server_is_ended_by_its_process_id(folder: Path) -> None:
    server = Server(script(folder / "programs", "echo $$ > pid; exec sleep 600"), folder / "server")
    pid = folder / "server" / "pid"
    server.start("server", ready=lambda: pid.exists() and pid.read_text().endswith("\n"))
    os.kill(number := int(pid.read_text()), 0)
    server.stop(signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")
def test_servers_of_root_run_as_nobody_with_copied_programs(folder: Path, tmp_path: Path) -> None:
    closed = script(tmp_path / "system" / "usr", "id -un")
    server = Server(Programs(closed.root, tmp_path / "system"), folder / "server")
    server.prepare("server")
    assert (folder / "server" / "log").read_text() == "nobody\n"
    with pytest.raises(UnavailableError, match="has no access to"):
        Server(server.programs, tmp_path / "data")
    with pytest.raises(UnavailableError, match="has no access to"):
        Server(closed, folder / "other")


def test_a_system_that_is_not_installed_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(programs, "INSTALLED", tmp_path)
    monkeypatch.setattr(programs, "_SYSTEM_FOLDERS", ())
    monkeypatch.setattr(programs, "_DEBIAN_POSTGRESQL", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for system in SYSTEMS:
        with pytest.raises(UnavailableError, match="make databases"):
            system.find()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError("no apt-get here"), "no apt-get here"),
        (subprocess.CalledProcessError(100, ["apt-get"], stderr="one\ntwo"), "apt-get ended with 100: two"),
    ],
)
def test_a_failed_installation_is_skipped_with_a_reason(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install, "INSTALLED", tmp_path)

    def find() -> Programs:
        raise UnavailableError("not there")

    def fail(_: Path) -> None:
        raise error

    assert install.ensure("mariadb", find, fail) == f"mariadb skipped: {reason}"
    assert list(tmp_path.iterdir()) == []
