import datetime
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adjoin.errors import ConflictError, CorruptionError, OptionError, VersionNotFoundError
from adjoin.master.apply import ApplyOptions, Base, apply
from adjoin.master.master import Master
from adjoin.master.vacuum import Vacuumed
from adjoin.master.versions import Home
from tests.unit.master.tables import build_master, changes, files_below, rows_of


def _versions(path: Path, count: int) -> Master:
    table = pa.table({"key": pa.array(range(500), pa.int64()), "value": ["x" * 30] * 500})
    master = build_master(table, "key", path, page_bytes=4096, filter_bits=8)
    for version in range(2, count + 1):
        newer = master.apply(changes([("upsert", version, f"v{version}")], pa.int64()), keep=None)
        master.close()
        master = newer
    return master


def _named(path: Path) -> set[str]:
    home = Home(path)
    return set().union(*(home.read_manifest(version).file_names() for version in home.versions()))


def _present(path: Path) -> set[str]:
    return {os.path.basename(name) for part in ("data", "index", "tmp") for name in files_below(path / part)}


def test_the_newest_versions_stay_and_are_intact(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 6)
    gone = master.vacuum(keep=2)
    assert gone.versions == (1, 2, 3, 4)
    assert gone.files > 4
    assert gone.bytes > 0
    assert master.versions() == [5, 6]
    assert _present(tmp_path / "m") == _named(tmp_path / "m")
    for version in (5, 6):
        master.at(version).verify()
    with pytest.raises(VersionNotFoundError, match="from 5 to 6"):
        master.at(3)
    assert master.vacuum(keep=2).files == 0


def test_by_default_ten_versions_stay(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 12)
    assert master.vacuum().versions == (1, 2)


def test_an_open_version_stays(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 4)
    old = master.at(2)
    assert master.vacuum(keep=1).versions == (1,)
    old.verify()
    assert rows_of(old)["value"].to_pylist()[2] == "v2"
    old.close()
    assert master.vacuum(keep=1).versions == (2, 3)
    assert master.versions() == [4]


def test_a_master_that_is_garbage_collected_no_longer_pins_its_version(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 2)
    old = master.at(1)
    del old
    assert master.vacuum(keep=1).versions == (1,)


def _hold(path: str, ready: Any, leave: Any) -> None:
    with Master.open(path, version=1) as master:
        ready.set()
        leave.wait(60)
        master.verify()


def test_a_version_open_in_another_process_stays_until_that_process_ends(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 4)
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(master.path, ready, leave))
    child.start()
    assert ready.wait(60)
    assert master.vacuum(keep=1).versions == (3,)
    leave.set()
    child.join()
    assert child.exitcode == 0
    assert master.vacuum(keep=1).versions == (1, 2)


def test_a_killed_reader_pins_nothing(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 2)
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    child = context.Process(target=_hold, args=(master.path, ready, leave))
    child.start()
    assert ready.wait(60)
    child.kill()
    child.join()
    assert master.vacuum(keep=1).versions == (1,)


def test_files_that_no_version_names_are_removed(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 1)
    for part in ("data", "index", "tmp"):
        (tmp_path / "m" / part / f"{'0' * 32}.run").write_bytes(b"12345")
    gone = master.vacuum()
    assert (gone.files, gone.bytes) == (3, 15)
    assert _present(tmp_path / "m") == _named(tmp_path / "m")


def test_vacuum_keeps_the_new_files_of_a_running_writer(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 3)
    new = tmp_path / "m" / "data" / f"{'0' * 32}.arrow"
    new.write_bytes(b"being written")
    with Home(master.path).lock_writers():
        gone = master.vacuum(keep=1)
        assert gone.versions == (1, 2)
        assert gone.files > 2
        assert _present(tmp_path / "m") == _named(tmp_path / "m") | {new.name}
    master.verify()
    assert master.vacuum(keep=1) == Vacuumed((), 1, len(b"being written"))
    assert not new.exists()


def test_young_versions_stay(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 5)
    assert master.vacuum(keep=1, keep_for=datetime.timedelta(hours=1)).versions == ()
    assert master.vacuum(keep=1, keep_for="1 hour").versions == ()
    assert master.vacuum(keep=2, keep_for="0 seconds").versions == (1, 2, 3)


