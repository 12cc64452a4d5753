import multiprocessing
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adjoin.errors import (
    CorruptionError,
    MasterNotFoundError,
    OptionError,
    SchemaError,
    StorageError,
    VersionNotFoundError,
)
from adjoin.master import files, version_records
from adjoin.master.master import Master
from adjoin.master.vacuum import Retention, vacuum
from adjoin.master.version_records import ENDED, FORGOTTEN_AFTER_DAYS, QueryRecords
from adjoin.master.versions import Home
from tests.unit.master.tables import build_master, changes

QUERY = "0b7e3d9c-4a41-4d3c-9f0e-6f1f2a3b4c5d"


@pytest.fixture
def master(tmp_path: Path) -> Master:
    table = pa.table({"key": pa.array(range(50), pa.int64()), "value": ["x"] * 50})
    return build_master(table, "key", tmp_path / "m")


def _move_on(master: Master, versions: int = 1) -> int:
    for _ in range(versions):
        newest = Master.open(master.path)
        newer = newest.apply(changes([("upsert", 1, f"v{newest.version}")], pa.int64()))
        newest.close()
        newer.close()
    return newer.version


def _record_path(records: QueryRecords, batch: int, query: str = QUERY) -> Path:
    return Path(records.directory(query), f"{batch:020d}.json")


def _batches(records: QueryRecords, query: str = QUERY) -> list[int]:
    return sorted(int(path.stem) for path in Path(records.directory(query)).glob("*.json"))


def _age(path: str | os.PathLike[str], days: float) -> None:
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def test_a_micro_batch_keeps_its_version_and_the_next_one_takes_the_newest(master: Master) -> None:
    records = QueryRecords(master.path)
    assert records.version_for(QUERY, 0) == 1
    _move_on(master)
    assert records.version_for(QUERY, 0) == 1
    assert QueryRecords(Home(master.path)).version_for(QUERY, 0) == 1
    assert records.version_for(QUERY, 1) == 2
    assert records.version_for(str(uuid.uuid4()), 0) == 2


def test_the_last_two_records_are_kept(master: Master) -> None:
    records = QueryRecords(master.path)
    for batch in (0, 1, 5, 6):
        records.version_for(QUERY, batch)
    assert _batches(records) == [5, 6]
    assert sorted(os.listdir(records.directory(QUERY))) == [
        _record_path(records, 5).name,
        _record_path(records, 6).name,
    ]


def test_a_query_reset_by_its_checkpoint_keeps_the_later_records(master: Master) -> None:
    records = QueryRecords(master.path)
    for batch in (7, 8):
        records.version_for(QUERY, batch)
    assert _move_on(master) == 2
    assert records.version_for(QUERY, 3) == 2
    assert records.version_for(QUERY, 8) == 1
    assert _batches(records) == [3, 7, 8]


