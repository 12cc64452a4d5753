"""Insertion into sorted arrays, and removal from them."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.types import Array


@kernel
def merge_sorted(values: Array, more: Array) -> Array:
    """Merge two sorted arrays into one."""
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


@kernel
def cut_ranges(values: Array, begin: Array, end: Array) -> Array:
    """The values outside of the ranges begin..end-1, which are ascending and disjoint."""
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


@kernel
def merge_keyed(keys: Array, rows: Array, more_keys: Array, more_rows: Array) -> tuple[Array, Array]:
    """Merge two lists of rows, each sorted by key; among equal keys, rows of the first list come first."""
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
