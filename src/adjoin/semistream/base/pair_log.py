"""Pairs one after the other, in memory that is taken as they come and given back at once."""

import mmap

import numpy as np

from adjoin.kernels.types import Array


class PairLog:
    """Pairs as one array that never moves: room for the most is only reserved.

    Args:
        most: The most pairs that there can be.
    """

    def __init__(self, most: int) -> None:
        # Private, because only private memory is given back when the system is told so.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, 8 * max(most, 1), flags=private)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            self._mapping.madvise(mmap.MADV_NOHUGEPAGE)
        self._pairs: Array = np.frombuffer(self._mapping, np.int64)
        self.most = len(self._pairs)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, pairs: Array) -> None:
        self._pairs[self._length : self._length + len(pairs)] = pairs
        self._length += len(pairs)

    def all(self) -> Array:
        """The pairs, in place."""
        return self._pairs[: self._length]

    def clear(self) -> None:
        """Forget all pairs, and give their memory back."""
        self._length = 0
        self._mapping.madvise(mmap.MADV_DONTNEED)
