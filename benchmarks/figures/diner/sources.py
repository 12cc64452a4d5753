"""The keys of both relations."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.figure import World
from workloads import MeanRevertingWalk, NormalKeys, Zipf, partly_sorted

Keys = tuple[NDArray[np.int64], NDArray[np.int64]]
RELATION_ROWS = 100_000
_VALUES = 999


@dataclass(frozen=True)
class ZipfKeys:
    """Zipf keys from 1 to 999 in both relations; sorted, cut and shuffled if there are intervals."""

    skew: float = 1.0
    right_share: float = 1.0
    intervals: int = 0

    def draw(self, world: World) -> Keys:
        rows = world.scaled(RELATION_ROWS)
        left, right = (
            self._side(count, world.seed + side)
            for side, count in enumerate((rows, round(rows * self.right_share)))
        )
        return left, right

    def _side(self, rows: int, seed: int) -> NDArray[np.int64]:
        draw = Zipf(_VALUES, self.skew, form="discrete", placement="noperm", seed=seed).draw
        return partly_sorted(draw, rows, self.intervals, seed=seed) if self.intervals else draw(rows)


@dataclass(frozen=True)
class NormalPair:
    """Normal keys around 500 with variance 50 on the left, and another mean or variance on the right."""

    mean_distance: float = 0.0
    more_variance: float = 0.0

    def draw(self, world: World) -> Keys:
        rows = world.scaled(RELATION_ROWS)
        left = NormalKeys(500, 50, seed=world.seed)
        right = NormalKeys(500 + self.mean_distance, 50 + self.more_variance, seed=world.seed + 1)
        return left.draw(rows), right.draw(rows)


@dataclass(frozen=True)
class MovingNormal:
    """Normal keys with variance 15 whose mean rises ten times, in both relations."""

    shift: float = 0.0

    def draw(self, world: World) -> Keys:
        rows = world.scaled(RELATION_ROWS)
        left, right = (
            NormalKeys(75, 15, shift=self.shift, period_rows=rows // 10, seed=world.seed + side).draw(rows)
            for side in (0, 1)
        )
        return left, right


@dataclass(frozen=True)
class Stock:
    """Prices in cents at which one stock is bought and sold, half of the rows each: both follow one walk."""

    rows: int
    level: float
    deviation: float

    def draw(self, world: World) -> Keys:
        prices = MeanRevertingWalk(self.level, self.deviation, 1 / 2000, seed=world.seed).draw(self.rows)
        return prices[::2], prices[1::2]


@dataclass(frozen=True)
class Weather:
    """Temperatures of two stations that share the weather, with a deviation at the second."""

    rows: int = 45_000

    def draw(self, world: World) -> Keys:
        shared = MeanRevertingWalk(50, 12, 1 / 3000, seed=world.seed).draw(self.rows)
        own = MeanRevertingWalk(3, 5, 1 / 500, seed=world.seed + 1).draw(self.rows)
        return shared, shared + own


CSCO = Stock(20_710, 1850, 15)
IPIX = Stock(45_568, 450, 10)
WEATHER = Weather()
