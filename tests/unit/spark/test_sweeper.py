import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from adjoin.spark import operator_home
from adjoin.spark.page_memory import sweeper
from adjoin.spark.page_memory.files import PageFiles
from tests.unit.spark.hosts import Executor, sweepers, until


@pytest.fixture
def page_files(directory: Path) -> PageFiles:
    return PageFiles("op", 1 << 20, str(directory))


@pytest.fixture
def no_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_home, "_start_sweeper", lambda home: None)


def _owned_by(home: Path, *owners: str) -> Path:
    """An operator with these owners and a page file."""
    (home / "op" / sweeper.OWNERS).mkdir(parents=True)
    (home / "op" / "0.arena").write_bytes(b"pages")
    for owner in owners:
        (home / "op" / sweeper.OWNERS / owner).touch()
    return home / "op"


def test_an_operator_without_living_owners_is_removed(home: Path) -> None:
    me = sweeper.owner_name(os.getpid())
    pid, started, namespace = me.split("-")
    gone = [f"{pid}-{int(started) + 1}-{namespace}", f"{2**22 + 1}-{started}-{namespace}"]
    operator = _owned_by(home, *gone, me)
    sweeper.sweep(str(home))
    assert operator.exists()
    (operator / sweeper.OWNERS / me).unlink()
    sweeper.sweep(str(home))
    assert os.listdir(home) == []


def test_an_owner_in_another_container_counts_as_alive(home: Path) -> None:
    operator = _owned_by(home, f"{2**22 + 1}-5-17")
    sweeper.sweep(str(home))
    assert operator.exists()


def test_an_owner_that_is_a_zombie_counts_as_dead(home: Path) -> None:
    child = subprocess.Popen(["sleep", "600"])
    operator = _owned_by(home, sweeper.owner_name(child.pid))
    sweeper.sweep(str(home))
    assert operator.exists()
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: "Z" in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2])
    sweeper.sweep(str(home))
    assert not operator.exists()
    child.wait()


def test_process_names_may_contain_anything(tmp_path: Path) -> None:
    program = tmp_path / "a) R (b c"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "600"])
    until(lambda: (found := sweeper.process(child.pid)) and found.name == program.name)
    found = sweeper.process(child.pid)
    child.kill()
    child.wait()
    assert found is not None
    assert (found.parent, found.is_alive) == (os.getpid(), True)
    assert sweeper.process(child.pid) is None


def test_an_operator_idle_for_an_hour_is_removed(home: Path) -> None:
    operator = _owned_by(home, sweeper.owner_name(os.getpid()))
    os.utime(operator, (time.time() - 3500, time.time() - 3500))
    sweeper.sweep(str(home))
    assert operator.exists()
    os.utime(operator, (time.time() - 3700, time.time() - 3700))
    sweeper.sweep(str(home))
    assert not operator.exists()


def test_an_operator_in_use_is_not_idle(page_files: PageFiles, home: Path, no_sweeper: None) -> None:
    for _ in range(2):
        with page_files.acquire(0, 1):
            os.utime(home / "op", (0, 0))
        assert time.time() - (home / "op").stat().st_mtime < 600
        os.utime(home / "op", (0, 0))


def test_what_a_task_holds_is_never_removed(
    page_files: PageFiles, home: Path, tmp_path: Path, no_sweeper: None
) -> None:
    (tmp_path / sweeper.ENDED).touch()
    with page_files.acquire(0, 1, str(tmp_path)) as path:
        for owner in (home / "op" / sweeper.OWNERS).iterdir():
            owner.unlink()
        os.utime(home / "op", (0, 0))
        sweeper.sweep(str(home))
        assert os.path.exists(path)
    sweeper.sweep(str(home))
    assert not (home / "op").exists()


