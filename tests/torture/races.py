"""Ten writers, a compaction, a vacuum and some readers at once; what each saw is compared with a model.

Every change set has a number of its own. Revisions are an order of all that were committed, so a model that
applies them in this order knows what every reader must have seen.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from adjoin import ConflictError, Master
from tests.torture.cases import Case, Draw, remove
from tests.torture.kills import Child, assert_only_named, join
from tests.unit.master.tables import rows_of

WRITERS = 10
READERS = 3
_KEYS = 200
_SECONDS = float(os.environ.get("ADJOIN_TORTURE_RACE_SECONDS", "10"))

Rows = dict[int, list[tuple[int, str]]]


def _changes(draw: Draw, number: int, text: str) -> pa.Table:
    """Some keys, each once; every row names its change set."""
    keys = draw.sample(range(_KEYS), draw.randrange(1, 12))
    operations = draw.choices(["upsert", "insert", "delete"], [5, 3, 3], k=len(keys))
    return pa.table(
        {
            "_op": operations,
            "id": pa.array(keys, pa.int64()),
            "number": pa.array([number] * len(keys), pa.int64()),
            "text": [text] * len(keys),
        }
    )


def _applied(rows: Rows, changes: list[dict[str, Any]]) -> None:
    for change in changes:
        row = (change["number"], change["text"])
        kept = rows.get(change["id"], []) if change["_op"] == "insert" else []
        rows[change["id"]] = kept if change["_op"] == "delete" else [*kept, row]


def _listed(rows: Rows) -> list[list[Any]]:
    return sorted([key, *row] for key, held in rows.items() for row in held)


class Race:
    """One master, and processes that record in files what they did and saw."""

    def __init__(self, work: Path, draw: Draw) -> None:
        self.path, self._work, self._draw = work / "m", work, draw
        self._first = pa.table(
            {
                "id": pa.array(range(0, _KEYS, 2), pa.int64()),
                "number": pa.array([-1] * (_KEYS // 2), pa.int64()),
                "text": ["first"] * (_KEYS // 2),
            }
        )
        Master.build(self._first, key="id", path=self.path, page_bytes=4096, filter_bits=8).close()
        self._end = time.monotonic() + _SECONDS

    def run(self) -> Counter[str]:
        bodies: dict[str, Callable[[Draw, Callable[[Any], None]], None]] = {
            **{f"writer {number}": self._writer(number) for number in range(WRITERS)},
            **{f"reader {number}": self._reader for number in range(READERS)},
            "vacuum": self._vacuum,
            "compaction": self._compaction,
        }
        children = {}
        for number, (name, body) in enumerate(bodies.items()):
            draw = Draw(f"race {name}", self._draw.getrandbits(32), number)
            children[name] = Child(self._telling(name, body, draw))
        for child in children.values():
            assert not child.ended()[0]
        return self._check({name: self._told(name) for name in bodies})

    def _telling(self, name: str, body: Any, draw: Draw) -> Callable[[Callable[[str], None]], None]:
        def telling(say: Callable[[str], None]) -> None:
            with (self._work / name).open("w") as file:
                body(draw, lambda what: file.write(json.dumps(what) + "\n"))

        return telling

    def _told(self, name: str) -> list[Any]:
        return [json.loads(line) for line in (self._work / name).read_text().splitlines()]

    def _is_on(self) -> bool:
        return time.monotonic() < self._end

    def _writer(self, writer: int) -> Callable[[Draw, Callable[[Any], None]], None]:
        def write(draw: Draw, tell: Callable[[Any], None]) -> None:
            number = writer
            while self._is_on():
                changes = _changes(draw, number, "x" * draw.choice([1, 50, 300]))
                revision = self._apply(changes, f"change {number}")
                tell([revision, changes.to_pylist()])
                number += WRITERS

        return write

    def _apply(self, changes: pa.Table, txn: str) -> int:
        while True:
            try:
                with Master.open(self.path) as master, master.apply(changes, txn=txn) as newer:
                    return newer.revision
            except ConflictError:
                continue

    def _compaction(self, draw: Draw, tell: Callable[[Any], None]) -> None:
        while self._is_on():
            try:
                with Master.open(self.path) as master, master.compact() as newer:
                    tell([newer.version > master.version])
            except ConflictError:
                tell(["conflict"])
            time.sleep(draw.uniform(0, 0.2))

    def _vacuum(self, draw: Draw, tell: Callable[[Any], None]) -> None:
        while self._is_on():
            with Master.open(self.path) as master:
                tell(len(master.vacuum(keep=draw.choice([1, 1, 3])).versions))
            time.sleep(draw.uniform(0, 0.1))

    def _reader(self, draw: Draw, tell: Callable[[Any], None]) -> None:
        """Read a version, keep it open, read it again, join with it: always the same rows."""
        sales = pa.table({"id": pa.array(range(_KEYS), pa.int64()), "sale": range(_KEYS)})
        while self._is_on():
            with Master.open(self.path) as master:
                rows = self._rows(master)
                if draw.random() < 0.5:
                    time.sleep(draw.uniform(0, 0.3))
                    assert self._rows(master) == rows, f"version {master.version} has changed"
                found = join(master, sales).filter(pc.is_valid(pc.field("number")))
                joined = sorted(
                    map(
                        list,
                        zip(*(found[name].to_pylist() for name in ("id", "number", "text")), strict=True),
                    )
                )
                assert joined == rows, f"the join with version {master.version} is wrong"
                tell([master.revision, master.version, rows])

    @staticmethod
    def _rows(master: Master) -> list[list[Any]]:
        table = rows_of(master)
        return sorted(
            map(list, zip(*(table[name].to_pylist() for name in ("id", "number", "text")), strict=True))
        )

    def _check(self, told: dict[str, list[Any]]) -> Counter[str]:
        commits: dict[int, list[dict[str, Any]]] = {}
        for name, lines in told.items():
            for revision, changes in lines if name.startswith("writer") else []:
                assert revision not in commits, f"two change sets have revision {revision}"
                commits[revision] = changes
        seen: dict[int, list[Any]] = {}
        for name, lines in told.items():
            for revision, _, read in lines if name.startswith("reader") else []:
                assert seen.setdefault(revision, read) == read, (
                    f"two readers saw other rows of revision {revision}"
                )
        assert sorted(commits) == list(range(2, len(commits) + 2)), "a revision is missing"
        rows: Rows = {}
        _applied(rows, [{**row, "_op": "insert"} for row in self._first.to_pylist()])
        for revision in range(1, len(commits) + 2):
            if revision > 1:
                _applied(rows, commits[revision])
            if revision in seen:
                assert seen[revision] == _listed(rows), f"a reader saw other rows in revision {revision}"
        with Master.open(self.path) as master:
            assert master.revision == len(commits) + 1
            assert self._rows(master) == _listed(rows), "the last version has other rows"
            master.verify()
            master.vacuum(keep=1)
            assert_only_named(master._home)
        return Counter(
            {
                "seconds": int(_SECONDS),
                "commits": len(commits),
                "reads": sum(len(lines) for name, lines in told.items() if name.startswith("reader")),
                "versions read": len(seen),
                "compactions": sum(line == [True] for line in told.get("compaction", [])),
                "versions vacuumed": sum(told["vacuum"]),
            }
        )


@contextmanager
def opened(work: Path) -> Iterator[Case]:
    def case(draw: Draw) -> Counter[str]:
        remove(work / "case")
        (work / "case").mkdir()
        return Race(work / "case", draw).run()

    yield case
