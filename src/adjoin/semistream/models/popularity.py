"""How often the stream wants what: weights of pages, and shares of the partitions they are read in."""

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adjoin.errors import OptionError
from adjoin.semistream.models.setting import Array

_HEAD = 128
"""Terms of a sum of powers that are added one by one; behind them the expansion is exact to rounding."""
_WORK_BYTES = 64
"""What a model uses for every weight while it works."""
_NOTHING = 1e-15
"""A share that rounding leaves over."""
_BINS_PER_OCTAVE_BITS = (
    49  # what is left of a float64 without these bits: exponent and three bits of fraction
)
_BINS = 8 * 24
_ONE = int(np.float64(1).view(np.int64)) >> _BINS_PER_OCTAVE_BITS


def power_sum(terms: ArrayLike, exponent: float) -> Array:
    """Sums of x**-exponent over x = 1..terms: the harmonic numbers, if the exponent is 1.

    How it works: the first terms are added, the others follow from Euler and Maclaurin.

    Example:
        >>> power_sum([1, 4], 1.0).tolist()
        [1.0, 2.083333333333333]

    Cost:
        Time O(1) per sum, whatever its length.
    """
    count = np.asarray(terms, np.float64)
    head = np.append(0.0, np.cumsum(np.arange(1.0, _HEAD + 1) ** -exponent))
    x = np.maximum(count, _HEAD)
    tail = _integral(x, exponent) - _integral(np.float64(_HEAD), exponent)
    tail += _correction(x, exponent) - _correction(np.float64(_HEAD), exponent)
    return head[np.minimum(count, _HEAD).astype(np.int64)] + np.where(count > _HEAD, tail, 0.0)


def _integral(x: Array | np.float64, exponent: float) -> Array:
    """The integral of t**-exponent over t = 1..x."""
    rest = 1 - exponent
    return np.asarray(np.log(x) if rest == 0 else np.expm1(rest * np.log(x)) / rest)


def _correction(x: Array | np.float64, s: float) -> Array:
    return np.asarray(x**-s / 2 - s * x ** (-s - 1) / 12 + s * (s + 1) * (s + 2) * x ** (-s - 3) / 720)


