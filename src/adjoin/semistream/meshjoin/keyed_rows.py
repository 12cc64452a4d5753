"""Pending rows, ordered by key."""

import numpy as np

from adjoin.kernels.merging import merge_keyed
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array

_LEAST = np.iinfo(np.int64).min


class KeyedRows:
    """Numbers of rows, ordered by the least key that each matches.

    >>> rows = KeyedRows()
    >>> keys = np.array([30, 10, 20])
    >>> rows.add(keys, keys, first_number=0)
    >>> begin, count = rows.between(np.array([15]), np.array([40]))
    >>> rows.numbers[begin[0] : begin[0] + count[0]]
    array([2, 0], dtype=int32)

    Attributes:
        numbers: The numbers of the rows, in key order.
    """

    row_bytes = 24
    """Of a row: key and number, and a copy of both while rows are merged."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._keys: Array = np.empty(0, np.int64)
        self.numbers: Array = np.empty(0, np.int32)
        self._widest = 0

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, low: Array, high: Array, first_number: int) -> None:
        """Add rows that match the keys from `low` to `high`, numbered from `first_number`."""
        order = argsort_keys(low).astype(np.int32)
        self._keys, self.numbers = merge_keyed(
            self._keys, self.numbers, low[order], order + np.int32(first_number)
        )
        if low is not high and len(low):
            self._widest = max(self._widest, _greatest_distance(low, high))

    def between(self, first: Array, last: Array) -> tuple[Array, Array]:
        """Where the rows that may match a key from `first` to `last` begin, and how many there are."""
        begin = np.searchsorted(self._keys, _less(first, self._widest), "left")
        end = np.searchsorted(self._keys, last, "right")
        return begin, end - begin

    def renumber(self, number: Array, least: int) -> None:
        """Give rows new numbers, in the same order; rows with a number below `least` have left."""
        stays = self.numbers >= least
        self._keys = self._keys[stays]
        self.numbers = number[self.numbers[stays]]
        if len(self) == 0:
            self._widest = 0

    def check_invariants(self) -> None:
        assert len(self._keys) == len(self.numbers)
        assert (self._keys[1:] >= self._keys[:-1]).all()
        assert len(np.unique(self.numbers)) == len(self.numbers)


def _greatest_distance(low: Array, high: Array) -> int:
    with np.errstate(over="ignore"):
        distance = (high - low).astype(np.uint64)
    return int(distance[high >= low].max(initial=0))


def _less(keys: Array, distance: int) -> Array:
    """Keys minus a distance, but not below the least key."""
    if distance == 0:
        return keys
    if distance > -int(_LEAST):
        return np.full(len(keys), _LEAST)
    step = np.uint64(distance)
    room = keys.astype(np.uint64) - np.uint64(1 << 63)  # how far each is above the least key
    return np.where(room < step, _LEAST, (keys.astype(np.uint64) - step).astype(np.int64))
