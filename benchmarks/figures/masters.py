"""Masters of the figures: built once, kept, and known by what they are made of."""

import fcntl
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from adjoin.master.master import Master
from adjoin.workloads import MasterRows
from benchmarks.figures.figure import World

PAGE_BYTES = 8192


@dataclass(frozen=True)
class KeyedMaster:
    """Keys 0, 1, 2 and so on; sizes are those of the paper.

    Attributes:
        rows: Rows of the master.
        per_key: Rows of a key.
        spread: Whether every key has exactly so many, or so many on average; as in `MasterRows`.
        row_bytes: Bytes of a row; 97 make 64 rows a page that is filled to 0.8.
        fill: How far pages are filled.
    """

    rows: int
    per_key: int = 1
    spread: Literal["equal", "random"] = "equal"
    row_bytes: int = 97
    fill: float = 0.8

    @property
    def keys(self) -> int:
        """Different keys."""
        return self.rows // self.per_key

    def open(self, world: World) -> Master:
        """The master at this scale."""
        keys = world.scaled(self.keys)
        name = f"{self.spread}-{keys}-{self.per_key}-{self.row_bytes}-{self.fill}"

        def build(path: Path) -> None:
            rows = MasterRows(
                keys * self.per_key, per_key=self.per_key, spread=self.spread, row_bytes=self.row_bytes
            )
            _build(rows.reader(), "key", path, self.fill)

        return Master.open(built_once(world.data / name, build))


def _build(rows: pa.RecordBatchReader, key: str, path: Path, fill: float) -> None:
    Master.build(rows, key=key, path=path, page_bytes=PAGE_BYTES, fill=fill).close()


def built_once(path: Path, build: Callable[[Path], None]) -> Path:
    """Build what is not there; of two processes that want the same, one builds and the other waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name(path.name + ".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            build(unfinished)
            unfinished.rename(path)
    return path