def coarser(weights: Array, room_bytes: int) -> tuple[Array, int]:
    """Weights of groups of neighboring pages, so large that a model has room for its work; and their size.

    Example:
        >>> coarser(np.arange(6.0), room_bytes=10_000)[1]
        1
        >>> together, pages = coarser(np.arange(6.0), room_bytes=200)
        >>> together.tolist(), pages
        ([1.0, 5.0, 9.0], 2)
    """
    pages = max(1, -(-_WORK_BYTES * len(weights) // max(room_bytes, 1)))
    starts = np.arange(0, len(weights), pages)
    return np.add.reduceat(weights, starts, dtype=np.float64), pages


def zipf_weights(master_rows: int, rows_per_page: int, exponent: float) -> Array:
    """Share of the stream that wants each page, of a master sorted by frequency, under Zipf's law.

    Example:
        >>> zipf_weights(4, 2, 1.0).round(2).tolist()
        [0.72, 0.28]

    Cost:
        Time and memory O(pages).
    """
    if master_rows < 1 or rows_per_page < 1 or not 0 <= exponent < math.inf:
        raise OptionError(
            f"master_rows={master_rows}, rows_per_page={rows_per_page}, exponent={exponent}: one is too small"
        )
    edges = np.minimum(np.arange(0, master_rows + rows_per_page, rows_per_page), master_rows)
    sums = power_sum(edges, exponent)
    return np.diff(sums) / sums[-1]


@dataclass(frozen=True)
class Partitions:
    """What stream rows want that pinned pages do not answer.

    Attributes:
        share: Share of those rows that wants one partition; partitions that are nearly alike count together.
            The last axis runs over partitions, others over the points of a grid.
        count: How many such partitions there are.
        pinned_share: Share of all rows that pinned pages answer.
    """

    share: Array
    count: Array
    pinned_share: Array


class Popularity:
    """Pages by how often the stream wants them, in disk order.

    Pages that are not pinned are read in aligned partitions of several. Pinned are always the hottest.

    Args:
        weights: Rows that wanted each page, or any multiple. A page of weight 0 is taken as never wanted.

    Example:
        >>> popularity = Popularity([4, 1, 3, 2])
        >>> popularity.partitions(swappable_pages=2).share.tolist()
        [0.5, 0.5]
        >>> one = popularity.partitions(swappable_pages=2, pinned_pages=2)
        >>> float(one.pinned_share), one.share.round(2).tolist()
        (0.7, [0.33, 0.67])

    Cost:
        Time O(pages) for every size of partitions; on a grid, every step of pinning adds the pages it pins.
    """

    def __init__(self, weights: ArrayLike) -> None:
        given = np.asarray(weights, np.float64)
        if given.ndim != 1 or not len(given) or not np.isfinite(given).all() or given.min() < 0:
            raise OptionError("weights: give one number for each page, at least 0")
        if not given.any():
            raise OptionError("weights: all are 0; give those of pages that the stream has wanted")
        self.weights: Array = given / given.sum()
        self._hottest: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.weights)

    def hottest(self, pages: int) -> NDArray[np.int64]:
        """The pages that are wanted most, the hottest first."""
        if pages > len(self._hottest):
            known = np.argpartition(-self.weights, min(pages, len(self)) - 1)[:pages]
            self._hottest = known[np.argsort(-self.weights[known], kind="stable")]
        return self._hottest[:pages]

    def partitions(self, swappable_pages: int, pinned_pages: int = 0) -> Partitions:
        """All partitions of this many pages, each counted alone, next to the pinned pages."""
        pinned = self.hottest(pinned_pages)
        masses = self._masses(swappable_pages)
        np.subtract.at(masses, pinned // swappable_pages, self.weights[pinned])
        wanted = masses[masses > _NOTHING]
        if not len(wanted):
            wanted = np.array([_NOTHING])
        rest = wanted.sum()
        return Partitions(wanted / rest, np.ones(len(wanted)), np.asarray(1 - rest))

    def grid(self, swappable_pages: NDArray[np.int64], pinned_pages: NDArray[np.int64]) -> Partitions:
        """Partitions for many pairs of sizes, those of nearly equal share counted together.

        Shares that differ by less than an eighth share a bin, and are replaced by their mean.
        """
        totals, counts = np.empty((2, len(swappable_pages), _BINS))
        self.hottest(int(pinned_pages.max(initial=0)))
        order = np.lexsort((pinned_pages, swappable_pages))
        for pages, points in groupby(order.tolist(), lambda point: int(swappable_pages[point])):
            masses, done = self._masses(pages), 0
            bins = _histogram(masses)
            for point in points:
                pinned = self.hottest(int(pinned_pages[point]))[done:]
                done += len(pinned)
                bins += self._pin(masses, pinned, pages)
                totals[point], counts[point] = bins
        totals[counts == 0] = 0
        nothing_left = ~counts.any(axis=1)
        totals[nothing_left, -1], counts[nothing_left, -1] = _NOTHING, 1
        rest = totals.sum(axis=1)
        return Partitions(totals / np.maximum(counts, 1) / rest[:, None], counts, 1 - rest)

    def _pin(self, masses: Array, pinned: NDArray[np.int64], swappable_pages: int) -> Array:
        """Take pages from their partitions; how the bins change."""
        touched = np.unique(pinned // swappable_pages)
        before = _histogram(masses[touched])
        np.subtract.at(masses, pinned // swappable_pages, self.weights[pinned])
        return _histogram(masses[touched]) - before

    def _masses(self, swappable_pages: int) -> Array:
        return np.add.reduceat(self.weights, np.arange(0, len(self), swappable_pages))


def _histogram(masses: Array) -> Array:
    """Sums and numbers of masses in bins of equal ratio; the last has all that are smaller."""
    wanted = masses[masses > _NOTHING]
    bins = np.clip(_ONE - (wanted.view(np.int64) >> _BINS_PER_OCTAVE_BITS), 0, _BINS - 1)
    return np.stack((np.bincount(bins, wanted, _BINS), np.bincount(bins, minlength=_BINS)))
