"""Keys in order, except for some cuts."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.seeds import state_of, units


def partly_sorted(
    draw: Callable[[int], NDArray[np.int64]], rows: int, intervals: int, *, seed: int = 0
) -> NDArray[np.int64]:
    """`rows` keys, sorted, cut into intervals of equal length, and these put in random order.

    >>> partly_sorted(lambda rows: np.arange(rows)[::-1], 8, 4, seed=2).tolist()
    [0, 1, 6, 7, 4, 5, 2, 3]

    Reference:
        M. A. Bornea, V. Vassalos, Y. Kotidis, A. Deligiannakis, Adaptive join operators for result rate
        optimization on streaming inputs, TKDE 2010, figure 14.
    """
    if not 1 <= intervals <= max(rows, 1):
        raise OptionError(f"intervals={intervals}: it must be in [1, {rows}], the number of rows")
    parts = np.array_split(np.sort(draw(rows)), intervals)
    order = np.argsort(units(state_of(seed, "order of intervals"), intervals))
    return np.concatenate([parts[part] for part in order])
