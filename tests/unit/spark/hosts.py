"""Executors and sweepers on this host, each in its own process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_EXECUTOR = """
import os, signal, sys
from adjoin.spark.page_memory.files import PageFiles

directory, ends = sys.argv[1:]
open("/proc/self/comm", "w").write("java")
worker = os.fork()
if worker == 0:
    with PageFiles("op", 1 << 20, directory).acquire(0, 1) as path:
        if ends == "no":
            print(os.getpid(), flush=True)
            signal.pause()
    os._exit(0)
if ends == "yes":
    os.waitpid(worker, 0)
    print(worker, flush=True)
signal.pause()
"""


class Executor:
    """A process named java whose worker has used page file 0 of operator `op`, and holds it until it ends."""

    def __init__(self, directory: Path, worker_ends: bool) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", *sys.path])}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _EXECUTOR, str(directory), "yes" if worker_ends else "no"],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.worker = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill_worker(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.worker, signal.SIGKILL)


def sweepers(directory: Path) -> list[int]:
    """The sweepers of homes under this directory."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_text().split("\0")
            except OSError:
                continue
            if len(words) > 4 and words[3].endswith("sweeper.py") and directory in Path(words[4]).parents:
                found.append(int(entry.name))
    return found


def until(condition: Callable[[], object]) -> None:
    """Wait for something that takes a second or two; fail if it does not happen."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
