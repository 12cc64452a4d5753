"""Concurrent writers, compaction, vacuum and readers; their histories are checked against a model."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from adjoin.errors import ConflictError
from adjoin.master.master import Master
from adjoin.master.numbered_change import NumberedChange, Planned
from tests.unit.master.disk_use import named_and_present
from tests.unit.master.tables import build_master, changes, rows_of

ROWS = 600


class _History:
    """Everything that was committed and read, by revision."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.committed: dict[int, dict[int, str]] = {}
        self.read: list[tuple[int, dict[int, str]]] = []
        self.compactions = 0
        self.removed = 0
        table = pa.table({"key": pa.array(range(ROWS), pa.int64()), "value": ["0" * 60] * ROWS})
        build_master(table, "key", path, page_bytes=4096, filter_bits=4).close()

    def write(self, writer: int, commits: int) -> None:
        """Commit changes repeatedly; a writer that was overtaken opens the master again."""
        rng = random.Random(writer)
        for number in range(commits):
            changed = dict.fromkeys(rng.sample(range(ROWS), 5), f"{writer}.{number} " + "y" * 50)
            self._commit(writer, number, changed)

    def _commit(self, writer: int, number: int, changed: dict[int, str]) -> None:
        upserts = changes([("upsert", key, value) for key, value in changed.items()], pa.int64())
        newer = self._settled(writer, number, upserts) if writer % 2 else self._applied(upserts)
        with self.lock:
            assert newer.revision not in self.committed
            self.committed[newer.revision] = changed
        newer.close()

    def _settled(self, writer: int, number: int, upserts: pa.Table) -> Master:
        """Read before writing; after being overtaken many times the change fails, and is run again."""
        with Master.open(self.path) as master:
            change = NumberedChange(master, (f"writer {writer}", number))
        while True:
            with suppress(ConflictError):
                settled = change.settle(lambda _: Planned(upserts))
                assert settled.after.revision == settled.before.revision + 1
                return settled.after

    def _applied(self, upserts: pa.Table) -> Master:
        while True:
            with Master.open(self.path) as master:
                try:
                    newer = master.apply(upserts, keep=2)
                except ConflictError:
                    continue
                if newer.revision == master.revision + 1:
                    return newer
                raise AssertionError(f"revision {newer.revision} follows {master.revision}")

    def look(self) -> None:
        with Master.open(self.path) as master:
            table = rows_of(master)
            found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
            with self.lock:
                self.read.append((master.revision, found))

    def compact(self) -> None:
        with Master.open(self.path) as master:
            self.compactions += master.compact().revision >= master.revision

    def vacuum(self) -> None:
        with Master.open(self.path) as master:
            self.removed += len(master.vacuum(keep=1).versions)

    def check(self) -> None:
        """Revisions have no gaps, and rows that were read result from all changes up to their revision."""
        assert sorted(self.committed) == list(range(2, len(self.committed) + 2))
        reads = sorted(self.read, key=lambda one: one[0])
        rows = dict.fromkeys(range(ROWS), "0" * 60)
        revision = 1
        for seen, found in reads:
            while revision < seen:
                revision += 1
                rows |= self.committed[revision]
            assert found == rows, f"revision {seen}"


def _race(history: _History, writers: int, commits: int) -> None:
    done = threading.Event()

    def until_done(act: Callable[[], None]) -> None:
        while not done.is_set():
            act()

    with ThreadPoolExecutor(writers + 5) as pool:
        others = [
            pool.submit(until_done, act)
            for act in (history.look, history.look, history.compact, history.vacuum, history.vacuum)
        ]
        try:
            for writer in [pool.submit(history.write, number, commits) for number in range(writers)]:
                writer.result()
        finally:
            done.set()
        for other in others:
            other.result()
    history.look()
    history.check()
    with Master.open(history.path) as newest:
        newest.verify()
        newest.vacuum(keep=1)
        named, present = named_and_present(newest)
        assert named == present
    assert history.compactions > 0
    assert history.removed > 0


def test_concurrent_writers_compaction_vacuum_and_readers(tmp_path: Path) -> None:
    _race(_History(tmp_path / "m"), writers=4, commits=4)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_concurrent_writers_compaction_vacuum_and_readers(tmp_path: Path) -> None:
    _race(_History(tmp_path / "m"), writers=10, commits=40)
