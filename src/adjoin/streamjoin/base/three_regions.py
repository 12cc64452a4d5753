"""The flush policy of DINER and MINER: three regions of keys per join attribute (Algorithms 2 and 3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import FlushPolicy, Leaving, Shortage
from adjoin.streamjoin.memory.ordered_index import Entries, OrderedIndex
from adjoin.streamjoin.memory.tuples import KeyIntervals, MemoryTuples

UPPER, LOWER, MIDDLE = 0, 1, 2
"""In the order in which ties are broken."""
_LEAST_BLOCKS = 4
"""With fewer tuples than this many blocks hold, all belong to the middle."""
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass
class RegionStatistics:
    """Statistics of one join attribute: keys up to `lower`, keys from `upper` on, and those between.

    Attributes:
        lower: The greatest key of the lower region (LastLwVal); None while there is none.
        upper: The least key of the upper region (LastUpVal); None while there is none.
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
        """The region with the fewest joins per tuple, of those that have tuples.

        Without any joins all are equal: the paper flushes the upper region, here the clock sweeps the middle.
        """
        if self.tuples[MIDDLE] and not self.joins.any():
            return MIDDLE
        return int(np.argmin(self._benefits()))

    @property
    def least_benefit(self) -> float:
        """The joins per tuple of that region."""
        return float(self._benefits().min())

    def _benefits(self) -> Array:
        benefits: Array = np.where(self.tuples > 0, self.joins / np.maximum(self.tuples, 1), np.inf)
        return benefits

    def reset(self, least: int, greatest: int, block: int, index: OrderedIndex) -> None:
        """A block of tuples with keys from `least` to `greatest` has left; the index has the others."""
        self.joins[:] = 0
        if len(index) < _LEAST_BLOCKS * block:
            self.lower = self.upper = None
        else:
            if self.lower is None or least <= self.lower:
                self.lower = int(index.keys(index.lowest(block)).max())
            if self.lower == _GREATEST:
                self.upper = None
            elif self.upper is None or greatest >= self.upper or self.upper <= self.lower:
                self.upper = max(int(index.keys(index.highest(block)).min()), self.lower + 1)
        below = 0 if self.lower is None else index.count(_LEAST, self.lower)
        above = 0 if self.upper is None else index.count(self.upper, _GREATEST)
        self.tuples[:] = above, below, len(index) - above - below

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        counts = {"joins": self.joins.tolist(), "tuples": self.tuples.tolist()}
        return {"lower": self.lower, "upper": self.upper, **counts}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "RegionStatistics":
        """The statistics from the state that `to_json` returned."""
        return cls(saved["lower"], saved["upper"], np.array(saved["joins"]), np.array(saved["tuples"]))

    def check_invariants(self, index: OrderedIndex) -> None:
        """Raise AssertionError if regions overlap, or counts are wrong."""
        if self.lower is not None and self.upper is not None:
            assert self.lower < self.upper
        _, low, _ = index.places(index.all())
        assert (self.tuples == self.count(low)).all()
        assert self.tuples.sum() == len(index)
        assert (self.joins >= 0).all()


class ThreeRegions(FlushPolicy):
    """Flushes the least useful region of the input that has the most tuples in memory.

    Every join attribute of an input has its own three regions. From the upper and the lower region the
    outermost tuples leave; the middle is swept by a clock that spares tuples with a match since it last
    passed. At first everything is middle. After the upper or the lower region was flushed, or if it is empty,
    its bound is moved so that it holds about a block of tuples.

    Args:
        attributes: How many join attributes each input has.
        seed: Of the pseudo-random start of the clock.
    """

    credits_matches = True

    def __init__(self, attributes: Sequence[int] = (1, 1), seed: int = 0) -> None:
        self.regions = [[RegionStatistics() for _ in range(count)] for count in attributes]
        self._random = np.random.default_rng(seed)
        self._has_begun = [[False] * count for count in attributes]

    def joined(self, side: int, low: Array, attribute: int = 0) -> None:
        """Credit each match to the region of the tuple."""
        regions = self.regions[side][attribute]
        regions.joins += regions.count(low)

    def added(self, side: int, keys: KeyIntervals) -> None:
        """Count the tuples in their regions."""
        for regions, (low, _) in zip(self.regions[side], keys, strict=True):
            regions.tuples += regions.count(low)

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """Tuples of the least useful region of the largest input."""
        side, inputs = shortage.preferred, shortage.inputs
        if side is None:
            side = int(np.argmax([len(tuples) for tuples in inputs]))
        attribute = int(np.argmin([regions.least_benefit for regions in self.regions[side]]))
        index, regions = inputs[side].indexes[attribute], self.regions[side][attribute]
        if not self._has_begun[side][attribute]:
            self._has_begun[side][attribute] = True
            index.start_clock(self._random.random())
        region = regions.least_useful
        count = min(shortage.rows[side], int(regions.tuples[region]))
        yield Leaving(side, self._of_region(index, regions, region, count), attribute)

    def _of_region(self, index: OrderedIndex, regions: RegionStatistics, region: int, count: int) -> Entries:
        if region == UPPER:
            return index.highest(count)
        if region == LOWER:
            return index.lowest(count)
        first = _LEAST if regions.lower is None else regions.lower + 1
        last = _GREATEST if regions.upper is None else regions.upper - 1
        return index.coldest(count, first, last)

    def flushed(self, side: int, low: Sequence[Array], tuples: MemoryTuples) -> None:
        """Reset the counts, and move the bounds of regions that lost their tuples."""
        for regions, keys, index in zip(self.regions[side], low, tuples.indexes, strict=True):
            regions.reset(int(keys.min()), int(keys.max()), len(keys), index)

    def check_invariants(self, inputs: Sequence[MemoryTuples]) -> None:
        """Raise AssertionError if regions overlap, or counts are wrong."""
        for of_input, tuples in zip(self.regions, inputs, strict=True):
            for regions, index in zip(of_input, tuples.indexes, strict=True):
                regions.check_invariants(index)

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        regions = [[regions.to_json() for regions in of_input] for of_input in self.regions]
        return {
            "regions": regions,
            "has_begun": self._has_begun,
            "random": self._random.bit_generator.state,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self._has_begun = saved["has_begun"]
        self._random.bit_generator.state = saved["random"]
        self.regions = [
            [RegionStatistics.from_json(each) for each in of_input] for of_input in saved["regions"]
        ]
