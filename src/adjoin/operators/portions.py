"""Cutting work into portions of limited size."""

from collections.abc import Iterator

import numpy as np

from adjoin.kernels.types import Array


def portions(sizes: Array, limit: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges begin..end-1 of entries whose sizes add up to at most `limit`.

    A range has at least one entry, even if that is larger than the limit.

    >>> list(portions(np.array([3, 3, 9, 0, 2]), 6))
    [(0, 2), (2, 3), (3, 5)]
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    begin = 0
    while begin < len(sizes):
        before = ends[begin - 1] if begin else 0
        end = max(int(np.searchsorted(ends, before + limit, side="right")), begin + 1)
        yield begin, end
        begin = end
