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
    """One run of two, without the entries whose place is negative; `left` is how many there are then.

    Where keys are points, the upper ends can be left empty; then those of the merged run are.
    """
    has_high = len(high) == len(low) and len(more_high) == len(more_low)
    merged_low = np.empty(left, np.int64)
    merged_high = np.empty(left if has_high else 0, np.int64)
    merged_place = np.empty(left, np.int64)
    merged_joined = np.empty(left, np.uint8)
    i = 0
    j = 0
    at = 0
    while i < len(low) or j < len(more_low):
        if j == len(more_low) or (i < len(low) and low[i] <= more_low[j]):
            if place[i] >= 0:
                merged_low[at] = low[i]
                if has_high:
                    merged_high[at] = high[i]
                merged_place[at] = place[i]
                merged_joined[at] = joined[i]
                at += 1
            i += 1
        else:
            if more_place[j] >= 0:
                merged_low[at] = more_low[j]
                if has_high:
                    merged_high[at] = more_high[j]
                merged_place[at] = more_place[j]
                merged_joined[at] = more_joined[j]
                at += 1
            j += 1
    return merged_low, merged_high, merged_place, merged_joined


@njit(cache=True, nogil=True)
def _pass_by(place: Array, joined: Array, at: int, chosen: Array, found: int) -> int:
    """An entry loses its join bit, or is chosen; returns how many are then."""
    if place[at] < 0:
        return found
    if joined[at]:
        joined[at] = 0
        return found
    chosen[found] = at
    place[at] = -place[at] - 1  # so that it is not chosen twice
    return found + 1


@njit(cache=True, nogil=True)
def sweep_clock(
    low: Array,
    place: Array,
    joined: Array,
    more_low: Array,
    more_place: Array,
    more_joined: Array,
    first: int,
    last: int,
    hand: int,
    wanted: int,
) -> tuple[Array, Array, int]:
    """Entries of two runs with keys first..last without join bits, from the hand on; others lose theirs.

    Returns:
        At most `wanted` of them, of each run, and the key where the hand stops.
    """
    begin, more_begin = np.searchsorted(low, first), np.searchsorted(more_low, first)
    end = np.searchsorted(low, last, side="right")
    more_end = np.searchsorted(more_low, last, side="right")
    chosen, more_chosen = np.empty(wanted, np.int32), np.empty(wanted, np.int32)
    found, more_found = 0, 0
    i, j = begin, more_begin
    if first <= hand <= last:
        i, j = np.searchsorted(low, hand), np.searchsorted(more_low, hand)
    left = 2 * (end - begin + more_end - more_begin)
    while left > 0 and found + more_found < wanted:
        if i == end and j == more_end:
            i, j = begin, more_begin
        if j == more_end or (i < end and low[i] <= more_low[j]):
            found = _pass_by(place, joined, i, chosen, found)
            i += 1
        else:
            more_found = _pass_by(more_place, more_joined, j, more_chosen, more_found)
            j += 1
        left -= 1
    for at in chosen[:found]:
        place[at] = -place[at] - 1
    for at in more_chosen[:more_found]:
        more_place[at] = -more_place[at] - 1
    if i == end and j == more_end:
        i, j = begin, more_begin
    if i < end and (j == more_end or low[i] <= more_low[j]):
        hand = low[i]
    elif j < more_end:
        hand = more_low[j]
    return chosen[:found], more_chosen[:more_found], hand
