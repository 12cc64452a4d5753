import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.spark.hosts import Executor, sweepers, until


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for page files, whose sweepers end with the test."""
    path = tmp_path / "pages"
    path.mkdir()
    yield path
    for pid in sweepers(path):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not sweepers(path))


@pytest.fixture
def home(directory: Path) -> Path:
    return directory / f"adjoin-{os.geteuid()}"


@pytest.fixture
def start_executor(directory: Path) -> Iterator[Callable[..., Executor]]:
    """Starts executors that end with the test."""
    started: list[Executor] = []

    def start(where: Path = directory, worker_ends: bool = True) -> Executor:
        started.append(Executor(where, worker_ends))
        return started[-1]

    yield start
    for executor in started:
        executor.kill_worker()
        executor.kill()
