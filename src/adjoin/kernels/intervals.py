"""Intervals sorted by their lower ends: which ones overlap, and which to evict first."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.search import first_above_from, first_not_below_from
from adjoin.kernels.types import Array

JOIN_BIT = np.uint8(1)
"""Of the byte of an entry; the clock leaves the other bits alone."""


@kernel
def overlap_ranges(run_low: Array, run_reach: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """For each interval, the range of the run that may overlap it, as a begin and a count.

    Both are sorted by their lower ends. `run_reach` is the running maximum of the upper ends in the run.
    The search gallops forward from where the previous interval's range began.
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


@kernel
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
    """Merge two runs, dropping entries whose place is negative; `left` is the number of those that remain.

    Where keys are points, the upper ends may be empty arrays, and so are those of the merged run.
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


@kernel
def _pass_by(place: Array, joined: Array, at: int, chosen: Array, found: int) -> int:
    """Clear an entry's join bit, or choose the entry if it has none; returns how many are chosen now."""
    if place[at] < 0:
        return found
    if joined[at] & JOIN_BIT:
        joined[at] &= ~JOIN_BIT
        return found
    chosen[found] = at
    place[at] = -place[at] - 1  # so that it is not chosen twice
    return found + 1


@kernel
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
    """Choose entries with keys first..last by the CLOCK algorithm, over two runs at once.

    The hand passes over entries in the order of keys, starting at `hand`: one with a join bit loses it, one
    without is chosen.

    Returns:
        The chosen entries of each run, at most `wanted` in total, and the key at which the hand stops.
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


@kernel
def length_classes(low: Array, high: Array) -> Array:
    """The class of each interval by its length: 0 for a single key, then one for each factor of four.

    Among intervals of one class, a running maximum of upper ends is never far above the interval's own.
    """
    classes = np.empty(len(low), np.uint8)
    for i in range(len(low)):
        length = np.uint64(high[i]) - np.uint64(low[i])
        number = 0
        while length:
            length >>= np.uint64(2)
            number += 1
        classes[i] = number
    return classes
