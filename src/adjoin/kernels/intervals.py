"""Intervals sorted by their lower ends: which ones overlap, and which to evict first."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.search import first_above_from, first_not_below_from
from adjoin.kernels.types import Array

JOIN_BIT = np.uint8(1)
"""Of the byte of an entry; the clock leaves the other bits alone."""
_LEAST = np.iinfo(np.int64).min
"""In place of the upper end of an entry that is gone."""
NOT_BEGUN = -2
"""In place of a position: the search has yet to find where to begin."""


@kernel
def key_ranges(keys: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """For each interval, the range of the ascending keys that lie in it, as a begin and a count.

    The lower ends of the intervals ascend, too. The search gallops forward from where the previous
    interval's range began.
    """
    rows = len(low)
    begin = np.empty(rows, np.int32)
    count = np.empty(rows, np.int32)
    at = 0
    for row in range(rows):
        at = first_not_below_from(keys, low[row], at)
        begin[row] = at
        count[row] = first_above_from(keys, high[row], at) - at
    return begin, count


@kernel
def segment_reach(high: Array, place: Array) -> Array:
    """The greatest upper end in the segment of each entry; entries with a negative place do not count.

    The segment of entry `at` begins at `at & (at + 1)` and ends with the entry itself, so the segments that
    follow each other back from any entry to the first one are as few as its position has binary digits (a
    Fenwick tree). A search skips every segment whose intervals all end too early, and a long interval only
    spoils the segments it is in.
    """
    reach = np.empty(len(high), np.int64)
    for at in range(len(high)):
        reach[at] = high[at] if place[at] >= 0 else _LEAST
    for at in range(len(high)):
        larger = at | (at + 1)
        if larger < len(high) and reach[larger] < reach[at]:
            reach[larger] = reach[at]
    return reach


@kernel
def greatest_reach(reach: Array) -> int:
    """The greatest upper end of all entries, from what `segment_reach` returned."""
    greatest = _LEAST
    at = len(reach) - 1
    while at >= 0:
        greatest = max(greatest, reach[at])
        at = (at & (at + 1)) - 1
    return greatest


@kernel
def overlap_pairs(
    run_low: Array,
    run_high: Array,
    run_place: Array,
    run_reach: Array,
    low: Array,
    high: Array,
    row: int,
    at: int,
    most: int,
) -> tuple[Array, Array, int, int]:
    """Pairs of an interval and an entry of the run that overlap: at most `most`, and where to continue.

    Both are sorted by their lower ends; `run_reach` is from `segment_reach`. Entries with a negative place
    are left out. The entries of an interval are visited from the last that does not begin after it to the
    first, skipping segments: O(log² n) steps at most for each pair, whatever the lengths of the intervals.

    Args:
        run_low: Lower ends in the run.
        run_high: Its upper ends.
        run_place: Its places.
        run_reach: How far its segments reach.
        low: Lower ends of the intervals.
        high: Their upper ends.
        row: The interval to begin with.
        at: The entry to begin with; NOT_BEGUN: the last one that may overlap.
        most: The maximum number of pairs; at least one.

    Returns:
        The interval of each pair and its entry, then `row` and `at` of the next call. When all intervals are
        done, `row` is their number.
    """
    owner = np.empty(most, np.int32)
    entry = np.empty(most, np.int32)
    found = 0
    first = 0
    while row < len(low):
        if at == NOT_BEGUN:
            first = first_not_below_from(run_low, low[row], first)
            at = first_above_from(run_low, high[row], first) - 1
        while at >= 0:
            if run_reach[at] < low[row]:
                at = (at & (at + 1)) - 1
                continue
            if run_high[at] >= low[row] and run_place[at] >= 0:
                if found == most:
                    return owner, entry, row, at
                owner[found] = row
                entry[found] = at
                found += 1
            at -= 1
        row += 1
        at = NOT_BEGUN
    return owner[:found], entry[:found], row, at


@kernel
def do_overlap(run_low: Array, run_reach: Array, low: Array, high: Array) -> Array:
    """Whether each interval overlaps an entry of the run that is not gone, given as in `overlap_pairs`."""
    overlap = np.zeros(len(low), np.bool_)
    first = 0
    for row in range(len(low)):
        first = first_not_below_from(run_low, low[row], first)
        at = first_above_from(run_low, high[row], first) - 1
        while at >= 0 and run_reach[at] < low[row]:
            at = (at & (at + 1)) - 1
        overlap[row] = at >= 0
    return overlap


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
