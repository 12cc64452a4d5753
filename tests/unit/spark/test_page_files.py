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
from adjoin.spark.page_memory import files as page_files
from adjoin.spark.page_memory import sweeper
from adjoin.spark.page_memory.files import Arenas
from tests.unit.spark.hosts import Executor, until


@pytest.fixture(autouse=True)
def no_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "_start_sweeper", lambda home: None)


@pytest.fixture
def arenas(directory: Path) -> Arenas:
    return Arenas("op", 1 << 20, str(directory))


class WouldWaitError(Exception):
    pass


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise WouldWaitError

    monkeypatch.setattr(page_files, "time", SimpleNamespace(sleep=sleep))


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as somebody waits."""
    event = threading.Event()

    def sleep(seconds: float) -> None:
        event.set()
        time.sleep(seconds)

    monkeypatch.setattr(page_files, "time", SimpleNamespace(sleep=sleep))
    return event


def _is_locked(path: str) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_an_arena_is_private_locked_and_stays(arenas: Arenas, home: Path) -> None:
    with arenas.acquire(3, 4) as path:
        assert path == str(home / "op" / "3.arena")
        assert os.path.getsize(path) == 0
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert _is_locked(path)
        Path(path).write_bytes(b"warm")
    assert not _is_locked(path)
    with arenas.acquire(3, 4) as again:
        assert Path(again).read_bytes() == b"warm"
    with arenas.acquire(2, 4) as other:
        assert other != path


def test_what_travels_to_tasks_is_plain_data(arenas: Arenas) -> None:
    assert pickle.loads(pickle.dumps(arenas)) == arenas


@pytest.mark.parametrize("operator", ["", "..", "a/b", "-x", "a\n", "a" * 201, "a\0"])
def test_operators_name_no_other_path(operator: str) -> None:
    with pytest.raises(OptionError, match="operator="):
        Arenas(operator, 1)


def test_sizes_and_slots_are_positive(arenas: Arenas) -> None:
    with pytest.raises(OptionError, match="share_bytes=0"):
        Arenas("op", 0)
    with pytest.raises(OptionError, match="slots=0"), arenas.acquire(0, 0):
        pass


def test_more_partitions_than_slots_take_turns(arenas: Arenas, impatient: None) -> None:
    with arenas.acquire(5, 4) as path:
        assert path.endswith("/1.arena")
        with pytest.raises(WouldWaitError), arenas.acquire(1, 4):
            pass


def test_whoever_comes_second_waits(arenas: Arenas, polled: threading.Event) -> None:
    order: list[str] = []

    def second() -> None:
        with arenas.acquire(0, 1):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with arenas.acquire(0, 1):
            waiting = pool.submit(second)
            assert polled.wait(60)
            order.append("first")
        waiting.result(60)
    assert order == ["first", "second"]


def test_the_arena_of_a_killed_worker_is_taken_over(
    start_executor: Callable[..., Executor], arenas: Arenas, directory: Path, polled: threading.Event
) -> None:
    executor = start_executor(worker_ends=False)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: arenas.acquire(0, 1).__enter__())
        assert polled.wait(60)
        assert not waiting.done()
        executor.kill_worker()
        assert waiting.result(60).endswith("/op/0.arena")
    executor.kill()


def test_without_routing_the_one_used_last_comes_first(arenas: Arenas, impatient: None) -> None:
    with (
        arenas.acquire(None, 3) as first,
        arenas.acquire(None, 3) as second,
        arenas.acquire(None, 3) as third,
    ):
        assert len({first, second, third}) == 3
        with pytest.raises(WouldWaitError), arenas.acquire(None, 3):
            pass
    for age, path in enumerate((second, third, first)):
        os.utime(f"{path}.holder", (1e9 - age, 1e9 - age))
    with arenas.acquire(None, 3) as path, arenas.acquire(None, 3) as next_path:
        assert (path, next_path) == (second, third)


def test_there_never_are_more_files_than_slots(arenas: Arenas, home: Path) -> None:
    held: list[str] = []

    def work(_: int) -> int:
        with arenas.acquire(None, 3) as path:
            held.append(path)
            count, unique = len(held), len(set(held))
            held.remove(path)
            assert count == unique <= 3
            return len(list((home / "op").glob("*.arena")))

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(work, range(400))) <= 3


def test_a_batch_query_leaves_nothing_behind(arenas: Arenas, home: Path) -> None:
    with arenas.acquire(0, 2, keep=False) as first:
        with arenas.acquire(1, 2, keep=False) as second:
            assert os.path.exists(second)
        assert not os.path.exists(second)
        assert os.path.exists(first)
    assert os.listdir(home) == []


def test_batch_tasks_come_and_go(arenas: Arenas, home: Path) -> None:
    def work(number: int) -> None:
        with arenas.acquire(number, 2, keep=False) as path:
            assert os.path.getsize(path) == 0
            Path(path).write_bytes(b"dirty")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert os.listdir(home) == []


@pytest.mark.parametrize("keep", [True, False])
def test_errors_of_the_task_are_its_own(keep: bool, arenas: Arenas) -> None:
    with pytest.raises(FileNotFoundError, match="mine"), arenas.acquire(0, 1, keep=keep) as path:
        raise FileNotFoundError("mine")
    assert os.path.exists(path) == keep
    with arenas.acquire(0, 1, keep=keep):
        pass


def test_where_arenas_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    size = os.statvfs(shared)
    all_of_it = size.f_frsize * size.f_blocks
    monkeypatch.setattr(page_files, "_SHARED_MEMORY", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    # Of an executor alone: two on one host would have twice the memory.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    for share_bytes, root in ((all_of_it // 2, shared), (all_of_it // 2 + 1, temporary)):
        with Arenas("op", share_bytes).acquire(0, 2, keep=False) as path:
            assert path.startswith(f"{root}/")
    shutil.rmtree(shared)
    with Arenas("op", 1).acquire(0, 2, keep=False) as path:
        assert path.startswith(f"{temporary}/")


def test_a_link_in_the_place_of_the_home_is_refused(arenas: Arenas, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    home.symlink_to(target)
    with pytest.raises(ArenaError, match=r"belongs to user.*spark\.adjoin\.arena\.dir"), arenas.acquire(0, 1):
        pass
    assert list(target.iterdir()) == []


def test_a_home_that_others_can_enter_is_refused(arenas: Arenas, home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(ArenaError, match=f"{home} is no directory"), arenas.acquire(0, 1):
        pass
    assert list(home.iterdir()) == []


def test_a_home_of_somebody_else_is_refused(
    arenas: Arenas, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    home.mkdir(mode=0o700)
    home.rename(home.with_name(f"adjoin-{user + 1}"))
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ArenaError, match=f"belongs to user {user + 1} alone"), arenas.acquire(0, 1):
        pass


@pytest.mark.parametrize("name", ["op", "op/0.arena"])
def test_links_inside_are_not_followed(name: str, arenas: Arenas, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    if name == "op":
        target.mkdir()
    else:
        target.write_text("precious")
    (home / name).parent.mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    (home / name).symlink_to(target)
    with pytest.raises(ArenaError), arenas.acquire(0, 1):
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
    number: int, message: str, arenas: Arenas, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any, *_: Any) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        with (
            pytest.raises(ArenaError, match=f"{directory}.*{message}.*spark.adjoin.arena.dir"),
            arenas.acquire(0, 1),
        ):
            pass
    with arenas.acquire(0, 1):
        pass


def test_a_file_in_the_place_of_the_directory_is_named(directory: Path) -> None:
    (directory / "file").write_text("in the way")
    with (
        pytest.raises(ArenaError, match=str(directory / "file")),
        Arenas("op", 1, str(directory / "file")).acquire(0, 1),
    ):
        pass


def test_no_descriptor_is_lost(arenas: Arenas, impatient: None) -> None:
    with arenas.acquire(0, 1):
        pass
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with arenas.acquire(0, 1), pytest.raises(WouldWaitError):
            arenas.acquire(0, 1).__enter__()
        with arenas.acquire(None, 2, keep=False):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_operator_removed_before_it_is_locked_is_made_again(
    arenas: Arenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory goes before it is opened, after it is opened, and with it the home."""
    real, calls = page_files._lock_directory, 0

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
    monkeypatch.setattr(page_files, "_lock_directory", lock)
    monkeypatch.setattr(sweeper, "is_at", is_at)
    with arenas.acquire(0, 1) as path:
        assert _is_locked(path)
    assert calls == 5


