"""Values that wander and return, like prices and temperatures."""

import numpy as np
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.sampling import follow_mean
from workloads.seeds import Normals


class MeanRevertingWalk:
    """Integer keys of a random walk: each is the one before, pulled back towards a level, plus a random step.

    Args:
        level: The level it returns to.
        deviation: The long-term standard deviation from the level.
        pull: The share of the distance by which every step is pulled back, above 0, at most 1; the memory of
            the walk is 1 / pull steps.
        seed: The same seed gives the same keys, whatever the batch sizes.

    Example:
        >>> keys = MeanRevertingWalk(1850, 20, 0.01, seed=3).draw(200_000)
        >>> round(float(keys.mean()), -1), round(float(keys.std()), -1)
        (1850.0, 20.0)
        >>> bool(abs(np.diff(keys)).max() < 20)
        True

    Cost:
        Time O(rows); memory O(rows) in addition to the result.
    """

    def __init__(self, level: float, deviation: float, pull: float, *, seed: int = 0) -> None:
        if not 0 < pull <= 1:
            raise OptionError(f"pull={pull}: it must be above 0 and at most 1")
        self._level = level
        self._pull = pull
        self._step = deviation * (1 - (1 - pull) ** 2) ** 0.5
        self._normals = Normals(seed, "walk")
        self._distance = deviation * float(self._normals.draw(1)[0])

    def draw(self, rows: int) -> NDArray[np.int64]:
        """The next `rows` keys."""
        distances = self._step * self._normals.draw(rows)
        follow_mean(distances, self._distance, self._pull)
        if rows:
            self._distance = float(distances[-1])
        return np.rint(self._level + distances).astype(np.int64)
