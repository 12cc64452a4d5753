"""A standalone cluster from the pip package: a master and two workers, on the loopback device."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from tests.spark.programs import environment, until

WORKERS = 2


@dataclass
class Cluster:
    """Its directory and processes; workers with different addresses are different hosts to Spark."""

    work: Path
    hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")
    port: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port, web = free_port(), free_port()
        self._daemon("master.Master", "--host", "127.0.0.1", "--port", self.port, "--webui-port", web)
        self._until(lambda: _is_open(self.port), "a master that listens")
        for number in range(WORKERS):
            ports = [
                "--port",
                free_port(),
                "--webui-port",
                free_port(),
                "--work-dir",
                self.work / str(number),
            ]
            host = ["--host", self.hosts[number]]
            self._daemon("worker.Worker", *host, "--cores", 1, "--memory", "1g", *ports, self.url)
        self._until(lambda: self._registered() == WORKERS, "two workers that are registered")

    def stop(self) -> None:
        """End the executors before their workers, so that no process is orphaned."""
        for process in reversed(self.processes):
            for pid in descendants(process.pid):
                _kill(pid)
            process.kill()
            process.wait(10)

    def _daemon(self, name: str, *arguments: object) -> None:
        command = [Path(_find_spark_home()) / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
        with (self.work / f"{len(self.processes)}.log").open("wb") as output:
            self.processes.append(
                subprocess.Popen(
                    [*map(str, command), *map(str, arguments)],
                    env=environment(SPARK_DAEMON_MEMORY="256m"),
                    cwd=self.work,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            logs = [(self.work / f"{number}.log").read_text() for number in range(len(self.processes))]
            assert all(process.poll() is None for process in self.processes), "\n".join(logs)
            return condition()

        until(holds, 60, what)

    def _registered(self) -> int:
        logs = [(self.work / f"{number + 1}.log").read_text() for number in range(WORKERS)]
        return sum("Successfully registered with master" in log for log in logs)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The descendants of this process."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, front = [], [pid]
    while front:
        front = [child for child, parent in parents.items() if parent in front]
        found += front
    return found
