"""When the rows of a stream arrive."""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.bursty import BurstyArrivals
from workloads.seeds import state_of, units

Seconds = NDArray[np.float64]

_MOST_SOURCES = 16  # the settling time doubles with every source
_SETTLING = 4  # times the strongest source's longest stay; then it is on with probability 0.500


class Arrivals(Protocol):
    """Arrival times of rows, in sequence."""

    def times(self, rows: int) -> Seconds:
        """Seconds from the start at which the next `rows` rows arrive; they never decrease."""


class ConstantRate:
    """Rows that arrive at equal intervals.

    Args:
        rows_per_second: The rate, above 0; the first row arrives after one interval.

    Example:
        >>> ConstantRate(4).times(4).tolist()
        [0.25, 0.5, 0.75, 1.0]

    Cost:
        Time O(rows); memory O(1) in addition to the result.
    """

    def __init__(self, rows_per_second: float) -> None:
        _check_rate(rows_per_second)
        self._rows_per_second = rows_per_second
        self._arrived_rows = 0

    def times(self, rows: int) -> Seconds:
        """Seconds from the start at which the next `rows` rows arrive."""
        first = self._arrived_rows + 1
        self._arrived_rows += rows
        return np.arange(first, first + rows) / self._rows_per_second


class ExponentialGaps:
    """Rows that arrive independently of each other, with exponential gaps (Poisson arrivals).

    Args:
        rows_per_second: The mean rate, above 0.
        seed: The same seed gives the same times, whatever the batch sizes.

    Example:
        >>> times = ExponentialGaps(1000, seed=3).times(100_000)
        >>> round(float(times[-1]))
        100

    Cost:
        Time O(rows); memory O(1) in addition to the result.
    """

    def __init__(self, rows_per_second: float, *, seed: int = 0) -> None:
        _check_rate(rows_per_second)
        self._rows_per_second = rows_per_second
        self._state = state_of(seed, "exponential gaps")
        self._last_seconds = 0.0

    def times(self, rows: int) -> Seconds:
        """Seconds from the start at which the next `rows` rows arrive."""
        gaps = -np.log1p(-units(self._state, rows)) / self._rows_per_second
        times = np.cumsum(np.concatenate(([self._last_seconds], gaps)))
        self._last_seconds = float(times[-1])
        return times[1:]


class Fragments:
    """Rows that arrive in fragments, with a pause after each.

    Args:
        arrivals: When rows would arrive without pauses.
        fragment_rows: Rows per fragment.
        silence: The length of a pause, as a share of the arrival time of the fragment before it.

    Example:
        >>> Fragments(ConstantRate(4), fragment_rows=2, silence=0.5).times(5).tolist()
        [0.25, 0.5, 1.0, 1.25, 1.75]

    Cost:
        That of the arrivals.

    Reference:
        M. A. Bornea, V. Vassalos, Y. Kotidis, A. Deligiannakis, Adaptive join operators for result rate
        optimization on streaming inputs, TKDE 2010, section 5.3.
    """

    def __init__(self, arrivals: Arrivals, fragment_rows: int, silence: float) -> None:
        if fragment_rows < 1 or not silence >= 0:
            raise OptionError(
                f"fragment_rows={fragment_rows} must be at least 1, silence={silence} not negative"
            )
        self._arrivals = arrivals
        self._fragment_rows = fragment_rows
        self._silence = silence
        self._arrived_rows = 0
        self._silent_seconds = 0.0
        self._began = 0.0

    def times(self, rows: int) -> Seconds:
        """Seconds from the start at which the next `rows` rows arrive."""
        times = self._arrivals.times(rows)
        later = np.empty(rows)
        done = 0
        while done < rows:
            some = min(rows - done, self._fragment_rows - self._arrived_rows % self._fragment_rows)
            later[done : done + some] = times[done : done + some] + self._silent_seconds
            done += some
            self._arrived_rows += some
            if self._arrived_rows % self._fragment_rows == 0:
                end = float(times[done - 1])
                self._silent_seconds += self._silence * (end - self._began)
                self._began = end
        return later


class SelfSimilarBursts:
    """Rows that arrive in bursts on every time scale.

    How it works:
        `BurstyArrivals` determines how many rows arrive in each step; they are spread evenly over it. The
        mean rate determines the length of a step. The sources get time to settle, because all begin off.

    Args:
        rows_per_second: The long-term mean rate, above 0; the maximum is twice that.
        sources: As in `BurstyArrivals`, 1 to 16; a step has 2**sources - 1 rows on average.
        seed: The same seed gives the same times, whatever the batch sizes.

    Example:
        >>> bursts = SelfSimilarBursts(1000, seed=3)
        >>> times = bursts.times(100_000)
        >>> bool(np.diff(times).min() >= 0)
        True
        >>> round(bursts.step_seconds, 3)
        1.023

    Cost:
        Time O(rows + steps), about 100 million rows per second on one core with 10 sources, 2 million with
        one source, whose steps have one row each; memory O(rows of some steps) in addition to the result.

    Reference:
        See `BurstyArrivals`.
    """

    def __init__(self, rows_per_second: float, sources: int = 10, *, seed: int = 0) -> None:
        _check_rate(rows_per_second)
        if not 1 <= sources <= _MOST_SOURCES:
            raise OptionError(f"sources={sources}: it must be in [1, {_MOST_SOURCES}]")
        self._bursts = BurstyArrivals(sources, seed=seed)
        self._bursts.rows(_SETTLING << sources)
        self.step_seconds = self._bursts.mean_rows / rows_per_second
        self._step = 0
        self._ready = np.empty(0)

    def times(self, rows: int) -> Seconds:
        """Seconds from the start at which the next `rows` rows arrive."""
        parts, missing_rows = [self._ready], rows - len(self._ready)
        while missing_rows > 0:
            parts.append(self._times_of_steps(missing_rows // self._bursts.mean_rows + 1))
            missing_rows -= len(parts[-1])
        times = np.concatenate(parts)
        self._ready = times[rows:].copy()
        return times[:rows]

    def _times_of_steps(self, steps: int) -> Seconds:
        rows_of_step = self._bursts.rows(steps)
        first_of_step = np.cumsum(rows_of_step) - rows_of_step
        row = np.arange(rows_of_step.sum()) - np.repeat(first_of_step, rows_of_step)
        step = np.repeat(np.arange(self._step, self._step + steps), rows_of_step)
        self._step += steps
        return (step + (row + 0.5) / np.repeat(rows_of_step, rows_of_step)) * self.step_seconds


def _check_rate(rows_per_second: float) -> None:
    if not (math.isfinite(rows_per_second) and rows_per_second > 0):
        raise OptionError(f"rows_per_second={rows_per_second}: it must be above 0")
