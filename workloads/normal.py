"""Normal keys with a mean that may move."""

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.seeds import Normals


class NormalKeys:
    """Integer keys drawn from a normal distribution whose mean moves from period to period.

    Args:
        mean: The mean of the first period.
        variance: The variance, 0 or more.
        shift: The increase of the mean from one period to the next.
        period_rows: Rows per period.
        seed: The same seed gives the same keys, whatever the batch sizes.

    Example:
        >>> keys = NormalKeys(500, 50, seed=1).draw(100_000)
        >>> round(float(keys.mean())), round(float(keys.var()))
        (500, 50)
        >>> NormalKeys(10, 0, shift=5, period_rows=2).draw(5).tolist()
        [10, 10, 15, 15, 20]

    Cost:
        Time O(rows); memory O(rows) in addition to the result.

    Reference:
        M. A. Bornea, V. Vassalos, Y. Kotidis, A. Deligiannakis, Adaptive join operators for result rate
        optimization on streaming inputs, TKDE 2010, figures 11, 12 and 15.
    """

    def __init__(
        self, mean: float, variance: float, *, shift: float = 0.0, period_rows: int = 1, seed: int = 0
    ) -> None:
        if not variance >= 0:
            raise OptionError(f"variance={variance}: it must be at least 0")
        if period_rows < 1:
            raise OptionError(f"period_rows={period_rows}: it must be at least 1")
        self._mean = mean
        self._deviation = variance**0.5
        self._shift = shift
        self._period_rows = period_rows
        self._normals = Normals(seed, "normal keys")
        self._drawn_rows = 0

    def draw(self, rows: int) -> NDArray[np.int64]:
        """The next `rows` keys."""
        period = (self._drawn_rows + np.arange(rows)) // self._period_rows
        self._drawn_rows += rows
        means = self._mean + self._shift * period
        return np.rint(means + self._deviation * self._normals.draw(rows)).astype(np.int64)
