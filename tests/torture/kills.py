"""Kills processes that change a master or join with it, with signal 9 at random moments."""

import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from adjoin import SSIJ
from adjoin.errors import MasterNotFoundError
from adjoin.master import files
from adjoin.master.master import Master
from adjoin.master.version_records import QueryRecords
from adjoin.master.versions import Home
from adjoin.memory.page_memory import PageFile
from tests.faults.world import Killer
from tests.torture.cases import Draw, remove
from tests.torture.model import Model, Step
from tests.unit.master.tables import multiset, rows_of

QUERY = "0b7e3d9c-4a41-4d3c-9f0e-6f1f2a3b4c5d"
_MEMORY_BYTES = 4 << 20
_KILLS = 8
_STEPS = 10
_BATCHES = 5
_ROUNDS = 60
_CHANGES = {"build": 60, "apply": 40, "evolve": 7, "compact": 40, "vacuum": 12}
"""About how many file system operations each of them takes."""


class Child:
    """A forked process that reports what it does."""

    def __init__(self, body: Callable[[Callable[[str], None]], None]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reading)
            self._live(body, writing)
        os.close(writing)

    @staticmethod
    def _live(body: Callable[[Callable[[str], None]], None], writing: int) -> None:
        try:
            os.fsync = lambda descriptor: None  # type: ignore[assignment]  # a kill does not undo writes
            body(lambda what: _say(writing, what))
        except BaseException:  # noqa: BLE001 (the parent is told)
            os.write(writing, ("failed " + traceback.format_exc()).encode())
            os._exit(1)
        os._exit(0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> tuple[bool, list[str]]:
        """Wait for its end; returns whether it was killed, and its reports."""
        said = b""
        while piece := os.read(self._reading, 1 << 16):
            said += piece
        os.close(self._reading)
        _, status = os.waitpid(self.pid, 0)
        text = said.decode()
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, f"ended by signal {os.WTERMSIG(status)}: {text}"
            return True, text.splitlines()
        assert os.WEXITSTATUS(status) == 0, text
        return False, text.splitlines()


def _say(writing: int, what: str) -> None:
    os.write(writing, f"{what}\n".encode())


class Life:
    """A master, the steps to apply to it, and a query that reads it, run by processes that are killed."""

    def __init__(self, work: Path, draw: Draw) -> None:
        self.path, self._work, self._draw = work / "m", work, draw
        self.model = Model.drawn(draw)
        self._plan = [self.model.build(draw.choice([60, 300])), *self.model.steps(_STEPS)]
        self._sales = [self.model.sales(150, 1000 * number) for number in range(_BATCHES)]
        self._position = 0
        self._revision = 0
        self.counts: Counter[str] = Counter()

    @property
    def _batch(self) -> int:
        """The next micro-batch."""
        return len(list(self._work.glob("commit-*")))

    @property
    def is_over(self) -> bool:
        return self._position == len(self._plan) and self._batch == _BATCHES

    def round(self) -> None:
        """Run a writer and a reader at the same time; kill one, at a step or after a while."""
        draw = self._draw
        steps = self._plan[self._position : self._position + draw.randrange(1, 4)]
        names = ["writer"] if steps else []
        names += ["reader"] if self._position and self._batch < _BATCHES else []
        victim = draw.choice(names) if self.counts["kills"] < _KILLS else ""
        if not self._position and self.counts["kills"] > 1:
            victim = ""  # not only builds should be killed
        doomed = draw.randrange(len(steps) or 1) if victim and draw.random() < 0.6 else None
        changes = _CHANGES[steps[doomed].what] if steps and doomed is not None else 1
        dies_at = draw.randrange(1, changes + 1 if victim == "writer" else 25)
        bodies: dict[str, Callable[[Callable[[str], None]], None]] = {
            "writer": lambda say: self._write(steps, say, doomed if victim == "writer" else None, dies_at),
            "reader": lambda say: self._read(
                say, dies_at if victim == "reader" and doomed is not None else None
            ),
        }
        children = {name: Child(bodies[name]) for name in names}
        if victim and doomed is None:
            time.sleep(draw.uniform(0, 0.15))
            children[victim].kill()
        # A reader pins versions while it lives.
        ends = {name: child.ended() for name, child in children.items()}
        if "reader" in ends and ends["reader"][0]:
            self.counts.update(["kills", "kills of a reader"])
        if "writer" in ends:
            self._note_steps(*ends["writer"])

    def _write(self, steps: list[Step], say: Callable[[str], None], doomed: int | None, dies_at: int) -> None:
        for number, step in enumerate(steps):
            if number == doomed:
                files.change = Killer(dies_at).change
            say(f"begin {step.what}")
            step.act(self.path)
            say("done")

    def _note_steps(self, was_killed: bool, said: list[str]) -> None:
        done = said.count("done")
        self._position += done
        if was_killed:
            begun = said[-1].split()[1] if said and said[-1].startswith("begin") else "nothing"
            self.counts.update(["kills", f"kills of {begun}"])
        self.check(self._plan[self._position - 1] if self._position else None)

    def check(self, last: Step | None) -> None:
        """All versions are intact and equal the model; no committed step is undone."""
        try:
            master = Master.open(self.path)
        except MasterNotFoundError:
            assert last is None, f"the master is gone after {last}"
            return
        with master:
            revision = master.revision
            at_least = self._revision if last is None else last.base + last.counts
            assert at_least <= revision <= at_least + 1, f"revision {revision} after {last}"
            self._revision = revision
            for version in master.versions():
                with master.at(version) as other:
                    other.verify()
                    assert multiset(rows_of(other)) == self.model.held(other.revision), f"version {version}"
        while self._position < len(self._plan) and self._changes(self._plan[self._position]):
            self._position += 1
        if self._draw.random() < 0.5:
            self.vacuum()

    def _changes(self, step: Step) -> bool:
        """Whether an interrupted step had been committed."""
        return step.counts and step.base < self._revision

    def vacuum(self) -> None:
        """Everything that processes have left behind is found."""
        with Master.open(self.path) as master:
            master.vacuum(keep=1)
        home = Home(self.path)
        versions = home.versions()
        assert_only_named(home)
        recorded = QueryRecords(home).pinned()
        assert set(versions) <= {versions[-1], *recorded, *(version + 1 for version in recorded)}

    def _read(self, say: Callable[[str], None], dies_at: int | None) -> None:
        """Run micro-batches like Spark: choose the version, join, write, commit."""
        if dies_at is not None:
            files.change = Killer(dies_at).change
        for number in range(self._batch, _BATCHES):
            records = QueryRecords(self.path)
            version = records.version_for(QUERY, number)
            with (self._work / "told").open("a") as file:
                file.write(f"{number} {version}\n")
            with (
                Master.open(self.path, version) as master,
                PageFile(self._work / "pages", _MEMORY_BYTES) as pages,
            ):
                table = join(master, self._sales[number], pages)
                revision = master.revision
            with (
                pa.OSFile(str(self._work / "aside"), "wb") as sink,
                pa.ipc.new_file(sink, table.schema) as writer,
            ):
                writer.write_table(table)
            os.replace(self._work / "aside", self._work / f"out-{number}-{revision}")
            (self._work / f"commit-{number}").touch()
            say(f"batch {number}")

    def check_sink(self) -> None:
        """Every micro-batch saw one version, however often it was repeated, and wrote its rows once."""
        told: dict[int, set[int]] = {}
        for line in (self._work / "told").read_text().splitlines():
            number, version = map(int, line.split())
            told.setdefault(number, set()).add(version)
        assert all(len(versions) == 1 for versions in told.values()), told
        for number, sales in enumerate(self._sales):
            (found,) = self._work.glob(f"out-{number}-*")
            revision = int(found.name.rpartition("-")[2])
            table = pa.ipc.open_file(pa.memory_map(str(found))).read_all()
            assert multiset(table) == self.model.joined(revision, sales), f"batch {number}"
        self.counts["micro-batches"] += len(told)

    def finish(self) -> None:
        self.check_sink()
        remove(self.path / "queries")
        self.vacuum()
        assert len(Home(self.path).versions()) == 1
        self.counts["steps"] += len(self._plan)


def join(master: Master, sales: pa.Table, pages: Any = None) -> pa.Table:
    options = {"pages": pages, "shared_index": True} if pages is not None else {}
    with SSIJ(master, on="id", how="left", memory=_MEMORY_BYTES, **options) as operator:
        schema = operator.schema_of(sales.schema)
        return pa.Table.from_batches(list(operator.run(sales.to_batches(40))), schema=schema)


def assert_only_named(home: Home) -> None:
    """Check that a master's directories contain the files that its versions name, and no others."""
    named = set().union(*(home.read_manifest(version).file_names() for version in home.versions()))
    left = {
        name for directory in (home.data_dir, home.index_dir, home.tmp_dir) for name in os.listdir(directory)
    }
    assert left == named, f"left behind: {sorted(left - named)}; missing: {sorted(named - left)}"


def in_process(work: Path, draw: Draw) -> Counter[str]:
    """One life of a master, with some kills."""
    life = Life(work, draw)
    for _ in range(_ROUNDS):
        if life.is_over:
            break
        life.round()
    assert life.is_over, "it comes to no end"
    life.finish()
    return life.counts
