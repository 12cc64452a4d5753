"""A file system that loses power, fills up, or kills the process at a chosen step."""

import errno
import gc
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from adjoin.master import files
from adjoin.master.master import Master
from adjoin.master.version_records import QueryRecords
from adjoin.master.versions import Home
from tests.unit.master.sequenced import latest_table
from tests.unit.master.tables import build_master, changes, multiset, products, rows_of

_change = files.change


class PowerCut(BaseException):
    """The power fails; handlers of ordinary errors do not see this."""


class World:
    """A replacement for `files.change` that counts steps and can lose power before one.

    Args:
        stop_at: The step, counted from 1, before which the power fails; None for never.
        survives: What remains of unsynced changes: "all", "nothing", or "names" (files exist, but empty
            or truncated).
    """

    def __init__(self, stop_at: int | None = None, survives: str = "all") -> None:
        self.steps = 0
        self._stop_at = stop_at
        self._survives = survives
        self._dead = False
        self._synced_bytes: dict[str, int] = {}
        self._new_names: set[str] = set()
        self._removed: dict[str, bytes] = {}

    def change(self, operation: str, path: str, action: Callable[[], Any]) -> Any:
        if self._dead:
            raise PowerCut
        self.steps += 1
        if self.steps == self._stop_at:
            self.cut()
            raise PowerCut
        if operation == "unlink" and os.path.exists(path):
            self._removed[path] = Path(path).read_bytes()
        result = _change(operation, path, action)
        self._note(operation, path)
        return result

    def cut(self) -> None:
        """The power fails now."""
        self._dead = True
        self._forget()

    def _note(self, operation: str, path: str) -> None:
        if operation in {"create", "link"}:
            self._new_names.add(path)
        if operation in {"create", "write"}:
            self._synced_bytes.setdefault(path, 0)
        if operation == "sync":
            self._synced_bytes[path] = os.path.getsize(path)
        if operation == "unlink":
            self._new_names.discard(path)
            self._synced_bytes.pop(path, None)
        if operation == "sync_dir":
            self._new_names = {name for name in self._new_names if os.path.dirname(name) != path}
            self._removed = {
                name: data for name, data in self._removed.items() if os.path.dirname(name) != path
            }

    def _forget(self) -> None:
        if self._survives == "all":
            return
        for path, synced in self._synced_bytes.items():
            if os.path.exists(path):
                os.truncate(path, synced)
        if self._survives == "nothing":
            for path in self._new_names:
                Path(path).unlink(missing_ok=True)
            # Directories are synced separately; at worst, manifests reappear and their files do not.
            for path, data in self._removed.items():
                if path.endswith(".json"):
                    Path(path).write_bytes(data)


