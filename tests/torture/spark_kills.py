"""Kills drivers, executors, Python workers and sweepers of Spark repeatedly at random moments.

Meanwhile the driver changes the master: it builds, applies, evolves, compacts and vacuums on Spark. In the
end, every micro-batch must have the rows of the version recorded for it, exactly once.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from adjoin.errors import AdjoinError, MasterNotFoundError
from adjoin.master.master import Master
from adjoin.master.versions import Home
from tests.spark.cluster import Cluster, descendants
from tests.spark.goods import write_batches
from tests.spark.programs import Program
from tests.torture.cases import Case, Draw, remove
from tests.torture.kills import assert_only_named
from tests.torture.spark_driver import COLUMNS, Plan
from tests.unit.master.tables import multiset, rows_of

LOCAL = "local[2,20]"
_WEIGHTS = {"driver": 0.5, "executor": 3, "worker": 5, "sweeper": 3}
_SPARED = 0.995
"""The probability, twice per second, that a driver without workers survives."""
_MOST_KILLS = 25
_KILLS_BEFORE_ROWS = 6
_DRIVERS = "drivers killed in or after {}"
_BUILD = _DRIVERS.format("build")
_MOST_LIVES = 40
_HUNG_SECONDS = 90.0


class Watch(threading.Thread):
    """Records which version each micro-batch sees, and the revision of each version."""

    def __init__(self, work: Path) -> None:
        super().__init__(daemon=True)
        self._work, self._home = work, Home(work / "m")
        self.versions: dict[int, set[int]] = {}
        self.revisions: dict[int, int] = {}
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(0.02):
            self.look()

    def look(self) -> None:
        for version in self._home.versions():
            if version not in self.revisions:
                with suppress(AdjoinError):
                    self.revisions[version] = self._home.read_manifest(version).revision
        for path in (self._work / "m" / "queries").glob("*/*.json"):
            with suppress(FileNotFoundError, IndexError, ValueError):
                body = path.read_text().split("\n", 1)[1]
                self.versions.setdefault(int(path.stem), set()).add(_version_in(body))


def _version_in(body: str) -> int:
    return int(json.loads(body)["version"])


class Life:
    """One stream and one master, processed by many drivers in turn."""

    def __init__(self, work: Path, url: str, kind: str, draw: Draw, cluster: Cluster | None) -> None:
        self._work, self._url, self._draw, self._cluster = work, url, draw, cluster
        self._name = (kind, draw.seed_, draw.number)
        self._plan = Plan(Draw(*self._name))
        write_batches(self._plan.batches, work / "in")
        self._watch = Watch(work)
        self._state: tuple[object, ...] = ()
        self._moved = time.monotonic()
        self.counts: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        self._watch.start()
        try:
            for _ in range(_MOST_LIVES):
                if self._live():
                    break
            else:
                raise AssertionError(f"it does not come to an end: {self.counts}")
        finally:
            self._watch.is_over.set()
            self._watch.join()
        self._watch.look()
        self._check_master()
        self._check_sink()
        self._check_files()
        return self.counts

    def _live(self) -> bool:
        """Run one driver; returns whether it finished."""
        driver = Program(
            "tests.torture.spark_driver", self._work, self._url, *self._name, work=self._work / "logs"
        )
        try:
            self._kill_about(driver)
            self._sleep(driver, sys.maxsize)
            code = driver.wait()
        finally:
            driver.end()
        said = driver.log.read_text(errors="replace")
        if code == 0:
            return True
        assert "adjoin.errors." not in said, said[-6000:]
        if code != -signal.SIGKILL:
            assert self.counts["kills"], said[-6000:]
            self.counts["drivers that gave up"] += 1
        self._check_master()
        return False

    def _kill_about(self, driver: Program) -> None:
        """Kill processes until the driver is dead or done."""
        while driver.process.poll() is None and self.counts["kills"] < _MOST_KILLS:
            found = {what: pids for what, find in self._victims(driver).items() if (pids := find())}
            if self.counts[_BUILD] > 1 and self._doing() == "build":
                del found["driver"]  # not only builds should be killed
            if self.counts["kills"] >= _KILLS_BEFORE_ROWS and not self._commits():
                self._sleep(driver, 0.5)  # give the stream time, so that it is killed too
                continue
            if not found or (len(found) == 1 and self._draw.random() < _SPARED):
                self._sleep(driver, 0.5)  # it has just begun
                continue
            what = self._draw.choices(sorted(found), [_WEIGHTS[what] for what in sorted(found)])[0]
            with suppress(ProcessLookupError):
                os.kill(self._draw.choice(found[what]), signal.SIGKILL)
                self._count(what)
            if what == "driver":
                return
            if self._draw.random() < 0.5:
                self._wait_for_commit(driver)
            self._sleep(driver, self._draw.uniform(0.1, 2.5))

    def _commits(self) -> int:
        """How many micro-batches are done."""
        return len(list((self._work / "checkpoint" / "commits").glob("[0-9]*")))

    def _wait_for_commit(self, driver: Program) -> None:
        before, until = self._commits(), time.monotonic() + 20
        while self._commits() == before and time.monotonic() < until and driver.process.poll() is None:
            self._sleep(driver, 0.05)

    def _count(self, what: str) -> None:
        article = "an" if what == "executor" else "a"
        self.counts.update(["kills", f"kills of {article} {what}"])
        if what == "driver":
            self.counts[_DRIVERS.format(self._doing())] += 1

    def _doing(self) -> str:
        """The driver's current or last operation on the master."""
        doing = self._work / "doing"
        return (doing.read_text() if doing.exists() else "") or "nothing"

    def _sleep(self, driver: Program, seconds: float) -> None:
        """Wait this long or for the driver's end; a driver without progress is a violation."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and driver.process.poll() is None:
            time.sleep(0.02)
            state = self._progress()
            if state != self._state:
                self._state, self._moved = state, time.monotonic()
            assert time.monotonic() < self._moved + _HUNG_SECONDS, _description(driver, state)

    def _progress(self) -> tuple[object, ...]:
        return self._commits(), self._doing(), len(list((self._work / "logs").iterdir()))

    def _victims(self, driver: Program) -> dict[str, Callable[[], list[int]]]:
        roots = [process.pid for process in self._cluster.processes[1:]] if self._cluster else []
        return {
            "driver": lambda: [driver.process.pid],
            "executor": lambda: [
                pid
                for root in roots
                for pid in descendants(root)
                if "CoarseGrainedExecutorBackend" in _command(pid)
            ],
            "worker": lambda: [
                pid
                for root in [driver.process.pid, *roots]
                for pid in descendants(root)
                if "pyspark.daemon" in _command(pid)
            ],
            "sweeper": lambda: [
                int(entry.name)
                for entry in Path("/proc").glob("[0-9]*")
                if "sweeper.py" in _command(int(entry.name)) and str(self._work) in _command(int(entry.name))
            ],
        }

    def _check_master(self) -> None:
        """With no writer left, all versions are intact and equal the model."""
        try:
            newest = Master.open(self._work / "m")
        except MasterNotFoundError:
            return
        with newest:
            for version in newest.versions():
                with newest.at(version) as master:
                    master.verify()
                    found = rows_of(master).select(self._plan.model.tables[master.revision].column_names)
                    assert multiset(found) == self._plan.model.held(master.revision), f"version {version}"
            if self._draw.random() < 0.5:
                newest.vacuum(keep=1)
                assert_only_named(newest._home)

    def _check_sink(self) -> None:
        assert all(len(seen) == 1 for seen in self._watch.versions.values()), self._watch.versions
        written = self._written()
        seen_before = rows = 0
        for number, sales in enumerate(self._plan.batches):
            of_batch = pc.is_in(written["sale"], sales["sale"].combine_chunks())
            found = multiset(written.filter(of_batch).select(["id", "sale", *COLUMNS]))
            version = next(iter(self._watch.versions.get(number, ())), None)
            revision = self._watch.revisions.get(version or 0)
            likely = [revision] if revision else range(seen_before, self._plan.model.revision + 1)
            explained = [at for at in likely if at and found == self._joined(at, sales)]
            assert explained, f"batch {number} lacks the rows of version {version}, revision {revision}"
            self.counts["micro-batches by their record" if revision else "micro-batches by their rows"] += 1
            seen_before = explained[0]
            rows += len(found)
        assert len(written) == rows, "some rows belong to no micro-batch"

    def _joined(self, revision: int, sales: pa.Table) -> list[str]:
        table = self._plan.model.tables[revision].select(["id", *COLUMNS])
        return self._plan.model.joined_with(table, sales)

    def _written(self) -> pa.Table:
        out = self._work / "out"
        if self._plan.sink == "foreach":
            return pa.concat_tables([pq.read_table(path) for path in sorted(out.iterdir())])
        names: set[str] = set()
        for log in sorted((out / "_spark_metadata").iterdir(), key=lambda path: path.name):
            if not log.name.startswith("."):
                lines = log.read_text().splitlines()[1:]
                names |= {os.path.basename(_path_in(line)) for line in lines}
        return pa.concat_tables([pq.read_table(out / name, partitioning=None) for name in sorted(names)])

    def _check_files(self) -> None:
        """With no reader left, one version remains, with its files and no others."""
        remove(self._work / "m" / "queries")
        with Master.open(self._work / "m") as master:
            assert master.revision == self._plan.model.revision
            master.vacuum(keep=1)
            assert len(master.versions()) == 1
            assert_only_named(master._home)


def _description(driver: Program, state: tuple[object, ...]) -> str:
    """The state of a driver without progress: its processes, and its Java stacks."""
    pids = [driver.process.pid, *descendants(driver.process.pid)]
    lines = [f"nothing happens any more: {state}"]
    for pid in pids:
        with suppress(OSError):
            waits = Path(f"/proc/{pid}/wchan").read_text()
            lines.append(f"{pid} waits in {waits or '?'}: {_command(pid)[:200]}")
            if "org.apache.spark" in _command(pid):
                os.kill(pid, signal.SIGQUIT)  # Java writes its stacks to the log
    time.sleep(2)
    return "\n".join([*lines, driver.log.read_text(errors="replace")[-40_000:]])


def _path_in(line: str) -> str:
    return str(json.loads(line)["path"])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _case(work: Path, url: str, kind: str, cluster: Cluster | None) -> Case:
    def case(draw: Draw) -> Counter[str]:
        remove(work / "case")
        (work / "case").mkdir()
        return Life(work / "case", url, kind, draw, cluster).run()

    return case


@contextmanager
def on_local(work: Path) -> Iterator[Case]:
    yield _case(work, LOCAL, "kills/spark local", None)


@contextmanager
def on_cluster(work: Path) -> Iterator[Case]:
    (work / "cluster").mkdir()
    cluster = Cluster(work / "cluster")
    try:
        cluster.start()
        yield _case(work, cluster.url, "kills/spark cluster", cluster)
    finally:
        cluster.stop()
