"""Radix sort of keys; every online phase sorts a batch."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.types import Array

_DIGIT_BITS = 11


@kernel
def argsort_keys(keys: Array) -> Array:
    """The stable ascending order of int64 keys, in one pass per 11-bit digit of their spread."""
    rows = len(keys)
    order = np.arange(rows).astype(np.int32)
    if rows < 2:
        return order
    least = keys.min()
    spread = np.uint64(keys.max()) - np.uint64(least)
    digits = np.empty(rows, np.uint64)
    for row in range(rows):
        digits[row] = np.uint64(keys[row]) - np.uint64(least)
    other = np.empty(rows, np.int32)
    other_digits = np.empty(rows, np.uint64)
    begin = np.empty(1 << _DIGIT_BITS, np.int64)
    mask = np.uint64((1 << _DIGIT_BITS) - 1)
    shift = np.uint64(0)
    while spread:
        begin[:] = 0
        for row in range(rows):
            begin[(digits[row] >> shift) & mask] += 1
        total = 0
        for digit in range(len(begin)):
            count = begin[digit]
            begin[digit] = total
            total += count
        for row in range(rows):
            digit = (digits[row] >> shift) & mask
            other[begin[digit]] = order[row]
            other_digits[begin[digit]] = digits[row]
            begin[digit] += 1
        order, other = other, order
        digits, other_digits = other_digits, digits
        shift += np.uint64(_DIGIT_BITS)
        spread >>= np.uint64(_DIGIT_BITS)
    return order
