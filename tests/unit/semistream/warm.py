"""Operators that come and go on one page file, properly or not, while the master moves on."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adjoin.memory.page_memory import PageFile
from tests.unit.semistream.shop import build, products, sales

KEYS = st.lists(st.integers(-2, 900), min_size=1, max_size=60)


def occupied(path: Path) -> int:
    """Bytes of the disk that a file takes."""
    return os.stat(path).st_blocks * 512


@contextmanager
def small_file_system(path: Path, size: str) -> Iterator[Path]:
    """A file system that is soon full."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        # Only the administrator may mount; `test_pagememory.py` makes refusals up, for everybody.
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


class WarmMachine(RuleBasedStateMachine):
    """Every row is that of the version asked, and what was left is found again.

    A machine for one kind of operator adds how it begins and what is pushed, and says what is left.

    Attributes:
        left: The metric that counts what is left for the next operator.
    """

    left: str

    def __init__(self) -> None:
        super().__init__()
        self.join: Any = None
        self.pages: Any = None
        self.place = TemporaryDirectory()

    def build(self, kind: Any, rows: int, room: int) -> None:
        self.path = Path(self.place.name) / "pages"
        table = products(rows)
        self.kind = kind
        self.master = build(table, Path(self.place.name))
        self.names = dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
        self.memory = kind.least_memory(self.master, pages=PageFile, shared_index=True) + 20_000 + room
        self.held = self.names

    @precondition(lambda self: self.join is None)
    @rule()
    def open(self) -> None:
        self.pages = PageFile(self.path, self.memory)
        self.join = self.kind(self.master, on="id", memory=self.memory, pages=self.pages, shared_index=True)
        self.held = self.names
        self.seen: list[Any] = []
        self.asked: list[int] = []

    def ask(self, keys: list[int]) -> None:
        self.asked += keys
        self.seen += self.join.push(sales(keys))

    @precondition(lambda self: self.join is not None)
    @rule()
    def refresh(self) -> None:
        self.answer()
        list(self.join.refresh(self.master))
        self.held = self.names

    @rule(keys=st.lists(st.integers(0, 900), min_size=1, max_size=8, unique=True), kind=st.sampled_from("ud"))
    def update(self, keys: list[int], kind: str) -> None:
        name = os.urandom(20).hex()
        table = pa.table(
            {
                "id": keys,
                "name": [name] * len(keys),
                "_op": ["upsert" if kind == "u" else "delete"] * len(keys),
            }
        )
        newer = self.master.apply(table)
        self.master.close()
        self.master = newer
        gone = {key: held for key, held in self.names.items() if key not in keys}
        self.names = {**gone, **(dict.fromkeys(keys, name) if kind == "u" else {})}

    @rule()
    def vacuum(self) -> None:
        self.master.vacuum(keep=1)

    def answer(self) -> None:
        rows = [row for batch in (*self.seen, *self.join.idle(0)) for row in batch.to_pylist()]
        wanted = sorted((key, self.held[key]) for key in self.asked if key in self.held)
        assert sorted((row["id"], row["name"]) for row in rows) == wanted
        self.seen, self.asked = [], []

    @precondition(lambda self: self.join is not None)
    @rule()
    def close(self) -> None:
        self.answer()
        self.join.check_invariants()
        left = self.leave()
        self.pages.close()
        self.join = None
        if self.held is self.names:
            self.open()
            assert self.join.metrics()[self.left] == left
            self.join.check_invariants()

    def leave(self) -> int:
        """Close the operator; what it has left."""
        left = self.join.metrics()[self.left]
        self.join.close()
        return int(left)

    @precondition(lambda self: self.join is not None)
    @rule()
    def die(self) -> None:
        """As far as the file can tell: it is closed by nobody."""
        self.pages.close()
        self.join = None

    @invariant()
    def stays_within_its_bytes(self) -> None:
        if self.join is not None:
            assert occupied(self.path) <= self.memory

    def teardown(self) -> None:
        if self.join is not None:
            self.join.close()
        if self.pages is not None:
            self.pages.close()
        self.place.cleanup()
