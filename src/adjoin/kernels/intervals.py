"""Intervals in the order of their lower ends: which of them overlap others, and which go first."""

import numpy as np
from numba import njit

from adjoin.kernels.search import first_above_from, first_not_below_from
from adjoin.kernels.types import Array


@njit(cache=True, nogil=True)
def overlap_ranges(run_low: Array, run_reach: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """For every interval of a list, where those of a run are that may overlap it: a beginning, and how many.

    Both are sorted by their lower ends. `run_reach` is the greatest upper end up to each interval of the run.
    The search gallops on from where the interval before began.
    """
    rows = len(low)
    begin = np.empty(rows, np.int32)
    count = np.empty(rows, np.int32)
    at = 0
    for row in range(rows):
        at = first_not_below_from(run_reach, low[row], at)
        begin[row] = at
        count[row] = max(first_above_from(run_low, high[row], at) - at, 0)
    return begin, count


@njit(cache=True, nogil=True)
def merge_runs(
    low: Array,
    high: Array,
    place: Array,
    joined: Array,
    more_low: Array,
    more_high: Array,
    more_place: Array,
    more_joined: Array,
    left: int,
) -> tuple[Array, Array, Array, Array]:
    """One run of two, without the entries whose place is negative; `left` is how many there are then."""
    merged_low = np.empty(left, np.int64)
    merged_high = np.empty(left, np.int64)
    merged_place = np.empty(left, np.int64)
    merged_joined = np.empty(left, np.uint8)
    i = 0
    j = 0
    at = 0
    while i < len(low) or j < len(more_low):
        if j == len(more_low) or (i < len(low) and low[i] <= more_low[j]):
            if place[i] >= 0:
                merged_low[at] = low[i]
                merged_high[at] = high[i]
                merged_place[at] = place[i]
                merged_joined[at] = joined[i]
                at += 1
            i += 1
        else:
            if more_place[j] >= 0:
                merged_low[at] = more_low[j]
                merged_high[at] = more_high[j]
                merged_place[at] = more_place[j]
                merged_joined[at] = more_joined[j]
                at += 1
            j += 1
    return merged_low, merged_high, merged_place, merged_joined


@njit(cache=True, nogil=True)
def sweep_clock(
    place: Array, joined: Array, begin: int, end: int, hand: int, wanted: int
) -> tuple[Array, int]:
    """Entries of begin..end-1 without a join bit, from the hand on; those passed by lose theirs.

    Returns:
        At most `wanted` of them, and where the hand stops.
    """
    chosen = np.empty(wanted, np.int32)
    found = 0
    at = hand if begin <= hand < end else begin
    left = 2 * (end - begin)
    while left > 0 and found < wanted:
        if place[at] >= 0:
            if joined[at]:
                joined[at] = 0
            else:
                chosen[found] = at
                found += 1
                place[at] = -place[at] - 1  # so that it is not chosen twice
        at += 1
        if at == end:
            at = begin
        left -= 1
    for i in range(found):
        place[chosen[i]] = -place[chosen[i]] - 1
    return chosen[:found], at
