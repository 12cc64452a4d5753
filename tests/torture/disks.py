"""Full disks and failing reads at every step of every operation on a master."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adjoin.master import files
from adjoin.master.master import Master
from adjoin.master.versions import Home
from tests.faults.world import SCENARIOS, FullDisk, PowerCut, World, fresh
from tests.torture.cases import Case, Draw, refusal
from tests.torture.kills import assert_only_named, join
from tests.torture.model import Model
from tests.unit.master.tables import multiset, rows_of
from tests.unit.master.test_migrate import as_first_format

FAULTS = ("disk full for good", "disk full once", "failing read", "no more open files", "power cut")
_TIDY = {"build", "apply", "sequence", "evolve", "compact"}
"""Scenarios in which a writer that gets an error removes what it has written."""
_SURVIVES = ("all", "nothing", "names")


class Join:
    """Scenario: join with the master."""

    def __init__(self) -> None:
        self._model = Model.drawn(Draw("join"), "int64", has_sequence=False)
        self._steps = [self._model.build(200), self._model.apply(), self._model.evolve(), self._model.apply()]
        self._sales = self._model.sales(200)

    def prepare(self, path: Path) -> None:
        path.mkdir()
        for step in self._steps:
            step.act(path / "m")

    def act(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            found = join(master, self._sales)
        assert multiset(found) == self._model.joined(self._model.revision, self._sales), "wrong rows"

    def check(self, path: Path) -> None:
        self.act(path)


class Migrate:
    """Scenario: migrate a master from the first format to the current one."""

    def __init__(self) -> None:
        self._model = Model.drawn(Draw("migrate"), "string", has_sequence=False)
        self._model.keeps = (None,)
        self._steps = [self._model.build(120), self._model.apply(), self._model.apply()]

    def prepare(self, path: Path) -> None:
        path.mkdir()
        for step in self._steps:
            step.act(path / "m")
        as_first_format(path / "m")

    def act(self, path: Path) -> None:
        Master.migrate(path / "m")

    def check(self, path: Path) -> None:
        """It continues where it was interrupted."""
        self.act(path)
        with Master.open(path / "m") as newest:
            assert newest.versions() == [1, 2, 3]
            for version in newest.versions():
                with newest.at(version) as master:
                    master.verify()
                    assert multiset(rows_of(master)) == self._model.held(version), f"version {version}"


class FullOnce(FullDisk):
    """One step fails; the next ones find room again."""

    def change(self, operation: str, path: str, action: Callable[[], Any]) -> Any:
        if operation != "unlink" and self.steps == self._stop_at:
            self.steps += 1
            return _CHANGE(operation, path, _refuse)
        if operation != "unlink":
            self.steps += 1
        return _CHANGE(operation, path, action)


class Reads:
    """Replaces the calls that open and read files; one of them fails."""

    def __init__(self, fails_at: int | None, number: int) -> None:
        self.steps = 0
        self._fails_at = fails_at
        self._number = number
        self._open, self._preadv, self._listdir, self._scandir = os.open, os.preadv, os.listdir, os.scandir

    def _fails(self) -> bool:
        self.steps += 1
        return self.steps == self._fails_at

    def _error(self, path: Any) -> OSError:
        return OSError(self._number, os.strerror(self._number), path if isinstance(path, str) else None)

    def _opened(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        # Direct I/O is tried first, with a fallback if it is not supported.
        if flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_DIRECT and self._fails():
            raise self._error(path)
        if flags & os.O_DIRECT and self._fails():
            # A file that cannot be read: the device fails on the actual read.
            return self._open("/proc/self/mem", os.O_RDONLY)
        return self._open(path, flags, *rest, **options)

    def _read(self, *arguments: Any) -> int:
        if self._fails():
            raise self._error(None)
        return self._preadv(*arguments)

    def _listed(self, path: Any = ".") -> list[str]:
        if self._fails():
            raise self._error(path)
        return self._listdir(path)

    @contextmanager
    def installed(self) -> Iterator[None]:
        os.open, os.preadv, os.listdir = self._opened, self._read, self._listed  # type: ignore[assignment]
        try:
            yield
        finally:
            os.open, os.preadv, os.listdir = self._open, self._preadv, self._listdir


_CHANGE = files.change


def _refuse() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def faulty(fault: str, step: int | None, survives: str = "all") -> Iterator[Any]:
    """A file system with a fault, which counts its steps."""
    if fault in {"failing read", "no more open files"}:
        reads = Reads(step, errno.EIO if fault == "failing read" else errno.EMFILE)
        with reads.installed():
            yield reads
        return
    worlds = {"disk full for good": FullDisk(step), "disk full once": FullOnce(step - 1 if step else None)}
    world = worlds.get(fault) or World(step, survives)
    files.change = world.change
    try:
        yield world
    finally:
        files.change = _CHANGE


class Disks:
    """Every scenario, fault and step, in pseudo-random order; the seed determines where to begin."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.scenarios: dict[str, Any] = {**SCENARIOS, "join": Join(), "migrate": Migrate()}
        self.places: list[tuple[str, str, int]] = []
        for name, scenario in self.scenarios.items():
            scenario.prepare(work / name)
            for fault in FAULTS:
                with faulty(fault, None) as world:
                    scenario.act(fresh(work / name, work / "copy"))
                self.places += [(name, fault, step) for step in range(1, world.steps + 1)]
        Draw("places").shuffle(self.places)

    def case(self, draw: Draw) -> Counter[str]:
        name, fault, step = self.places[(draw.seed_ * 1_009 + draw.number) % len(self.places)]
        scenario, path = self.scenarios[name], fresh(self._work / name, self._work / "copy")
        outcome = "completed anyway"
        with faulty(fault, step, draw.choice(_SURVIVES)):
            try:
                scenario.act(path)
            except PowerCut:
                outcome = "cut"
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001 (a finding, unless adjoin raised it)
                refusal(error, path)
                outcome = "refused"
        if outcome == "refused" and "full" in fault and name in _TIDY:
            assert_no_garbage(path / "m")
        scenario.check(path)
        if (path / "m" / "versions").exists():
            with Master.open(path / "m") as master:
                master.vacuum(keep=100)
                assert_only_named(master._home)
        return Counter({"faults": 1, fault: 1, f"{name}: {outcome}": 1})


def assert_no_garbage(path: Path) -> None:
    """Check that a failed writer has left nothing that no version names."""
    home = Home(path)
    if home.versions():
        assert_only_named(home)
    else:
        left = [file for file in path.rglob("*") if file.is_file() and file.name != "writers.lock"]
        assert not left, f"left behind: {left}"


@contextmanager
def opened(work: Path) -> Iterator[Case]:
    sync, os.fsync = os.fsync, lambda descriptor: None  # type: ignore[assignment]  # counted but not executed
    try:
        yield Disks(work).case
    finally:
        os.fsync = sync