@pytest.mark.parametrize("keep_for", [-1, 3600, "soon", True, datetime.timedelta(-1)])
def test_invalid_ages_are_refused(keep_for: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="keep_for="):
        _versions(tmp_path / "m", 1).vacuum(keep_for=keep_for)


def test_the_version_after_an_open_one_stays(tmp_path: Path) -> None:
    """Its number must stay taken: a writer may be based on the open version."""
    master = _versions(tmp_path / "m", 4)
    old = master.at(1)
    assert master.vacuum(keep=1).versions == (3,)
    assert master.versions() == [1, 2, 4]
    old.close()
    assert master.vacuum(keep=1).versions == (1, 2)


def test_the_newest_version_cannot_be_removed(tmp_path: Path) -> None:
    master = _versions(tmp_path / "m", 2)
    with pytest.raises(OptionError, match="keep=0"):
        master.vacuum(keep=0)


def test_a_writer_based_on_an_old_version_gets_a_conflict(tmp_path: Path) -> None:
    """Version 3 of 4 is removed while a writer is based on version 1: it must not commit version 2 again."""
    first = _versions(tmp_path / "m", 1)
    base, home, options = first.index, Home(first.path), ApplyOptions()
    newest = Master.open(first.path)
    for version in (2, 3, 4):
        newest = newest.apply(changes([("upsert", version, "new")], pa.int64()))
    assert newest.vacuum(keep=1).versions == (3,)
    with pytest.raises(ConflictError):
        first.apply(changes([("upsert", 1, "stale")], pa.int64()))
    stale = Base(home.read_manifest(1), base, first.filter)
    with pytest.raises(ConflictError):
        apply(home, stale, changes([("upsert", 1, "stale")], pa.int64()), options)


def test_foreign_files_are_never_touched(tmp_path: Path) -> None:
    """A build removes what a crashed one has left, even in a directory with other data."""
    for part in ("data", "index", "tmp"):
        (tmp_path / part / "deep").mkdir(parents=True)
        (tmp_path / part / "thesis.arrow").write_text("years of work")
    (tmp_path / "data" / f"{'0' * 32}.arrow").write_bytes(b"left by a crash")
    master = _versions(tmp_path, 3)
    master.vacuum(keep=1)
    assert sorted(path.name for path in tmp_path.rglob("thesis.arrow")) == ["thesis.arrow"] * 3
    assert not (tmp_path / "data" / f"{'0' * 32}.arrow").exists()


@pytest.mark.parametrize("keep", [1, 10])
def test_nothing_is_removed_if_a_version_lacks_files(keep: int, tmp_path: Path) -> None:
    """A manifest copied from another master names none of the existing files."""
    master = _versions(tmp_path / "m", 2)
    _versions(tmp_path / "other", 2)
    newest = tmp_path / "m" / "versions" / f"{2:020d}.json"
    mine = newest.read_bytes()
    newest.write_bytes((tmp_path / "other" / "versions" / newest.name).read_bytes())
    master.close()
    with pytest.raises(CorruptionError, match="which is missing"):
        Master.open(tmp_path / "m").vacuum(keep)
    newest.write_bytes(mine)
    for version in (1, 2):
        Master.open(tmp_path / "m", version).verify()


@pytest.mark.parametrize("rows", [0, 100])
def test_a_copy_without_empty_directories_and_lock_files_can_be_changed(rows: int, tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(range(rows), pa.int64()), "value": pa.array(["x"] * rows, pa.string())})
    Master.build(table, "key", tmp_path / "m").close()
    for part in ("data", "tmp"):
        if not os.listdir(tmp_path / "m" / part):
            (tmp_path / "m" / part).rmdir()
    (tmp_path / "m" / "writers.lock").unlink()
    assert Master.open(tmp_path / "m").vacuum().files == 0
    newer = Master.open(tmp_path / "m").apply(changes([("insert", 1, "new")], pa.int64()))
    newer.verify()
    assert newer.rows == rows + 1
    assert newer.vacuum(keep=1).versions == (1,)
