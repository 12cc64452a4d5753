import errno
import fcntl
import os
import pickle
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adjoin.errors import ArenaError, OptionError
from adjoin.spark import operator_home
from adjoin.spark.page_memory import files, sweeper
from adjoin.spark.page_memory.files import PageFiles
from tests.unit.spark.hosts import Executor, until


@pytest.fixture(autouse=True)
def no_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_home, "_start_sweeper", lambda home: None)


@pytest.fixture
def page_files(directory: Path) -> PageFiles:
    return PageFiles("op", 1 << 20, str(directory))


class WouldWaitError(Exception):
    pass


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise WouldWaitError

    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=sleep))


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as a task waits."""
    event = threading.Event()

    def sleep(seconds: float) -> None:
        event.set()
        time.sleep(seconds)

    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=sleep))
    return event


def _is_locked(path: str) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_page_file_is_private_and_locked_and_survives_its_task(page_files: PageFiles, home: Path) -> None:
    with page_files.acquire(3, 4) as path:
        assert path == str(home / "op" / "3.arena")
        assert os.path.getsize(path) == 0
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert _is_locked(path)
        Path(path).write_bytes(b"warm")
    assert not _is_locked(path)
    with page_files.acquire(3, 4) as again:
        assert Path(again).read_bytes() == b"warm"
    with page_files.acquire(2, 4) as other:
        assert other != path


def test_page_files_can_be_pickled(page_files: PageFiles) -> None:
    assert pickle.loads(pickle.dumps(page_files)) == page_files


@pytest.mark.parametrize("operator", ["", "..", "a/b", "-x", "a\n", "a" * 201, "a\0"])
def test_an_operator_name_cannot_point_elsewhere(operator: str) -> None:
    with pytest.raises(OptionError, match="operator="):
        PageFiles(operator, 1)


def test_sizes_and_slots_are_positive(page_files: PageFiles) -> None:
    with pytest.raises(OptionError, match="share_bytes=0"):
        PageFiles("op", 0)
    with pytest.raises(OptionError, match="slots=0"), page_files.acquire(0, 0):
        pass


def test_more_partitions_than_slots_take_turns(page_files: PageFiles, impatient: None) -> None:
    with page_files.acquire(5, 4) as path:
        assert path.endswith("/1.arena")
        with pytest.raises(WouldWaitError), page_files.acquire(1, 4):
            pass


def test_a_second_task_waits_for_the_first(page_files: PageFiles, polled: threading.Event) -> None:
    order: list[str] = []

    def second() -> None:
        with page_files.acquire(0, 1):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with page_files.acquire(0, 1):
            waiting = pool.submit(second)
            assert polled.wait(60)
            order.append("first")
        waiting.result(60)
    assert order == ["first", "second"]


def test_the_page_file_of_a_killed_worker_is_taken_over(
    start_executor: Callable[..., Executor], page_files: PageFiles, directory: Path, polled: threading.Event
) -> None:
    executor = start_executor(worker_ends=False)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: page_files.acquire(0, 1).__enter__())
        assert polled.wait(60)
        assert not waiting.done()
        executor.kill_worker()
        assert waiting.result(60).endswith("/op/0.arena")
    executor.kill()


def test_without_routing_the_most_recently_used_file_comes_first(
    page_files: PageFiles, impatient: None
) -> None:
    with (
        page_files.acquire(None, 3) as first,
        page_files.acquire(None, 3) as second,
        page_files.acquire(None, 3) as third,
    ):
        assert len({first, second, third}) == 3
        with pytest.raises(WouldWaitError), page_files.acquire(None, 3):
            pass
    for age, path in enumerate((second, third, first)):
        os.utime(f"{path}.holder", (1e9 - age, 1e9 - age))
    with page_files.acquire(None, 3) as path, page_files.acquire(None, 3) as next_path:
        assert (path, next_path) == (second, third)


def test_there_are_never_more_files_than_slots(page_files: PageFiles, home: Path) -> None:
    held: list[str] = []

    def work(_: int) -> int:
        with page_files.acquire(None, 3) as path:
            held.append(path)
            count, unique = len(held), len(set(held))
            held.remove(path)
            assert count == unique <= 3
            return len(list((home / "op").glob("*.arena")))

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(work, range(400))) <= 3


def test_a_batch_query_leaves_nothing_behind(page_files: PageFiles, home: Path) -> None:
    with page_files.acquire(0, 2, keep=False) as first:
        with page_files.acquire(1, 2, keep=False) as second:
            assert os.path.exists(second)
        assert not os.path.exists(second)
        assert os.path.exists(first)
    assert os.listdir(home) == []


def test_concurrent_batch_tasks_leave_nothing_behind(page_files: PageFiles, home: Path) -> None:
    def work(number: int) -> None:
        with page_files.acquire(number, 2, keep=False) as path:
            assert os.path.getsize(path) == 0
            Path(path).write_bytes(b"dirty")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert os.listdir(home) == []


@pytest.mark.parametrize("keep", [True, False])
def test_an_error_of_the_task_is_raised_as_it_is(keep: bool, page_files: PageFiles) -> None:
    with pytest.raises(FileNotFoundError, match="mine"), page_files.acquire(0, 1, keep=keep) as path:
        raise FileNotFoundError("mine")
    assert os.path.exists(path) == keep
    with page_files.acquire(0, 1, keep=keep):
        pass


def test_page_files_are_in_shared_memory_if_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    size = os.statvfs(shared)
    all_of_it = size.f_frsize * size.f_blocks
    monkeypatch.setattr(files, "_SHARED_MEMORY", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    # These belong to one executor: two on one host would use twice the memory.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    for share_bytes, root in ((all_of_it // 2, shared), (all_of_it // 2 + 1, temporary)):
        with PageFiles("op", share_bytes).acquire(0, 2, keep=False) as path:
            assert path.startswith(f"{root}/")
    shutil.rmtree(shared)
    with PageFiles("op", 1).acquire(0, 2, keep=False) as path:
        assert path.startswith(f"{temporary}/")


def test_a_link_in_place_of_the_home_is_refused(page_files: PageFiles, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    home.symlink_to(target)
    with (
        pytest.raises(ArenaError, match=r"private to user.*spark\.adjoin\.arena\.dir"),
        page_files.acquire(0, 1),
    ):
        pass
    assert list(target.iterdir()) == []


def test_a_home_that_others_can_enter_is_refused(page_files: PageFiles, home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(ArenaError, match=f"{home} is not a directory"), page_files.acquire(0, 1):
        pass
    assert list(home.iterdir()) == []


def test_the_home_of_another_user_is_refused(
    page_files: PageFiles, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    home.mkdir(mode=0o700)
    home.rename(home.with_name(f"adjoin-{user + 1}"))
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ArenaError, match=f"private to user {user + 1}: remove it"), page_files.acquire(0, 1):
        pass


@pytest.mark.parametrize("name", ["op", "op/0.arena"])
def test_links_inside_are_not_followed(name: str, page_files: PageFiles, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    if name == "op":
        target.mkdir()
    else:
        target.write_text("precious")
    (home / name).parent.mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    (home / name).symlink_to(target)
    with pytest.raises(ArenaError), page_files.acquire(0, 1):
        pass
    assert list(target.iterdir()) == [] if name == "op" else target.read_text() == "precious"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "No space left on device; make room there"),
        (errno.EROFS, "Read-only file system; make it writable"),
        (errno.EACCES, "Permission denied; make it writable"),
    ],
)
def test_a_refusal_names_the_directory_and_the_cure(
    number: int, message: str, page_files: PageFiles, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any, *_: Any) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        with (
            pytest.raises(ArenaError, match=f"{directory}.*{message}.*spark.adjoin.arena.dir"),
            page_files.acquire(0, 1),
        ):
            pass
    with page_files.acquire(0, 1):
        pass


def test_a_file_in_place_of_the_directory_is_named(directory: Path) -> None:
    (directory / "file").write_text("in the way")
    with (
        pytest.raises(ArenaError, match=str(directory / "file")),
        PageFiles("op", 1, str(directory / "file")).acquire(0, 1),
    ):
        pass


def test_no_descriptor_leaks(page_files: PageFiles, impatient: None) -> None:
    with page_files.acquire(0, 1):
        pass
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with page_files.acquire(0, 1), pytest.raises(WouldWaitError):
            page_files.acquire(0, 1).__enter__()
        with page_files.acquire(None, 2, keep=False):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_operator_removed_before_it_is_locked_is_created_again(
    page_files: PageFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is removed before it is opened, together with the home, and after it is opened."""
    real, calls = operator_home._lock_directory, 0

    def lock(path: str) -> int | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            shutil.rmtree(path)
        if calls == 2:
            shutil.rmtree(os.path.dirname(path))
        return real(path)

    def is_at(path: str, descriptor: int) -> bool:
        nonlocal calls
        if calls == 3:
            shutil.rmtree(path)
            calls += 1
        return real_is_at(path, descriptor)

    real_is_at = sweeper.is_at
    monkeypatch.setattr(operator_home, "_lock_directory", lock)
    monkeypatch.setattr(sweeper, "is_at", is_at)
    with page_files.acquire(0, 1) as path:
        assert _is_locked(path)
    assert calls == 5


