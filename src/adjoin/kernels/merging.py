"""Sorted arrays that grow and shrink in the middle."""

import numpy as np
from numba import njit

from adjoin.kernels.types import Array


@njit(cache=True, nogil=True)
def merge_sorted(values: Array, more: Array) -> Array:
    """One sorted array of two."""
    merged = np.empty(len(values) + len(more), values.dtype)
    i = 0
    j = 0
    for at in range(len(merged)):
        if j == len(more) or (i < len(values) and values[i] <= more[j]):
            merged[at] = values[i]
            i += 1
        else:
            merged[at] = more[j]
            j += 1
    return merged


@njit(cache=True, nogil=True)
def cut_ranges(values: Array, begin: Array, end: Array) -> Array:
    """The values without those in the ranges begin..end-1, which ascend and do not overlap."""
    removed = 0
    for i in range(len(begin)):
        removed += end[i] - begin[i]
    left = np.empty(len(values) - removed, values.dtype)
    at = 0
    read = 0
    for i in range(len(begin)):
        kept = begin[i] - read
        left[at : at + kept] = values[read : begin[i]]
        at += kept
        read = end[i]
    left[at:] = values[read:]
    return left


@njit(cache=True, nogil=True)
def merge_keyed(keys: Array, rows: Array, more_keys: Array, more_rows: Array) -> tuple[Array, Array]:
    """Merge two lists of rows, each sorted by its keys; of equal keys, those of the first list come first."""
    merged = np.empty(len(keys) + len(more_keys), keys.dtype)
    merged_rows = np.empty(len(merged), rows.dtype)
    i = 0
    j = 0
    for at in range(len(merged)):
        if j == len(more_keys) or (i < len(keys) and keys[i] <= more_keys[j]):
            merged[at] = keys[i]
            merged_rows[at] = rows[i]
            i += 1
        else:
            merged[at] = more_keys[j]
            merged_rows[at] = more_rows[j]
            j += 1
    return merged, merged_rows
