"""Query records in a directory of their own: `enrich(..., records=PATH)`."""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adjoin.errors import CorruptionError, StorageError
from adjoin.master import files
from adjoin.master.master import Master
from adjoin.master.version_records import FORGOTTEN_AFTER_DAYS, QueryRecords, places, register
from adjoin.master.versions import Home
from tests.unit.master.tables import build_master, changes

QUERY = "0b7e3d9c-4a41-4d3c-9f0e-6f1f2a3b4c5d"


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return _build(tmp_path / "m")


def _build(path: Path) -> Master:
    table = pa.table({"key": pa.array(range(50), pa.int64()), "value": ["x"] * 50})
    return build_master(table, "key", path)


def _move_on(master: Master, versions: int = 1) -> None:
    for _ in range(versions):
        with Master.open(master.path) as newest:
            newest.apply(changes([("upsert", 1, f"v{newest.version}")], pa.int64())).close()


def _refuse_below(path: str, code: int) -> Callable[..., Any]:
    """A replacement for `files.change` that refuses changes below the path."""
    change = files.change

    def refuse() -> None:
        raise OSError(code, os.strerror(code))

    def guarded(operation: str, changed: str, action: Callable[[], Any]) -> Any:
        is_below = os.path.commonpath([path, os.path.abspath(changed)]) == path
        return change(operation, changed, refuse if is_below else action)

    return guarded


NOT_WRITABLE = [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT]


@pytest.mark.parametrize("code", NOT_WRITABLE)
def test_a_read_only_master_is_read_with_records_elsewhere(
    code: int, master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files, "change", _refuse_below(master.path, code))
        records = QueryRecords(master.path, tmp_path / "records" / "deep")
        assert records.version_for(QUERY, 0) == 1
        records.end(QUERY)
        assert records.has_ended(QUERY)
    _move_on(master)
    with monkeypatch.context() as patch:
        patch.setattr(files, "change", _refuse_below(master.path, code))
        assert records.version_for(QUERY, 0) == 1
        assert records.version_for(QUERY, 1) == 2
        assert not records.has_ended(QUERY)
    assert not (tmp_path / "m" / "queries").exists()


@pytest.mark.parametrize("code", NOT_WRITABLE)
def test_without_records_elsewhere_the_error_suggests_the_option(
    code: int, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "change", _refuse_below(master.path, code))
    with pytest.raises(StorageError, match=r"records=PATH"):
        QueryRecords(master.path).version_for(QUERY, 0)
    with pytest.raises(StorageError, match=r"records=PATH"):
        QueryRecords(master.path).begin(QUERY)


def test_one_directory_serves_many_masters(master: Master, tmp_path: Path) -> None:
    other = _build(tmp_path / "other")
    _move_on(other)
    assert QueryRecords(master.path, tmp_path / "records").version_for(QUERY, 0) == 1
    assert QueryRecords(other.path, tmp_path / "records").version_for(QUERY, 0) == 2


def test_another_master_at_the_same_path_has_records_of_its_own(master: Master, tmp_path: Path) -> None:
    _move_on(master)
    assert QueryRecords(master.path, tmp_path / "records").version_for(QUERY, 0) == 2
    shutil.rmtree(master.path)
    assert QueryRecords(_build(tmp_path / "m").path, tmp_path / "records").version_for(QUERY, 0) == 1


@pytest.mark.parametrize(("before", "after"), [(None, "a"), ("a", None), ("a", "b")])
def test_a_query_with_new_records_repeats_its_batch_on_the_same_version(
    before: str | None, after: str | None, master: Master, tmp_path: Path
) -> None:
    def place(name: str | None) -> Path | None:
        return None if name is None else tmp_path / name

    assert QueryRecords(master.path, place(before)).version_for(QUERY, 7) == 1
    _move_on(master)
    records = QueryRecords(master.path, place(after))
    assert records.version_for(QUERY, 7) == 1
    assert records.version_for(QUERY, 8) == 2
    assert records.find(QUERY, 7) == 1


def test_vacuum_keeps_versions_recorded_in_registered_directories(master: Master, tmp_path: Path) -> None:
    records = QueryRecords(master.path, tmp_path / "records")
    assert records.version_for(QUERY, 0) == 1
    assert places(Home(master.path)) == [str(tmp_path / "records")]
    _move_on(master, 3)
    master.close()
    assert Master.open(master.path).vacuum(keep=1).versions == (2, 3)
    assert records.version_for(QUERY, 0) == 1
    assert [records.version_for(QUERY, batch) for batch in (1, 2)] == [4, 4]
    assert Master.open(master.path).vacuum(keep=1).versions == (1,)


def test_vacuum_registers_the_directory_of_a_reader_that_could_not(
    master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = QueryRecords(master.path, tmp_path / "records")
    with monkeypatch.context() as patch:
        patch.setattr(files, "change", _refuse_below(master.path, errno.EROFS))
        assert records.version_for(QUERY, 0) == 1
    assert places(Home(master.path)) == []
    _move_on(master, 2)
    master.close()
    newest = Master.open(master.path)
    assert newest.vacuum(keep=1, records=[tmp_path / "records"]).versions == (2,)
    assert newest.vacuum(keep=1).versions == ()


def test_nothing_is_removed_while_a_registered_directory_is_missing(master: Master, tmp_path: Path) -> None:
    QueryRecords(master.path, tmp_path / "records").version_for(QUERY, 0)
    _move_on(master, 2)
    master.close()
    (tmp_path / "records").rename(tmp_path / "unmounted")
    newest = Master.open(master.path)
    with pytest.raises(StorageError, match="mount or restore it") as raised:
        newest.vacuum(keep=1)
    assert newest.versions() == [1, 2, 3]
    entry = str(raised.value).rpartition("remove ")[2]
    long_ago = time.time() - (FORGOTTEN_AFTER_DAYS + 1) * 86_400
    os.utime(entry, (long_ago, long_ago))
    assert newest.vacuum(keep=1).versions == (1, 2)


def test_a_damaged_entry_is_named(master: Master, tmp_path: Path) -> None:
    register(Home(master.path), tmp_path / "records")
    (entry,) = (tmp_path / "m" / "places").iterdir()
    entry.write_bytes(b"nonsense")
    with pytest.raises(CorruptionError, match=entry.name):
        master.vacuum()


def test_old_records_are_removed_elsewhere_too(master: Master, tmp_path: Path) -> None:
    records = QueryRecords(master.path, tmp_path / "records")
    records.version_for(QUERY, 0)
    records.version_for(str(uuid.uuid4()), 0)
    _move_on(master)
    master.close()
    long_ago = time.time() - (FORGOTTEN_AFTER_DAYS + 1) * 86_400
    for path in Path(records.directory(QUERY)).iterdir():
        os.utime(path, (long_ago, long_ago))
    newest = Master.open(master.path)
    assert newest.vacuum(keep=1).versions == ()
    assert not os.path.exists(records.directory(QUERY))


def test_registering_again_only_renews_the_entry(master: Master, tmp_path: Path) -> None:
    home = Home(master.path)
    register(home, tmp_path / "records")
    (entry,) = (tmp_path / "m" / "places").iterdir()
    written = entry.read_bytes()
    yesterday = time.time() - 2 * 86_400
    os.utime(entry, (yesterday, yesterday))
    register(home, tmp_path / "records")
    assert entry.read_bytes() == written
    assert entry.stat().st_mtime > yesterday + 86_400
    assert os.listdir(tmp_path / "m" / "tmp") == []
