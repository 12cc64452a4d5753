"""Masters of the figures: built once, kept, and named after their contents."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from adjoin.master.master import Master
from benchmarks.figures.figure import World
from workloads import TPCH, CloudReports, MasterRows

PAGE_BYTES = 8192


@dataclass(frozen=True)
class KeyedMaster:
    """Keys 0, 1, 2 and so on, with the paper's sizes.

    Attributes:
        rows: Rows of the master.
        per_key: Rows per key.
        spread: Whether every key has exactly that many or that many on average, as in `MasterRows`.
        row_bytes: Bytes per row; 97 give 64 rows per page at a fill factor of 0.8.
        fill: The fill factor of pages.
    """

    rows: int
    per_key: int = 1
    spread: Literal["equal", "random"] = "equal"
    row_bytes: int = 97
    fill: float = 0.8

    @property
    def keys(self) -> int:
        """Distinct keys."""
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


@dataclass(frozen=True)
class Parts:
    """The table Part of TPC-H.

    Attributes:
        factor: Its scale factor in the paper.
    """

    factor: float

    def open(self, world: World) -> Master:
        """The master at this scale."""
        factor = self.factor / world.scale

        def build(path: Path) -> None:
            tpch = TPCH(world.data / "tpch", "part", scale=factor)
            _build(tpch.master(), tpch.master_key, path, 0.8)

        return Master.open(built_once(world.data / f"part-{factor:g}", build))


@dataclass(frozen=True)
class Clouds:
    """Cloud reports of two months by longitude; at a scale, longitudes are coarser.

    Attributes:
        rows: Rows in the paper.
    """

    rows: int

    def open(self, world: World) -> Master:
        """The master at this scale."""
        rows = world.scaled(self.rows)

        def build(path: Path) -> None:
            _build(coarser(CloudReports(seed=world.seed).master(rows), world), "longitude", path, 0.8)

        return Master.open(built_once(world.data / f"clouds-{rows}-{world.scale}-{world.seed}", build))


def coarser(reports: pa.RecordBatchReader, world: World) -> pa.RecordBatchReader:
    """Reports with fewer distinct longitudes, so that each has as many reports as in the paper."""
    place = reports.schema.get_field_index("longitude")

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reports:
            longitude = batch.column(place).to_numpy() // world.scale
            yield batch.set_column(place, reports.schema.field(place), pa.array(longitude))

    return pa.RecordBatchReader.from_batches(reports.schema, batches())


def _build(rows: pa.RecordBatchReader, key: str, path: Path, fill: float) -> None:
    Master.build(rows, key=key, path=path, page_bytes=PAGE_BYTES, fill=fill).close()


def built_once(path: Path, build: Callable[[Path], None]) -> Path:
    """Build it unless it exists; of two processes that need it, one builds and the other waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name(path.name + ".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            build(unfinished)
            unfinished.rename(path)
    return path
