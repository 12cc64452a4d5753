"""When the disk fails, a call can be continued: nothing is lost, nothing is returned twice."""

import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from adjoin import AdjoinError, CorruptionError, StorageError
from adjoin.kernels.pages import READ_FAILED
from tests.unit.streamjoin.complete.model import LEFT, RIGHT, Pair, counted


def now_and_then(real: Callable[..., Any], fail: Callable[..., Any]) -> Callable[..., Any]:
    """Every third call fails; a call that is repeated at once succeeds."""
    number = itertools.count()

    def called(*arguments: Any) -> Any:
        return fail(*arguments) if next(number) % 3 == 2 else real(*arguments)

    return called


def refused(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


SEAMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "writes": ("adjoin.streamjoin.disk.spill_file.os.pwrite", refused),
    "reads": ("adjoin.streamjoin.complete.landing.read_scans", lambda *_: (READ_FAILED, 0)),
    "marks": ("adjoin.streamjoin.complete.pages.write_pieces", lambda *_: 0),
}

NO_MARKS = "marks", "inner"


class Stubborn:
    """A join whose calls are continued until they succeed.

    Attributes:
        failures: How many of them failed.
    """

    def __init__(self, join: Any) -> None:
        self._join = join
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._join, name)
        if name not in {"push", "expire", "expire_rows", "finish"}:
            return method
        return lambda *arguments: self._all_of(method(*arguments), name)

    def _all_of(self, work: Iterable[Any], name: str) -> Iterable[Any]:
        while True:
            try:
                yield from work
                return
            except StorageError:
                self.failures += 1
                self._join.check_invariants()
                work = self._join.finish() if name == "finish" else self._join.idle(0)


@pytest.mark.parametrize(
    ("seam", "how"),
    [(seam, how) for seam in SEAMS for how in ("inner", "full", "semi", "anti") if (seam, how) != NO_MARKS],
)
def test_calls_that_fail_are_continued(seam, how, monkeypatch):
    target, fail = SEAMS[seam]
    module, _, name = target.rpartition(".")
    owner: Any = os if name == "pwrite" else __import__(module, fromlist=[name])
    with Pair(5, "strings", how, (20, 35), keys=200, width=900) as pair:
        join: Any = Stubborn(pair.join)
        pair.join = join
        monkeypatch.setattr(target, now_and_then(getattr(owner, name), fail))
        for step in range(20):
            pair.push(step % 2, 200)
            pair.newly_matched()
            pair.clock += 8
            if step % 4 == 3:
                pair.expire(pair.clock - 50)
        assert join.failures > 2
        pair.finish()


def test_rows_pushed_after_an_expiry_that_failed_do_not_meet_what_expires(monkeypatch):
    found: Counter = Counter()

    def take(work: Iterable[Any]) -> None:
        for batch in work:
            found.update(counted([batch]))

    with Pair(5, "integers", "full", (500, 500), keys=200, width=900) as pair:
        for _ in range(4):
            pair.push(LEFT, 200)
            pair.push(RIGHT, 200)
        batch, seen = pair._batch(LEFT, 100)
        with monkeypatch.context() as disk:
            disk.setattr("adjoin.streamjoin.complete.landing.read_scans", lambda *_: (READ_FAILED, 0))
            with pytest.raises(StorageError, match="cannot read"):
                take(pair.join.expire_rows(1_000, 1_000))
            with pytest.raises(StorageError, match="cannot read"):
                take(pair.join.push("left", batch))
            with pytest.raises(AdjoinError, match="idle"):
                pair.join.newly_matched()
        take(pair.join.idle(0))
        assert found == pair.model.expire_rows((1_000, 1_000)) + pair.model.push(LEFT, seen)
        pair.check()
        pair.finish()


@pytest.fixture
def filled() -> Iterator[Pair]:
    """Most rows of both sides are on disk."""
    with Pair(5, "integers", "inner", None, width=900) as pair:
        for side in (LEFT, LEFT, LEFT, RIGHT, RIGHT, RIGHT):
            pair.push(side, 200)
        yield pair


def test_a_damaged_page_is_found(filled):
    file: Any = filled.join._storage.files[LEFT]
    for begin in range(700, file.bytes, 4096):
        os.pwrite(file.descriptor, b"\x55" * 64, begin)
    with pytest.raises(CorruptionError, match="damaged"):
        filled.push(RIGHT, 200)


@pytest.mark.parametrize("left_bytes", [0, 4096])
def test_a_file_that_was_cut_off_is_noticed(filled, left_bytes):
    os.ftruncate(filled.join._storage.files[LEFT].descriptor, left_bytes)
    with pytest.raises(CorruptionError, match="cut off"):
        filled.push(RIGHT, 200)


def test_an_expiry_that_fails_at_every_other_read_returns_every_row_once(monkeypatch):
    """Also where the directory of pages is on disk itself."""
    module = "adjoin.streamjoin.complete.landing"
    read, numbers = __import__(module, fromlist=["read_scans"]).read_scans, itertools.count()

    def every_other(*arguments: Any) -> Any:
        return read(*arguments) if next(numbers) % 2 else (READ_FAILED, 0)

    with Pair(8, "integers", "left", (30, 30), keys=3_000, width=900) as pair:
        for _ in range(12):
            pair.push(LEFT, 250)
            pair.clock += 5
        storage: Any = pair.join._storage
        assert storage.pages[LEFT].directory.file_bytes > 0
        join: Any = Stubborn(pair.join)
        pair.join = join
        monkeypatch.setattr(f"{module}.read_scans", every_other)
        for moment in range(1_000, 1_140, 20):
            pair.expire(moment)
        assert join.failures > 20
        pair.finish()
