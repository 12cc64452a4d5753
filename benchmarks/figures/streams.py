"""Streams of the figures, drawn again from the same seed for every measurement."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from benchmarks.figures.figure import World
from benchmarks.figures.masters import coarser
from workloads import TPCH, CloudReports, Records, ShiftingZipf, Zipf

ROW_BYTES = 20


@dataclass(frozen=True)
class ZipfStream:
    """Zipf keys, with the paper's sizes.

    Attributes:
        keys: Distinct keys.
        rows: Rows of the stream.
        skew: The exponent.
        placement: "noperm" makes the most frequent keys adjacent, "random" scatters them.
        form: As in `Zipf`.
    """

    keys: int
    rows: int
    skew: float = 1.0
    placement: Literal["noperm", "random"] = "noperm"
    form: Literal["discrete", "continuous"] = "discrete"

    def draw(self, world: World) -> pa.RecordBatch:
        """All rows at this scale."""
        zipf = Zipf(
            world.scaled(self.keys),
            self.skew,
            form=self.form,
            placement=self.placement,
            seed=world.seed,
        )
        return Records(ROW_BYTES, seed=world.seed).batch(zipf.draw(world.scaled(self.rows)))


@dataclass(frozen=True)
class LocalStream:
    """Keys of one slice of the domain after another, Zipf within a slice, with the paper's sizes.

    Attributes:
        keys: Distinct keys over all slices.
        intervals: The number of slices.
        interval_rows: Rows per slice.
        skew: The exponent.
    """

    keys: int
    intervals: int
    interval_rows: int
    skew: float = 1.0

    def draw(self, world: World) -> pa.RecordBatch:
        """All rows at this scale, each slice once."""
        interval_rows = world.scaled(self.interval_rows)
        zipf = ShiftingZipf(
            world.scaled(self.keys), self.intervals, interval_rows, self.skew, seed=world.seed
        )
        return Records(ROW_BYTES, seed=world.seed).batch(zipf.draw(self.intervals * interval_rows))


@dataclass(frozen=True)
class LineItems:
    """The first rows of the table LineItem of TPC-H.

    Attributes:
        factor: Its scale factor in the paper.
        rows: Rows in the paper.
    """

    factor: float
    rows: int

    def draw(self, world: World) -> pa.RecordBatch:
        """All rows at this scale, 20 bytes each."""
        tpch = TPCH(world.data / "tpch", "part", scale=self.factor / world.scale)
        columns = ["l_partkey", "l_orderkey", "l_linenumber"]
        return _whole(tpch.stream(world.scaled(self.rows), columns))


@dataclass(frozen=True)
class CloudStream:
    """Cloud reports of a third month, 128 bytes each.

    Attributes:
        rows: Rows in the paper.
    """

    rows: int

    def draw(self, world: World) -> pa.RecordBatch:
        """All rows at this scale."""
        return _whole(coarser(CloudReports(seed=world.seed).stream(world.scaled(self.rows)), world))


def _whole(reader: pa.RecordBatchReader) -> pa.RecordBatch:
    return pa.concat_batches(list(reader))