def test_an_arena_removed_before_it_is_locked_is_made_again(
    arenas: Arenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = sweeper.is_at, 0

    def is_at(path: str, descriptor: int) -> bool:
        nonlocal removed
        if path.endswith(".arena") and removed < 2:
            removed += 1
            os.unlink(path)
        return real(path, descriptor)

    monkeypatch.setattr(sweeper, "is_at", is_at)
    with arenas.acquire(0, 1) as path:
        assert _is_locked(path)
    assert removed == 2


def test_tasks_and_sweepers_do_not_harm_each_other(
    arenas: Arenas, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweepers that take everything for unneeded."""
    monkeypatch.setattr(sweeper, "_is_unneeded", lambda path, descriptor: True)
    done = threading.Event()

    def sweep() -> int:
        count = 0
        while not done.is_set():
            count += not (home / "op").exists()
            sweeper.sweep(str(home))
        return count

    def work(number: int) -> None:
        for _ in range(100):
            with arenas.acquire(number if number % 2 else None, 4) as path:
                Path(path).write_bytes(b"x")
                assert _is_locked(path)

    with ThreadPoolExecutor(6) as pool:
        sweepers = [pool.submit(sweep) for _ in range(2)]
        for worker in [pool.submit(work, number) for number in range(4)]:
            worker.result(120)
        done.set()
        assert all(sweeper.result(60) for sweeper in sweepers)


def test_a_new_operator_sweeps_what_others_have_left(
    start_executor: Callable[..., Executor], directory: Path, home: Path, arenas: Arenas
) -> None:
    executor = start_executor()
    executor.kill()
    until(lambda: not home.exists())
    with arenas.acquire(0, 1):
        pass
    dead = home / "dead" / sweeper.OWNERS
    dead.mkdir(parents=True)
    (dead / sweeper.owner_name(executor.pid)).touch()
    with arenas.acquire(0, 1):
        assert dead.exists()
    with Arenas("new", 1, str(directory)).acquire(0, 1):
        assert sorted(os.listdir(home)) == ["new", "op"]


def test_shared_memory_of_this_host() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no shared memory here")
    operator = f"test-{os.getpid()}-{time.monotonic_ns()}"
    with Arenas(operator, 1).acquire(0, 1, keep=False) as path:
        assert path == f"/dev/shm/adjoin-{os.geteuid()}/{operator}/0.arena"
    assert not os.path.exists(os.path.dirname(path))
    with suppress(OSError):  # somebody else has page memory there, or a sweeper was faster
        os.rmdir(os.path.dirname(os.path.dirname(path)))


def test_a_holder_that_cannot_be_noted_lets_go(arenas: Arenas, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, name: str, attempt: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(page_files, "_write_holder", refuse)
        with pytest.raises(ArenaError, match="make room there"), arenas.acquire(0, 1):
            pass
    with arenas.acquire(0, 1) as path:
        assert _is_locked(path)


def test_two_of_one_attempt_have_an_arena_each(arenas: Arenas, impatient: None) -> None:
    with arenas.acquire(0, 1, attempt=5) as first, arenas.acquire(0, 1, attempt=5) as second:
        assert first != second
        with pytest.raises(WouldWaitError), arenas.acquire(0, 1, attempt=6):
            pass