def test_an_operator_used_again_while_it_is_examined_is_kept(
    page_files: PageFiles, home: Path, no_sweeper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = _owned_by(home)
    home.chmod(0o700)
    real = sweeper.is_unneeded

    def is_unneeded(path: str, descriptor: int) -> bool:
        monkeypatch.setattr(sweeper, "is_unneeded", real)
        verdict = real(path, descriptor)
        with page_files.acquire(0, 1):
            return verdict

    monkeypatch.setattr(sweeper, "is_unneeded", is_unneeded)
    sweeper.sweep(str(home))
    assert (operator / "0.arena").exists()


def test_an_operator_recreated_while_the_old_one_is_examined_is_kept(
    page_files: PageFiles, home: Path, no_sweeper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock on the old directory says nothing about the tasks in the new one."""
    _owned_by(home)
    home.chmod(0o700)
    real, verdicts = sweeper.is_unneeded, 0
    with ExitStack() as task:

        def is_unneeded(path: str, descriptor: int) -> bool:
            nonlocal verdicts
            verdicts += 1
            if verdicts == 1:
                sweeper.remove(path)
                monkeypatch.setattr(sweeper, "is_unneeded", real)
                task.enter_context(page_files.acquire(0, 1))
                monkeypatch.setattr(sweeper, "is_unneeded", is_unneeded)
            return True

        monkeypatch.setattr(sweeper, "is_unneeded", is_unneeded)
        sweeper.sweep(str(home))
        assert (home / "op" / "0.arena").exists()
    assert verdicts == 1


def test_missing_records_do_not_mean_that_the_query_has_ended(
    page_files: PageFiles, home: Path, tmp_path: Path, no_sweeper: None
) -> None:
    records = tmp_path / "records"
    records.mkdir()
    with page_files.acquire(0, 1, str(records)):
        pass
    records.rmdir()
    sweeper.sweep(str(home))
    assert (home / "op").exists()
    records.mkdir()
    (records / sweeper.ENDED).touch()
    sweeper.sweep(str(home))
    assert not (home / "op").exists()
    assert (records / sweeper.ENDED).exists()


def test_foreign_files_are_neither_followed_nor_removed(home: Path, tmp_path: Path) -> None:
    precious = _owned_by(tmp_path / "elsewhere")
    home.mkdir()
    (home / "link").symlink_to(precious)
    (home / "notes").write_text("years of work")
    sweeper.sweep(str(home))
    assert (precious / "0.arena").exists()
    assert sorted(os.listdir(home)) == ["link", "notes"]


def test_after_the_executor_is_killed_its_page_files_go_and_then_the_sweeper(
    start_executor: Callable[..., Executor], directory: Path, home: Path
) -> None:
    executor = start_executor()
    assert os.listdir(home / "op" / sweeper.OWNERS) == [sweeper.owner_name(executor.pid)]
    assert (home / "op" / "0.arena").exists()
    until(lambda: len(sweepers(directory)) == 1)
    executor.kill()
    until(lambda: not home.exists())
    until(lambda: not sweepers(directory))


def test_a_worker_that_outlives_its_executor_keeps_its_page_file(
    start_executor: Callable[..., Executor], directory: Path, home: Path
) -> None:
    executor = start_executor(worker_ends=False)
    other = start_executor(directory / "other")
    executor.kill()
    other.kill()
    until(lambda: not (directory / "other" / home.name).exists())
    assert (home / "op" / "0.arena").exists()
    executor.kill_worker()
    until(lambda: not home.exists())


def test_page_files_stay_while_one_of_two_executors_lives(
    start_executor: Callable[..., Executor], directory: Path, home: Path
) -> None:
    first, second = start_executor(), start_executor()
    assert len(os.listdir(home / "op" / sweeper.OWNERS)) == 2
    other = home / "other" / sweeper.OWNERS
    other.mkdir(parents=True)
    (other / sweeper.owner_name(first.pid)).touch()
    first.kill()
    until(lambda: not (home / "other").exists())
    assert (home / "op" / "0.arena").exists()
    second.kill()
    until(lambda: not home.exists())


def test_page_files_go_when_the_query_has_ended(page_files: PageFiles, home: Path, tmp_path: Path) -> None:
    with page_files.acquire(0, 1, str(tmp_path)):
        (tmp_path / sweeper.ENDED).touch()
    until(lambda: not home.exists())


def test_there_is_one_sweeper_and_it_is_replaced_when_killed(page_files: PageFiles, directory: Path) -> None:
    with page_files.acquire(0, 2), page_files.acquire(1, 2):
        pass
    until(lambda: sweepers(directory))
    (first,) = sweepers(directory)
    with page_files.acquire(0, 2):
        assert sweepers(directory) == [first]
    os.kill(first, signal.SIGKILL)
    until(lambda: not sweepers(directory))
    with page_files.acquire(0, 2):
        until(lambda: sweepers(directory))
        assert sweepers(directory) != [first]


def test_a_sweeper_is_no_child_and_inherits_no_files(page_files: PageFiles, directory: Path) -> None:
    with page_files.acquire(0, 1), open(directory / "open", "w"):
        until(lambda: sweepers(directory))
        (pid,) = sweepers(directory)
        until(lambda: os.readlink(f"/proc/{pid}/cwd") == "/")
        found = sweeper.process(pid)
        files = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
    assert found is not None
    assert found.parent != os.getpid()
    assert os.getsid(pid) != os.getsid(0)
    assert files == {"/dev/null", str(directory / f"adjoin-{os.geteuid()}")}


def test_a_sweeper_ends_when_its_home_is_gone(page_files: PageFiles, directory: Path, home: Path) -> None:
    with page_files.acquire(0, 1):
        until(lambda: sweepers(directory))
        home.rename(directory / "moved")
    until(lambda: not sweepers(directory))


def test_a_sweeper_ends_even_if_there_are_foreign_files(
    page_files: PageFiles, directory: Path, home: Path
) -> None:
    with page_files.acquire(0, 1, keep=False):
        (home / "notes").write_text("years of work")
        until(lambda: sweepers(directory))
    until(lambda: not sweepers(directory))
    assert os.listdir(home) == ["notes"]
    with page_files.acquire(0, 1, keep=False):
        until(lambda: sweepers(directory))


def test_tasks_run_without_a_sweeper(
    page_files: PageFiles, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "run", refuse)
    with page_files.acquire(0, 1) as path:
        assert os.path.exists(path)
    assert sweepers(directory) == []
