"""Bursty arrivals."""

import heapq
import random

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError


class BurstyArrivals:
    """Rows per time step, bursty on every scale (self-similar), as in real streams.

    How it works:
        Source i of `sources` is off or on; while on, it sends 2**i rows per step. It stays in a state for a
        random time of up to 2**i steps, so strong sources rarely change. The rows that arrive are the sum
        over the sources that are on.

    Args:
        sources: The number of sources; the mean rate is 2**sources - 1 rows per step, the maximum twice that.
        seed: The same seed gives the same arrivals, whatever the batch sizes.

    Example:
        >>> arrivals = BurstyArrivals(sources=10, seed=3)
        >>> rows = arrivals.rows(10_000)
        >>> arrivals.mean_rows, arrivals.max_rows
        (1023, 2046)
        >>> bool(rows.min() >= 0 and rows.max() <= arrivals.max_rows)
        True

    Cost:
        Time O(log sources) per change of state, about two changes per step; memory O(sources).

    Reference:
        M. A. Naeem, G. Dobbie, G. Weber, HYBRIDJOIN for near-real-time data warehousing, IJDWM 7(4), 2011,
        figure 7.

    Departures:
        Each source has its own state (with one shared state, as printed, the sum can go below 0), the time
        of its next change is kept, and a source may change several times within one step.
    """

    def __init__(self, sources: int = 10, *, seed: int = 0) -> None:
        if not 1 <= sources <= 40:
            raise OptionError(f"sources={sources}: it must be in [1, 40]")
        self.sources = sources
        self._random = random.Random(seed)
        self._on = [False] * (sources + 1)
        self._step = 0
        self._total_rows = 0
        self._changes = [(self._stay(i), i) for i in range(1, sources + 1)]
        heapq.heapify(self._changes)

    @property
    def mean_rows(self) -> int:
        """Rows per step, on long-term average."""
        return (1 << self.sources) - 1

    @property
    def max_rows(self) -> int:
        """Rows per step when all sources are on."""
        return (1 << self.sources + 1) - 2

    def rows(self, steps: int) -> NDArray[np.int64]:
        """How many rows arrive in each of the next `steps` steps.

        >>> BurstyArrivals(sources=1, seed=0).rows(500).max()
        np.int64(2)
        """
        return np.fromiter((self._next() for _ in range(steps)), np.int64, steps)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the total is the sum of the sources that are on."""
        assert self._total_rows == sum(1 << i for i in range(1, self.sources + 1) if self._on[i])
        assert sorted(i for _, i in self._changes) == list(range(1, self.sources + 1))
        assert all(time > self._step for time, _ in self._changes)

    def _next(self) -> int:
        self._step += 1
        while self._changes[0][0] <= self._step:
            time, i = self._changes[0]
            self._on[i] = not self._on[i]
            self._total_rows += 1 << i if self._on[i] else -(1 << i)
            heapq.heapreplace(self._changes, (time + self._stay(i), i))
        return self._total_rows

    def _stay(self, i: int) -> float:
        return self._random.random() * (1 << i)
