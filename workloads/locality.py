"""Keys that move to another part of the domain in every period."""

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.seeds import state_of
from workloads.zipf import Form, Placement, Zipf


class ShiftingZipf:
    """Keys 0..n-1 drawn from one slice after another, by Zipf's law within the slice.

    How it works:
        The keys are cut into `intervals` slices of equal size. The first `interval_rows` rows are Zipf keys
        of the first slice, the next ones of the second, and so on. After the last slice the first one
        follows again, with the same frequent keys.

    Args:
        n: The number of distinct keys over all slices.
        intervals: The number of slices, 1 to n.
        interval_rows: Rows drawn from a slice before the next one.
        exponent: The skew within a slice, at least 0 (uniform).
        form: As in `Zipf`.
        placement: As in `Zipf`, within the slice.
        seed: The same seed gives the same keys, whatever the batch sizes.

    Example:
        >>> keys = ShiftingZipf(1000, intervals=4, interval_rows=500, seed=7).draw(2000)
        >>> [int(period.min()) // 250 for period in keys.reshape(4, 500)]
        [0, 1, 2, 3]
        >>> int(keys[500:1000].max()) < 500
        True

    Cost:
        Time O(rows + slices), as fast as `Zipf` if slices have thousands of rows; memory O(intervals).

    Reference:
        M. A. Bornea, A. Deligiannakis, Y. Kotidis, V. Vassalos, Semi-streamed index join for near-real time
        execution of ETL transformations, ICDE 2011, section VI (temporal locality) and figure 10, where n is
        5 million, intervals 20 and interval_rows 2 million.

    Departures:
        A slice does not contain its upper bound, which is the first key of the next one.
    """

    def __init__(
        self,
        n: int,
        intervals: int,
        interval_rows: int,
        exponent: float = 1.0,
        *,
        form: Form = "discrete",
        placement: Placement = "noperm",
        seed: int = 0,
    ) -> None:
        if not 1 <= intervals <= n:
            raise OptionError(f"intervals={intervals}: it must be in [1, {n}], the number of keys")
        if interval_rows < 1:
            raise OptionError(f"interval_rows={interval_rows}: it must be at least 1")
        self.n = n
        self.intervals = intervals
        self.interval_rows = interval_rows
        self._drawn_rows = 0
        self._slices = [
            Zipf(past - first, exponent, form=form, placement=placement, seed=_seed_of(i, seed))
            for i in range(intervals)
            for first, past in [self.slice_of(i)]
        ]

    @property
    def interval(self) -> int:
        """The slice from which the next row is drawn."""
        return self._drawn_rows // self.interval_rows % self.intervals

    def slice_of(self, interval: int) -> tuple[int, int]:
        """The first key of a slice, and the key after its last.

        >>> ShiftingZipf(10, intervals=3, interval_rows=1).slice_of(1)
        (3, 6)
        """
        if not 0 <= interval < self.intervals:
            raise OptionError(f"interval={interval}: it must be in [0, {self.intervals})")
        return interval * self.n // self.intervals, (interval + 1) * self.n // self.intervals

    def draw(self, rows: int) -> NDArray[np.int64]:
        """The next `rows` keys.

        >>> ShiftingZipf(10, intervals=2, interval_rows=3, exponent=9, seed=1).draw(8).tolist()
        [0, 0, 0, 5, 5, 5, 0, 0]
        """
        keys = np.empty(rows, np.int64)
        done = 0
        while done < rows:
            some = min(rows - done, self.interval_rows - self._drawn_rows % self.interval_rows)
            first, _ = self.slice_of(self.interval)
            np.add(self._slices[self.interval].draw(some), first, out=keys[done : done + some])
            self._drawn_rows += some
            done += some
        return keys


def _seed_of(interval: int, seed: int) -> int:
    return int(state_of(seed, f"slice {interval}")[0])
