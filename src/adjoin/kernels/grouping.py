"""(page, stream row) pairs grouped by page: the inverted index as flat arrays."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.types import Array


@kernel
def group_pairs(pairs: Array, most_groups: int) -> tuple[Array, Array]:
    """The first pages of the sorted pairs, and where the pairs of each begin (one more entry than pages)."""
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


@kernel
def make_pairs(need_row: Array, need_page: Array, chosen: Array, new_row: Array) -> Array:
    """The pairs of the chosen needs, with stream rows renumbered by `new_row`."""
    pairs = np.empty(len(chosen), np.int64)
    for i in range(len(chosen)):
        need = chosen[i]
        pairs[i] = (np.int64(need_page[need]) << 32) | np.int64(new_row[need_row[need]])
    return pairs


@kernel
def collect_needs(
    pairs: Array, begin: Array, groups: Array, slots: Array, ends: Array, start: int, stop: int
) -> tuple[Array, Array]:
    """Needs start..stop-1 of the given groups: the row of each, and the slot that holds its group's page.

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
