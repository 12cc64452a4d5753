"""Pairs of (page, stream row) grouped by page: the inverted index as flat arrays."""

import numpy as np
from numba import njit

from adjoin.kernels.types import Array


@njit(cache=True, nogil=True)
def group_pairs(pairs: Array, most_groups: int) -> tuple[Array, Array]:
    """The first pages of sorted pairs, and where the pairs of each begin (one entry more than pages)."""
    most = min(most_groups, len(pairs))
    pages = np.empty(most, np.int32)
    begin = np.empty(most + 1, np.int64)
    groups = 0
    at = 0
    while at < len(pairs):
        page = pairs[at] >> 32
        if groups == most:
            break
        pages[groups] = page
        begin[groups] = at
        groups += 1
        while at < len(pairs) and pairs[at] >> 32 == page:
            at += 1
    begin[groups] = at
    return pages[:groups], begin[: groups + 1]


@njit(cache=True, nogil=True)
def make_pairs(need_row: Array, need_page: Array, chosen: Array, new_row: Array) -> Array:
    """Pairs of the chosen needs; `new_row` renumbers stream rows."""
    pairs = np.empty(len(chosen), np.int64)
    for i in range(len(chosen)):
        need = chosen[i]
        pairs[i] = (np.int64(need_page[need]) << 32) | np.int64(new_row[need_row[need]])
    return pairs


@njit(cache=True, nogil=True)
def collect_needs(
    pairs: Array, begin: Array, groups: Array, slots: Array, ends: Array, start: int, stop: int
) -> tuple[Array, Array]:
    """Needs start..stop-1 of the given groups: the row of each, and the slot its group's page is in.

    `ends` is the running total of the groups' sizes.
    """
    need_row = np.empty(stop - start, np.int32)
    need_slot = np.empty(stop - start, np.int32)
    group = np.searchsorted(ends, start, side="right")
    for at in range(start, stop):
        while at >= ends[group]:
            group += 1
        pair = begin[groups[group] + 1] - (ends[group] - at)
        need_row[at - start] = pairs[pair] & 0xFFFFFFFF
        need_slot[at - start] = slots[group]
    return need_row, need_slot
