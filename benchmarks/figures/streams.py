"""Streams of the figures, drawn anew for every measurement from the same seed."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from adjoin.workloads import Records, ShiftingZipf, Zipf
from benchmarks.figures.figure import World

ROW_BYTES = 20


@dataclass(frozen=True)
class ZipfStream:
    """Keys by Zipf's law; sizes are those of the paper.

    Attributes:
        keys: Different keys.
        rows: Rows of the stream.
        skew: The exponent.
        placement: "noperm" puts the most frequent keys side by side, "random" anywhere.
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
    """Keys of one slice of the domain after the other, by Zipf's law within a slice; sizes are the paper's.

    Attributes:
        keys: Different keys over all slices.
        intervals: Slices.
        interval_rows: Rows of each.
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