class FullDisk:
    """A replacement for `files.change`: from a given step on, nothing can be written."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.steps = 0
        self._stop_at = stop_at

    def change(self, operation: str, path: str, action: Callable[[], Any]) -> Any:
        if operation == "unlink":
            return _change(operation, path, action)
        self.steps += 1
        full = self._stop_at is not None and self.steps >= self._stop_at
        return _change(operation, path, _refuse if full else action)


def _refuse() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class Killer(World):
    """Kills this process before the step."""

    def change(self, operation: str, path: str, action: Callable[[], Any]) -> Any:
        self.steps += 1
        if self.steps == self._stop_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return _change(operation, path, action)


OLD = products(500, space=300)
NEW = changes(
    [("upsert", key, "new") for key in range(0, 300, 7)]
    + [("delete", key, None) for key in range(3, 300, 5)]
    + [("insert", 1000 + key, "z" * 80) for key in range(60)],
    pa.int64(),
).rename_columns(["_op", "name", "id"])
NEW = NEW.append_column("price", pa.array([None] * len(NEW), pa.float64()))


class Scenario(Protocol):
    def prepare(self, path: Path) -> None: ...

    def act(self, path: Path) -> None: ...

    def check(self, path: Path) -> None: ...


class Build:
    """Scenario: building, with spilled runs, several files and a filter."""

    def prepare(self, path: Path) -> None:
        path.mkdir()

    def act(self, path: Path) -> None:
        build_master(
            OLD, "id", path / "m", page_bytes=4096, memory_bytes=1 << 14, filter_bits=8, file_bytes=20_000
        ).close()

    def check(self, path: Path) -> None:
        """There is nothing or everything, and the next attempt succeeds."""
        if not (path / "m" / "versions").exists() or not os.listdir(path / "m" / "versions"):
            self.act(path)
        _check_contents(path, {1: multiset(OLD)})


class Apply:
    """Scenario: changing version 1."""

    def prepare(self, path: Path) -> None:
        Build().prepare(path)
        Build().act(path)

    def act(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            master.apply(NEW, txn="new", memory=1 << 14).close()

    def check(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            versions = master.versions()
        expected = {1: multiset(OLD), 2: _changed()}
        _check_contents(path, {version: expected[version] for version in versions})
        self.act(path)
        _check_contents(path, expected)


def _sequenced(keys: range, at: int) -> pa.Table:
    """Upserts, and deletes of every third key; a few with a greater or smaller sequence."""
    table = pa.table({"id": pa.array(keys, pa.int64()), "name": ["later"] * len(keys)})
    operations = ["upsert" if key % 3 else "delete" for key in keys]
    return (
        table.append_column("price", pa.array([None] * len(keys), pa.float64()))
        .append_column("_op", pa.array(operations))
        .append_column("at", pa.array([at + key % 5 - 2 for key in keys], pa.int64()))
    )


class Sequenced:
    """Scenario: changing version 2 with a sequence; some changes are late, some tombstones have expired."""

    STEPS = (_sequenced(range(0, 300, 2), 5), _sequenced(range(400, 0, -3), 5))

    def prepare(self, path: Path) -> None:
        Build().prepare(path)
        Build().act(path)
        self._apply(path, 0)

    def act(self, path: Path) -> None:
        self._apply(path, 1)

    def _apply(self, path: Path, number: int) -> None:
        with Master.open(path / "m") as master:
            options: Any = {"sequence": "at", "tombstones": "0 seconds", "memory": 1 << 14}
            master.apply(self.STEPS[number], ("feed", number), **options).close()

    def check(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            versions = master.versions()
        expected, latest = self._expected()
        _check_contents(path, {version: expected[version] for version in versions})
        self.act(path)
        _check_contents(path, expected)
        with Master.open(path / "m") as master:
            records = latest_table(master)
        assert records is not None
        found = zip(*(records[name].to_pylist() for name in ("key_0", "sequence", "deleted")), strict=True)
        assert sorted(found) == latest

    @classmethod
    @cache
    def _expected(cls) -> tuple[dict[int, list[str]], list[tuple[int, int, bool]]]:
        """The rows of each version, and the records of the last one, without tombstones of the one before."""
        held: list[dict[str, Any]] = OLD.to_pylist()
        expected, latest = {1: multiset(OLD)}, dict[int, tuple[int, bool, int]]()
        for number, step in enumerate(cls.STEPS):
            for change in step.to_pylist():
                operation, at = change.pop("_op"), change.pop("at")
                if at >= latest.get(change["id"], (at, False, 0))[0]:
                    latest[change["id"]] = (at, operation == "delete", number)
                    held = [row for row in held if row["id"] != change["id"]]
                    held += [change] if operation == "upsert" else []
            expected[2 + number] = multiset(pa.Table.from_pylist(held, OLD.schema))
        kept = [(key, at, gone) for key, (at, gone, number) in latest.items() if number or not gone]
        return expected, sorted(kept)


class Evolve:
    """Scenario: adding, renaming and widening columns, then changes that add another one."""

    def prepare(self, path: Path) -> None:
        Build().prepare(path)
        Build().act(path)

    def act(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            if master.version == 1:
                master.evolve(add={"color": "string"}, rename={"name": "title"}, drop="price").close()
        with Master.open(path / "m") as master:
            self.bring_more(master).close()

    @staticmethod
    def bring_more(master: Master) -> Master:
        row = {"_op": ["upsert"], "id": [3], "title": ["three"], "color": ["red"], "weight": [1.5]}
        return master.apply(pa.table(row), txn="more", evolve=True)

    def check(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            versions = master.versions()
        expected = self._expected()
        _check_contents(path, {version: expected[version] for version in versions})
        self.act(path)
        _check_contents(path, expected)

    @staticmethod
    @cache
    def _expected() -> dict[int, list[str]]:
        rows = OLD.select(["id", "name"]).rename_columns(["id", "title"])
        rows = rows.append_column("color", pa.nulls(len(rows), pa.string()))
        wider = rows.append_column("weight", pa.nulls(len(rows), pa.float64()))
        changed = [row for row in wider.to_pylist() if row["id"] != 3]
        changed.append({"id": 3, "title": "three", "color": "red", "weight": 1.5})
        return {
            1: multiset(OLD),
            2: multiset(rows),
            3: multiset(pa.Table.from_pylist(changed, wider.schema)),
        }


class Vacuum:
    """Scenario: removing versions 1 and 2 of 3."""

    def prepare(self, path: Path) -> None:
        Apply().prepare(path)
        Apply().act(path)
        with Master.open(path / "m") as master:
            master.apply(NEW.slice(0, 3), txn="more").close()
        for part in ("data", "index", "tmp"):
            (path / "m" / part / f"{'0' * 32}.arrow").write_bytes(b"garbage")

    def act(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            master.vacuum(keep=1)

    def check(self, path: Path) -> None:
        expected = {1: multiset(OLD), 2: _changed(), 3: _changed()}
        with Master.open(path / "m") as master:
            assert master.version == 3
            versions = master.versions()
        _check_contents(path, {version: expected[version] for version in versions})
        self.act(path)
        _check_contents(path, {3: expected[3]})
        with Master.open(path / "m") as master:
            left = sum(len(os.listdir(path / "m" / part)) for part in ("data", "index", "tmp"))
            assert left == len(master.files) + 2


class Compact:
    """Scenario: merging thin pages and moving pages of 3 versions, in two commits."""

    GONE = changes([("delete", key, None) for key in range(300) if key % 8], pa.int64())

    def prepare(self, path: Path) -> None:
        Apply().prepare(path)
        Apply().act(path)
        with Master.open(path / "m") as master:
            master.apply(
                self.GONE.select([0, 2]).rename_columns(["_op", "id"]), txn="gone", keep=None
            ).close()

    def act(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            master.compact().close()

    def check(self, path: Path) -> None:
        """All versions from 3 on have the same rows, and in the end nothing is left to do."""
        with Master.open(path / "m", 3) as master:
            rows = multiset(rows_of(master))
            versions = master.versions()
        expected = {1: multiset(OLD), 2: _changed(), 3: rows, 4: rows, 5: rows}
        assert 0 < len(rows) < len(expected[2]) / 2
        _check_contents(path, {version: expected[version] for version in versions})
        self.act(path)
        with Master.open(path / "m") as master:
            assert 4 <= master.version <= 5
            assert master.compact().version == master.version
            assert (master.revision, len(master.files)) == (3, 1)
            gc.collect()  # the interrupted attempt may still have versions open
            master.vacuum(keep=1)
            _check_contents(path, {master.version: rows})
            left = sum(len(os.listdir(path / "m" / part)) for part in ("data", "index", "tmp"))
            assert left == len(master.files) + 2


class Upkeep:
    """Scenario: a change that also moves pages out of 8 small files, and removes versions."""

    def prepare(self, path: Path) -> None:
        Build().prepare(path)
        Build().act(path)
        for number in range(8):
            with Master.open(path / "m") as master:
                master.apply(NEW.slice(number, 1), txn=f"{number}", keep=None).close()

    def act(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            master.apply(NEW, txn="new", keep=2).close()

    def check(self, path: Path) -> None:
        with Master.open(path / "m") as master:
            master.verify()
            with master.at(master.versions()[0]) as oldest:
                oldest.verify()
            is_done = master.version == 10
            assert multiset(rows_of(master)) == _changed() if is_done else master.version == 9
        self.act(path)
        with Master.open(path / "m") as master:
            assert multiset(rows_of(master)) == _changed()
            assert len(master.files) < 8
            gc.collect()  # the interrupted attempt may still have versions open
            master.vacuum(keep=1)
            _check_contents(path, {10: _changed()})
            left = sum(len(os.listdir(path / "m" / part)) for part in ("data", "index", "tmp"))
            assert left == len(master.files) + 2


class Query:
    """Scenario: micro-batches of a streaming query; after each of them a version is committed."""

    QUERY = "0b7e3d9c-4a41-4d3c-9f0e-6f1f2a3b4c5d"
    BATCHES = 4

    def prepare(self, path: Path) -> None:
        Build().prepare(path)
        Build().act(path)

    def act(self, path: Path) -> None:
        records = QueryRecords(path / "m")
        answers = self._answers(path)
        for batch in range(max(answers, default=0), self.BATCHES):
            version = records.version_for(self.QUERY, batch)
            with (path / "answers").open("a") as file:
                file.write(f"{batch} {version}\n")
            self.move_on(path)
            if batch == self.BATCHES - 2:
                records.end(self.QUERY)

    def check(self, path: Path) -> None:
        """A repeated task gets the same answer as before, and records are intact."""
        told = QueryRecords(path / "m").pinned()
        self.move_on(path)
        self.act(path)
        answers = self._answers(path)
        assert sorted(answers) == list(range(self.BATCHES))
        assert all(len(versions) == 1 for versions in answers.values())
        assert told <= set().union(*answers.values())
        records = QueryRecords(path / "m")
        last = records.version_for(self.QUERY, self.BATCHES)
        assert records.pinned() == answers[self.BATCHES - 1] | {last}
        assert not records.has_ended(self.QUERY)

    @staticmethod
    def _answers(path: Path) -> dict[int, set[int]]:
        answers: dict[int, set[int]] = {}
        if (path / "answers").exists():
            for line in (path / "answers").read_text().splitlines():
                answers.setdefault(int(line.split()[0]), set()).add(int(line.split()[1]))
        return answers

    @staticmethod
    def move_on(path: Path) -> None:
        """Commit a newer version with the same pages, by a writer that is not interrupted."""
        home = Home(path / "m")
        newest = home.read_manifest(home.newest())
        newer = replace(newest, version=newest.version + 1)
        Path(home.manifest_path(newer.version)).write_bytes(newer.to_bytes())


SCENARIOS: dict[str, Scenario] = {
    "build": Build(),
    "apply": Apply(),
    "sequence": Sequenced(),
    "evolve": Evolve(),
    "vacuum": Vacuum(),
    "compact": Compact(),
    "upkeep": Upkeep(),
    "query": Query(),
}


@cache
def _changed() -> list[str]:
    gone = set(range(0, 300, 7)) | set(range(3, 300, 5))
    kept = [row for row in OLD.to_pylist() if row["id"] not in gone]
    upserted = [key for key in range(0, 300, 7) if key % 5 != 3]
    added = [{"id": key, "name": "new", "price": None} for key in upserted]
    added += [{"id": 1000 + key, "name": "z" * 80, "price": None} for key in range(60)]
    return multiset(pa.Table.from_pylist(kept + added, OLD.schema))


def _check_contents(path: Path, expected: dict[int, list[str]]) -> None:
    with Master.open(path / "m") as newest:
        assert newest.versions() == sorted(expected)
        for version, rows in expected.items():
            with newest.at(version) as master:
                master.verify()
                assert multiset(rows_of(master)) == rows


def fresh(template: Path, path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path)
    return path
