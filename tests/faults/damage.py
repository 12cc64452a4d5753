"""Random damage to files, from a seed: flipped bits, truncation, older contents."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from adjoin.errors import CorruptionError
from adjoin.master.versions import Home
from tests.oracle import assert_same_rows

KINDS = ("flip", "flips", "cut", "zeros", "older")
"""What can be damaged: a bit, many bits, the end of a file, a block of it, all of it."""


def files_of(path: str, version: int) -> dict[str, list[str]]:
    """The files of a version of a master, by kind."""
    home = Home(path)
    manifest = home.read_manifest(version)
    index = [os.path.join(home.index_dir, manifest.index.name)]
    filter_ = [os.path.join(home.index_dir, manifest.filter.name)] if manifest.filter else []
    return {"data": [file.path for file in manifest.files], "index": index, "filter": filter_}


@dataclass(frozen=True)
class Damage:
    """Damage to a file, determined by a seed."""

    kind: str
    seed: int

    def do(self, path: str, older: bytes = b"") -> None:
        """Damage the file in place, as a faulty disk or program would."""
        draw = random.Random(self.seed)
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            if self.kind == "cut":
                file.truncate(draw.randrange(size))
            elif self.kind == "older":
                file.write(older[:size])
            elif self.kind == "zeros":
                begin = draw.randrange(size)
                file.seek(begin)
                file.write(bytes(min(draw.choice([8, 512, 4096, 65536]), size - begin)))
            else:
                for _ in range(1 if self.kind == "flip" else draw.choice([5, 50, 500])):
                    _flip(file, draw.randrange(size), draw.randrange(8))


def _flip(file: IO[bytes], at: int, bit: int) -> None:
    file.seek(at)
    (byte,) = file.read(1)
    file.seek(at)
    file.write(bytes([byte ^ 1 << bit]))


@contextmanager
def restored(path: str) -> Iterator[bytes]:
    """The bytes of the file, which are restored at the end, in the same file."""
    before = Path(path).read_bytes()
    try:
        yield before
    finally:
        with open(path, "r+b") as file:
            file.truncate(len(before))
            file.write(before)


def right_or_refused(join: Callable[[], pa.Table], wanted: pa.Table, damaged: list[str]) -> str:
    """Return "rows" if the rows are right, or "refused" if an error names a damaged file.

    Raises:
        AssertionError: There is a wrong row, or an error that blames something else.
    """
    try:
        rows = join()
    except CorruptionError as error:
        named = [path for path in damaged if path in str(error)]
        if not named:
            raise AssertionError(f"damaged is {damaged}, blamed: {error}") from error
        return "refused"
    assert_same_rows(rows, wanted)
    return "rows"