def test_a_page_file_removed_before_it_is_locked_is_created_again(
    page_files: PageFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = sweeper.is_at, 0

    def is_at(path: str, descriptor: int) -> bool:
        nonlocal removed
        if path.endswith(".arena") and removed < 2:
            removed += 1
            os.unlink(path)
        return real(path, descriptor)

    monkeypatch.setattr(sweeper, "is_at", is_at)
    with page_files.acquire(0, 1) as path:
        assert _is_locked(path)
    assert removed == 2


def test_tasks_and_sweepers_do_not_harm_each_other(
    page_files: PageFiles, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sweepers that consider everything unneeded."""
    monkeypatch.setattr(sweeper, "is_unneeded", lambda path, descriptor: True)
    done = threading.Event()

    def sweep() -> int:
        count = 0
        while not done.is_set():
            count += not (home / "op").exists()
            sweeper.sweep(str(home))
        return count

    def work(number: int) -> None:
        for _ in range(100):
            with page_files.acquire(number if number % 2 else None, 4) as path:
                Path(path).write_bytes(b"x")
                assert _is_locked(path)

    with ThreadPoolExecutor(6) as pool:
        sweepers = [pool.submit(sweep) for _ in range(2)]
        for worker in [pool.submit(work, number) for number in range(4)]:
            worker.result(120)
        done.set()
        assert all(sweeper.result(60) for sweeper in sweepers)


def test_a_new_operator_sweeps_up_after_others(
    start_executor: Callable[..., Executor], directory: Path, home: Path, page_files: PageFiles
) -> None:
    executor = start_executor()
    executor.kill()
    until(lambda: not home.exists())
    with page_files.acquire(0, 1):
        pass
    dead = home / "dead" / sweeper.OWNERS
    dead.mkdir(parents=True)
    (dead / sweeper.owner_name(executor.pid)).touch()
    with page_files.acquire(0, 1):
        assert dead.exists()
    with PageFiles("new", 1, str(directory)).acquire(0, 1):
        assert sorted(os.listdir(home)) == ["new", "op"]


def test_shared_memory_of_this_host() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("this machine has no shared memory")
    operator = f"test-{os.getpid()}-{time.monotonic_ns()}"
    with PageFiles(operator, 1).acquire(0, 1, keep=False) as path:
        assert path == f"/dev/shm/adjoin-{os.geteuid()}/{operator}/0.arena"
    assert not os.path.exists(os.path.dirname(path))
    with suppress(OSError):  # another query has page files there, or a sweeper was faster
        os.rmdir(os.path.dirname(os.path.dirname(path)))


def test_a_file_whose_holder_cannot_be_recorded_is_unlocked(
    page_files: PageFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, name: str, attempt: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(files, "_write_holder", refuse)
        with pytest.raises(ArenaError, match="make room there"), page_files.acquire(0, 1):
            pass
    with page_files.acquire(0, 1) as path:
        assert _is_locked(path)


def test_two_joins_of_one_attempt_have_a_page_file_each(page_files: PageFiles, impatient: None) -> None:
    with page_files.acquire(0, 1, attempt=5) as first, page_files.acquire(0, 1, attempt=5) as second:
        assert first != second
        with pytest.raises(WouldWaitError), page_files.acquire(0, 1, attempt=6):
            pass
