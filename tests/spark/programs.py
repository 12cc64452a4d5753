"""Test programs that run Spark in their own process group, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from adjoin.java import ensure_java

ROOT = Path(__file__).resolve().parents[2]
GROUP = "ADJOIN_TEST_GROUP"
MARK = "ADJOIN_TEST_PROGRAM"
LONGEST_SECONDS = 250.0


def environment(**more: str) -> dict[str, str]:
    """The environment in which a program and its children find Java, Python, adjoin and the tests."""
    ensure_java()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # For short runs, Java should compile quickly rather than well.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **more,
    }


class Program:
    """`python -m tests.spark.<name> <arguments>`, its output in a file; a dotted name is a module."""

    def __init__(self, name: str, *arguments: object, work: Path, **more: str) -> None:
        work.mkdir(exist_ok=True)
        self.mark = uuid.uuid4().hex
        self.log = work / f"{name}-{time.monotonic_ns()}.log"
        module = name if "." in name else f"tests.spark.{name}"
        command = [sys.executable, "-m", module, *map(str, arguments)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env=environment(**{MARK: self.mark}, **more),
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self, seconds: float = LONGEST_SECONDS) -> int:
        """Wait for its exit code, and end everything it has started."""
        try:
            return self.process.wait(seconds)
        finally:
            self.end()

    def end(self) -> None:
        """Kill it and its whole group, like a power failure, and wait for its workers to end."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        try:
            until(lambda: not self._left(), what="the end of all workers")
        finally:
            for pid in self._left():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _left(self) -> list[int]:
        """Processes that come from this program. A sweeper does not count: it may serve others too."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_sweeper = b"sweeper.py" in (entry / "cmdline").read_bytes()
                if mark in (entry / "environ").read_bytes() and not is_sweeper:
                    found.append(int(entry.name))
        return found

    def told(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-8_000:]


def run(name: str, *arguments: object, work: Path, seconds: float = LONGEST_SECONDS, **more: str) -> None:
    """Run a program to completion; it must succeed."""
    program = Program(name, *arguments, work=work, **more)
    code = program.wait(seconds)
    assert code == 0, program.told()


def kill_group() -> None:
    """Kill the driver, Python and Java with signal 9; if called from a worker, it dies as well."""
    os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def session_builder(master: str = "local[2,4]", **settings: Any) -> SparkSession.Builder:
    """A builder for a program's session, quiet and without a web page."""
    os.environ[GROUP] = str(os.getpgrp())
    builder = SparkSession.builder.master(master).appName("adjoin test program")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.warehouse.dir": str(Path.cwd() / "warehouse"),
        **settings,
    }.items():
        builder = builder.config(name, value)
    return builder


@contextmanager
def session(master: str = "local[2,4]", **settings: Any) -> Iterator[SparkSession]:
    """The session of a program, stopped at its end."""
    spark = session_builder(master, **settings).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "the condition") -> Any:
    """Poll until the condition holds; returns its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not hold within {seconds:.0f} s"
        time.sleep(0.02)
    return found


def write_json(path: Path, value: Any) -> None:
    """Write atomically."""
    aside = path.with_name(path.name + ".aside")
    aside.write_text(json.dumps(value))
    aside.replace(path)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
