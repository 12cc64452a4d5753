"""DINER's flush policy: three regions of keys for each input, and what each brings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjoin.kernels.types import Array
from adjoin.streamjoin.flushing import FlushPolicy, Shortage
from adjoin.streamjoin.index import Entries, OrderedIndex
from adjoin.streamjoin.tuples import Tuples

UPPER, LOWER, MIDDLE = 0, 1, 2
"""In the order in which equal ones go."""
_LEAST_BLOCKS = 4
"""With fewer tuples than so many blocks have, all is middle."""
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass
class Regions:
    """The regions of one input: keys up to `lower`, keys from `upper` on, and those between.

    Attributes:
        lower: The greatest key of the lower region; None while there is none.
        upper: The least key of the upper region; None while there is none.
        joins: Matches in each region since the last flush of this input.
        tuples: Tuples in memory in each region.
    """

    lower: int | None = None
    upper: int | None = None
    joins: Array = field(default_factory=lambda: np.zeros(3, np.int64))
    tuples: Array = field(default_factory=lambda: np.zeros(3, np.int64))

    def count(self, low: Array) -> Array:
        """How many of these keys lie in each region."""
        below = 0 if self.lower is None else int(np.count_nonzero(low <= self.lower))
        above = 0 if self.upper is None else int(np.count_nonzero(low >= self.upper))
        return np.array([above, below, len(low) - above - below])

    @property
    def least_useful(self) -> int:
        """The region, of those with tuples, that has the fewest joins for each of them."""
        there = np.flatnonzero(self.tuples)
        return int(there[np.argmin(self.joins[there] / self.tuples[there])])


class ThreeRegions(FlushPolicy):
    """Flushes the least useful region of the input that has more tuples in memory.

    Of the outer regions the outermost tuples go; the middle is swept by a clock that spares tuples with a
    match since it passed. All is middle at first. After an outer region was flushed, or where it is empty,
    its bound is set so that it holds about a block of tuples.

    Args:
        seed: Where the clock begins is random.
    """

    def __init__(self, seed: int = 0) -> None:
        self.regions = (Regions(), Regions())
        self._random = np.random.default_rng(seed)
        self._has_begun = [False, False]

    def joined(self, side: int, low: Array, other_low: Array) -> None:
        """Both tuples of a match are credited, each in its own region."""
        self.regions[side].joins += self.regions[side].count(low)
        self.regions[1 - side].joins += self.regions[1 - side].count(other_low)

    def added(self, side: int, low: Array) -> None:
        """Count them in their regions."""
        self.regions[side].tuples += self.regions[side].count(low)

    def choose(self, shortage: Shortage) -> Iterator[tuple[int, Entries]]:
        """Tuples of the least useful region of the larger input."""
        side, inputs = shortage.preferred, shortage.inputs
        if side is None:
            side = 0 if len(inputs[0]) >= len(inputs[1]) else 1
        index, regions = inputs[side].index, self.regions[side]
        if not self._has_begun[side]:
            self._has_begun[side] = True
            index.start_clock(self._random.random())
        region = regions.least_useful
        count = min(shortage.rows[side], int(regions.tuples[region]))
        yield side, self._of_region(index, regions, region, count)

    def _of_region(self, index: OrderedIndex, regions: Regions, region: int, count: int) -> Entries:
        if region == UPPER:
            return index.highest(count)
        if region == LOWER:
            return index.lowest(count)
        first = _LEAST if regions.lower is None else regions.lower + 1
        last = _GREATEST if regions.upper is None else regions.upper - 1
        return index.coldest(count, first, last)

    def flushed(self, side: int, low: Array, tuples: Tuples) -> None:
        """Begin to count anew, and set the bounds of regions that lost their tuples."""
        regions, index, block = self.regions[side], tuples.index, len(low)
        regions.joins[:] = 0
        if len(index) < _LEAST_BLOCKS * block:
            regions.lower = regions.upper = None
        else:
            if regions.lower is None or low[0] <= regions.lower:
                regions.lower = int(index.keys(index.lowest(block)).max())
            if regions.lower == _GREATEST:
                regions.upper = None
            elif regions.upper is None or low[-1] >= regions.upper or regions.upper <= regions.lower:
                regions.upper = max(int(index.keys(index.highest(block)).min()), regions.lower + 1)
        below = 0 if regions.lower is None else index.count(_LEAST, regions.lower)
        above = 0 if regions.upper is None else index.count(regions.upper, _GREATEST)
        regions.tuples[:] = above, below, len(index) - above - below

    def check_invariants(self, inputs: Sequence[Tuples]) -> None:
        """Raise AssertionError if regions overlap, or do not count what is in them."""
        for regions, tuples in zip(self.regions, inputs, strict=True):
            if regions.lower is not None and regions.upper is not None:
                assert regions.lower < regions.upper
            _, low, _ = tuples.index.places(tuples.index.all())
            assert (regions.tuples == regions.count(low)).all()
            assert regions.tuples.sum() == len(tuples)
            assert (regions.joins >= 0).all()

    def to_json(self) -> dict[str, Any]:
        """What must be known to go on."""
        regions = [
            {
                "lower": regions.lower,
                "upper": regions.upper,
                "joins": regions.joins.tolist(),
                "tuples": regions.tuples.tolist(),
            }
            for regions in self.regions
        ]
        return {"regions": regions, "has_begun": self._has_begun}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        self._has_begun = saved["has_begun"]
        for regions, before in zip(self.regions, saved["regions"], strict=True):
            regions.lower, regions.upper = before["lower"], before["upper"]
            regions.joins[:], regions.tuples[:] = before["joins"], before["tuples"]
