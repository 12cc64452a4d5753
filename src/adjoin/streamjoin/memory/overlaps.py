"""Which sorted entries overlap intervals: exactly those are found, whatever the lengths of the intervals."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from adjoin.kernels.intervals import NOT_BEGUN, key_ranges, overlap_pairs, segment_reach
from adjoin.kernels.search import expand_part
from adjoin.kernels.types import Array


class SortedEntries(Protocol):
    """Entries sorted by the lower ends of their intervals.

    Attributes:
        low: Lower ends.
        high: Upper ends.
        reach: What `reach_of` returns.
        place: Where the tuple of each entry is; negative once it is gone.
    """

    low: Array
    high: Array
    reach: Array
    place: Array


def reach_of(low: Array, high: Array, place: Array) -> Array:
    """How far the intervals of entries reach, for a search; for points, whose ends are one array, that array.

    It has to be determined again when entries are gone, or they cost as much as before.
    """
    return low if high is low else segment_reach(high, place)


def overlaps(entries: SortedEntries, low: Array, high: Array, limit: int) -> Iterator[tuple[Array, Array]]:
    """Pairs of an interval and an entry that overlap, at most `limit` at a time.

    Args:
        entries: The entries; those that are gone are left out.
        low: Lower ends of the intervals, ascending.
        high: Their upper ends.
        limit: How many pairs to return at a time.
    """
    if entries.reach is entries.low:
        yield from _overlapping_points(entries, low, high, limit)
        return
    row, start = 0, NOT_BEGUN
    while row < len(low):
        owner, at, row, start = overlap_pairs(
            entries.low, entries.high, entries.place, entries.reach, low, high, row, start, limit
        )
        if len(at):
            yield owner, at


def _overlapping_points(
    entries: SortedEntries, low: Array, high: Array, limit: int
) -> Iterator[tuple[Array, Array]]:
    begin, count = key_ranges(entries.low, low, high)
    ends = np.cumsum(count, dtype=np.int64)
    for first in range(0, int(ends[-1]) if len(ends) else 0, limit):
        owner, at = expand_part(begin, ends, first, min(first + limit, int(ends[-1])))
        stays = entries.place[at] >= 0
        owner, at = owner[stays], at[stays]
        if len(at):
            yield owner, at