def test_a_record_is_durable_before_it_is_returned(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def change(operation: str, path: str, action: Callable[[], Any]) -> Any:
        steps.append(f"{operation} {os.path.basename(path)[-8:]}")
        return action()

    records = QueryRecords(master.path)
    monkeypatch.setattr(files, "change", change)
    records.version_for(QUERY, 0)
    assert [step.split()[0] for step in steps] == [
        *("make_dir", "create", "write", "sync", "link", "sync_dir", "sync_dir", "sync_dir", "unlink")
    ]
    steps.clear()
    records.version_for(QUERY, 1)
    assert [step.split()[0] for step in steps] == ["create", "write", "sync", "link", "sync_dir", "unlink"]
    steps.clear()
    records.version_for(QUERY, 1)
    assert steps == []


def test_reading_a_record_that_may_not_be_durable_makes_it_durable(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was killed between link and sync left the record with two names."""
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    os.link(_record_path(records, 0), Path(records.directory(QUERY), f"{'0' * 32}.tmp"))
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_dir", synced.append)
    assert records.version_for(QUERY, 0) == 1
    assert synced == [records.directory(QUERY), os.path.dirname(records.directory(QUERY)), master.path]


@pytest.mark.parametrize(
    "query", ["", "..", "../../versions", f"{QUERY}/..", f"{QUERY}\n", QUERY[:-1], f"{QUERY}\0", None, 7]
)
def test_query_ids_are_validated(query: Any, master: Master) -> None:
    records = QueryRecords(master.path)
    before = sorted(Path(master.path).rglob("*"))
    for call in (
        lambda: records.version_for(query, 0),
        lambda: records.end(query),
        lambda: records.has_ended(query),
    ):
        with pytest.raises(OptionError, match="query_id="):
            call()
    assert sorted(Path(master.path).rglob("*")) == before


@pytest.mark.parametrize("batch", [-1, 1 << 63, True, 1.0, "1", None])
def test_batch_ids_are_validated(batch: Any, master: Master) -> None:
    with pytest.raises(OptionError, match="batch_id="):
        QueryRecords(master.path).version_for(QUERY, batch)


def test_records_need_a_master(tmp_path: Path) -> None:
    with pytest.raises(MasterNotFoundError):
        QueryRecords(tmp_path / "none").version_for(QUERY, 0)
    assert not (tmp_path / "none").exists()


def test_a_change_of_any_byte_of_a_record_is_found(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    path = _record_path(records, 0)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(CorruptionError, match=f"{path}.*remove it"):
            records.version_for(QUERY, 0)
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptionError, match=f"{path}.*remove it"):
            records.version_for(QUERY, 0)
    path.unlink()
    assert records.version_for(QUERY, 0) == 1


def test_a_record_of_another_batch_is_refused(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    shutil.copy(_record_path(records, 0), _record_path(records, 1))
    with pytest.raises(CorruptionError, match=f"record of batch 0 of query {QUERY}"):
        records.version_for(QUERY, 1)


def test_a_record_of_a_newer_adjoin_is_refused(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    records = QueryRecords(master.path)
    with monkeypatch.context() as patch:
        patch.setattr(version_records, "_FORMAT", 3)
        records.version_for(QUERY, 0)
    with pytest.raises(SchemaError, match="use a newer adjoin"):
        records.version_for(QUERY, 0)


def test_something_else_in_place_of_a_record_is_named(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    _record_path(records, 1).symlink_to("nowhere")
    with pytest.raises(StorageError, match="can be neither created nor read"):
        records.version_for(QUERY, 1)
    _record_path(records, 2).mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        records.version_for(QUERY, 2)


def test_a_recorded_version_that_is_gone_is_explained(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 4)
    _move_on(master)
    os.unlink(Home(master.path).manifest_path(1))
    with pytest.raises(VersionNotFoundError) as error:
        records.version_for(QUERY, 4)
    gone = f"batch 4 of query {QUERY} was started with version 1 of {master.path}, which is gone"
    assert gone in str(error.value)
    assert f"remove {_record_path(records, 4)}" in str(error.value)
    _record_path(records, 4).unlink()
    assert records.version_for(QUERY, 4) == 2


def test_the_end_of_a_query_is_marked_until_it_continues(master: Master) -> None:
    records = QueryRecords(master.path)
    records.end(QUERY)
    assert not records.has_ended(QUERY)
    assert not os.path.exists(records.directory(QUERY))
    records.version_for(QUERY, 0)
    records.end(QUERY)
    records.end(QUERY)
    assert records.has_ended(QUERY)
    assert not records.has_ended(str(uuid.uuid4()))
    records.version_for(QUERY, 0)
    assert not records.has_ended(QUERY)


def test_a_query_without_records_can_end(master: Master) -> None:
    records = QueryRecords(master.path)
    for _ in range(2):
        assert records.begin(QUERY) == records.directory(QUERY)
        assert not records.has_ended(QUERY)
        records.end(QUERY)
        assert records.has_ended(QUERY)


def _ask(path: str, batches: int, answers: Any, together: Any) -> None:
    records = QueryRecords(path)
    for batch in range(batches):
        together.wait(60)
        with ThreadPoolExecutor(3) as pool:
            versions = set(pool.map(lambda _, number=batch: records.version_for(QUERY, number), range(6)))
        answers.put((batch, versions))


def test_many_threads_processes_and_a_writer_agree(master: Master) -> None:
    processes, batches = 4, 40
    context = multiprocessing.get_context("spawn")
    answers, together = context.Queue(), context.Barrier(processes + 1)
    askers = [
        context.Process(target=_ask, args=(master.path, batches, answers, together)) for _ in range(processes)
    ]
    for asker in askers:
        asker.start()
    master.close()
    for _ in range(batches):
        together.wait(60)
        _move_on(master)
        Master.open(master.path).vacuum(keep=1)
    found = [answers.get(timeout=60) for _ in range(processes * batches)]
    for asker in askers:
        asker.join()
        assert asker.exitcode == 0
    seen = [
        set().union(*(versions for number, versions in found if number == batch)) for batch in range(batches)
    ]
    assert [len(versions) for versions in seen] == [1] * batches
    assert len(set().union(*seen)) > batches // 4
    records = QueryRecords(master.path)
    assert sorted(os.listdir(records.directory(QUERY))) == [
        _record_path(records, batch).name for batch in (batches - 2, batches - 1)
    ]


def test_one_of_several_concurrent_tasks_decides(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tasks find no record, and pin different versions, before the first one links its record."""
    records, tasks = QueryRecords(master.path), 6
    everybody, one_at_a_time = threading.Barrier(tasks), threading.Lock()
    real_lock = Home.lock

    def lock(home: Home, version: int | None) -> tuple[int, files.Lock]:
        with one_at_a_time:
            version, pin = real_lock(home, version)
            home.commit(home.read_manifest(version).next(None, {}))
        everybody.wait(60)
        return version, pin

    monkeypatch.setattr(Home, "lock", lock)
    with ThreadPoolExecutor(tasks) as pool:
        versions = set(pool.map(lambda _: records.version_for(QUERY, 0), range(tasks)))
    assert len(versions) == 1
    assert records.pinned() == versions
    assert os.listdir(records.directory(QUERY)) == [_record_path(records, 0).name]


def test_vacuum_keeps_recorded_versions(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    _move_on(master, 2)
    records.version_for(QUERY, 1)
    _move_on(master, 2)
    master.close()
    assert records.pinned() == {1, 3}
    assert Master.open(master.path).vacuum(keep=1).versions == (2, 4)
    for version in (1, 3, 5):
        with Master.open(master.path, version) as kept:
            kept.verify()
    records.version_for(QUERY, 2)
    assert Master.open(master.path).vacuum(keep=1).versions == (1,)


def test_a_damaged_record_stops_vacuum(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    _move_on(master)
    master.close()
    _record_path(records, 0).write_bytes(b"")
    with pytest.raises(CorruptionError, match=str(_record_path(records, 0))):
        Master.open(master.path).vacuum(keep=1)
    assert Home(master.path).versions() == [1, 2]


def test_vacuum_between_choosing_and_recording_a_version(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step of deciding, a version is committed and vacuum removes all it can."""
    records = QueryRecords(master.path)
    real, inside = files.change, False
    steps = 0

    def change(operation: str, path: str, action: Callable[[], Any]) -> Any:
        nonlocal inside, steps
        if "queries" in path and not inside:
            inside = True
            steps += 1
            _move_on(master)
            Master.open(master.path).vacuum(keep=1)
            inside = False
        return real(operation, path, action)

    master.close()
    monkeypatch.setattr(files, "change", change)
    for batch in range(4):
        version = records.version_for(QUERY, batch)
        with Master.open(master.path, version) as pinned:
            pinned.verify()
        assert records.version_for(QUERY, batch) == version
    assert steps > 20


def test_vacuum_respects_a_record_made_after_it_read_the_records(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task has pinned version 1, and records it right after vacuum has read the records."""
    home, records = Home(master.path), QueryRecords(master.path)
    chosen = home.lock()
    _move_on(master)
    master.close()
    real_pinned, looks = QueryRecords.pinned, 0

    def pinned(self: QueryRecords) -> set[int]:
        nonlocal looks
        looks += type(self) is QueryRecords
        found = real_pinned(self)
        if looks == 1:
            assert records.version_for(QUERY, 0) == 1
        return found

    monkeypatch.setattr(Home, "lock", lambda home, version: chosen)
    monkeypatch.setattr(QueryRecords, "pinned", pinned)
    assert vacuum(home, Retention(1)).versions == ()
    assert looks == 1
    assert home.versions() == [1, 2]


def test_a_version_vacuumed_before_it_is_locked_is_not_chosen(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_newest, calls = Home.newest, 0

    def newest(home: Home) -> int:
        nonlocal calls
        calls += 1
        chosen = real_newest(home)
        if calls == 1:
            _move_on(master)
            assert Master.open(master.path).vacuum(keep=1).versions == (1,)
        return chosen

    master.close()
    monkeypatch.setattr(Home, "newest", newest)
    assert QueryRecords(master.path).version_for(QUERY, 0) == 2


def test_records_and_writers_do_not_block_each_other(master: Master) -> None:
    with Home(master.path).lock_writers():
        assert QueryRecords(master.path).version_for(QUERY, 0) == 1
    lock = files.lock_file(Home(master.path).lock_path, exclusive=True)
    assert lock is not None
    with lock:
        assert QueryRecords(master.path).version_for(QUERY, 1) == 1
    assert master.vacuum(keep=1).versions == ()


def test_records_of_idle_queries_are_removed(master: Master) -> None:
    records, other = QueryRecords(master.path), str(uuid.uuid4())
    for query in (QUERY, other):
        records.version_for(query, 0)
        records.end(query)
    _move_on(master)
    master.close()
    for name in os.listdir(records.directory(QUERY)):
        _age(f"{records.directory(QUERY)}/{name}", FORGOTTEN_AFTER_DAYS + 1)
    _age(_record_path(records, 0, other), FORGOTTEN_AFTER_DAYS + 1)
    _age(f"{records.directory(other)}/{ENDED}", FORGOTTEN_AFTER_DAYS - 1)
    assert Master.open(master.path).vacuum(keep=1).versions == ()
    assert not os.path.exists(records.directory(QUERY))
    assert records.has_ended(other)
    _age(f"{records.directory(other)}/{ENDED}", FORGOTTEN_AFTER_DAYS + 1)
    assert Master.open(master.path).vacuum(keep=1).versions == (1,)
    assert records.version_for(QUERY, 0) == 2


def test_repeating_a_batch_counts_as_activity(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    _age(_record_path(records, 0), FORGOTTEN_AFTER_DAYS + 1)
    assert records.version_for(QUERY, 0) == 1
    _move_on(master)
    master.close()
    assert Master.open(master.path).vacuum(keep=1).versions == ()


@pytest.mark.parametrize("first", ["vacuum", "task"])
def test_a_record_is_either_removed_or_used(
    first: str, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query resumes after weeks, at the moment when vacuum removes its records."""
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    path = _record_path(records, 0)
    _age(path, FORGOTTEN_AFTER_DAYS + 1)
    _move_on(master)
    master.close()
    name = "_touch" if first == "vacuum" else "_remove_if_older"
    real = getattr(version_records, name)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.undo()
        if first == "vacuum":
            Master.open(master.path).vacuum(keep=1)
        else:
            assert records.version_for(QUERY, 0) == 1
        return real(*arguments)

    monkeypatch.setattr(version_records, name, interrupted)
    if first == "vacuum":
        assert records.version_for(QUERY, 0) == 2
        assert Home(master.path).versions() == [2]
    else:
        Master.open(master.path).vacuum(keep=1)
        assert records.version_for(QUERY, 0) == 1
        assert Home(master.path).versions() == [1, 2]


def test_a_record_that_vacuum_is_about_to_remove_is_not_used(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query resumes when vacuum is about to remove its record: it waits, and then decides again."""
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    _age(_record_path(records, 0), FORGOTTEN_AFTER_DAYS + 1)
    _move_on(master)
    master.close()
    real_unlink, read = files.unlink, threading.Event()

    def ask() -> int:
        version = records.version_for(QUERY, 0)
        read.set()
        return version

    with ThreadPoolExecutor(1) as pool:
        asked = []

        def unlink(path: str) -> None:
            if path == str(_record_path(records, 0)):
                asked.append(pool.submit(ask))
                read.wait(0.3)
            real_unlink(path)

        monkeypatch.setattr(files, "unlink", unlink)
        Master.open(master.path).vacuum(keep=1)
        assert [answer.result(60) for answer in asked] == [2]


def test_a_removed_directory_is_created_again(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    records = QueryRecords(master.path)
    real, vanished = files.change, 0

    def change(operation: str, path: str, action: Callable[[], Any]) -> Any:
        nonlocal vanished
        if operation in {"create", "link"} and vanished < 5:
            vanished += 1
            shutil.rmtree(records.directory(QUERY))
        return real(operation, path, action)

    monkeypatch.setattr(files, "change", change)
    assert records.version_for(QUERY, 0) == 1
    assert vanished == 5


def test_leftovers_of_killed_tasks_are_removed_eventually(master: Master) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    old, young = (Path(records.directory(QUERY), f"{digit * 32}.tmp") for digit in "01")
    for path in (old, young):
        path.write_bytes(b"half")
    _age(old, 2)
    master.vacuum()
    assert not old.exists()
    assert young.exists()
    _age(young, 2)
    records.version_for(QUERY, 1)
    assert not young.exists()


def test_foreign_files_among_records_are_left_alone(master: Master) -> None:
    foreign = Path(master.path, "queries", "notes")
    foreign.mkdir(parents=True)
    (foreign / "thesis.json").write_text("years of work")
    _age(foreign / "thesis.json", 99)
    master.vacuum()
    assert QueryRecords(master.path).pinned() == set()
    assert (foreign / "thesis.json").exists()


def test_removing_a_record_during_vacuum_does_not_make_its_query_idle(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change set that was overtaken drops its record right after vacuum has listed it."""
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    real_names = version_records._names

    def names(directory: str) -> list[str]:
        found = real_names(directory)
        if found == [_record_path(records, 0).name]:
            _record_path(records, 0).unlink()
        return found

    monkeypatch.setattr(version_records, "_names", names)
    records.forget()
    assert os.path.isdir(records.directory(QUERY))
