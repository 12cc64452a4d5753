"""Searches for keys: for pages in the index, and for rows in the pages of the arena."""

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.gather import SOUND, room_of
from adjoin.kernels.types import Array


@kernel
def first_not_below(values: Array, bound: int, start: int, stop: int) -> int:
    """Position of the first of the ascending values start..stop-1 that is >= the bound; `stop` if none is."""
    while start < stop:
        middle = (start + stop) >> 1
        if values[middle] < bound:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def first_above(values: Array, bound: int, start: int, stop: int) -> int:
    """Position of the first of the ascending values start..stop-1 that is > the bound; `stop` if none is."""
    while start < stop:
        middle = (start + stop) >> 1
        if values[middle] <= bound:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def are_among(values: Array, ascending: Array) -> Array:
    """Whether each value occurs in the ascending array."""
    among = np.zeros(len(values), np.bool_)
    for i in range(len(values)):
        at = first_not_below(ascending, values[i], 0, len(ascending))
        among[i] = at < len(ascending) and ascending[at] == values[i]
    return among


@kernel
def first_not_below_from(values: Array, bound: int, start: int) -> int:
    """Like `first_not_below` over all values from `start` on; gallops, because the answer is often near."""
    step = 1
    below = start
    above = start
    while above < len(values) and values[above] < bound:
        below = above + 1
        above += step
        step *= 2
    return first_not_below(values, bound, below, min(above, len(values)))


@kernel
def first_above_from(values: Array, bound: int, start: int) -> int:
    """Like `first_above` over all values from `start` on; gallops, because the answer is often near."""
    step = 1
    below = start
    above = start
    while above < len(values) and values[above] <= bound:
        below = above + 1
        above += step
        step *= 2
    return first_above(values, bound, below, min(above, len(values)))


@kernel
def locate_pages(low: Array, high: Array, first: Array, last: Array) -> tuple[Array, Array]:
    """Pages `start <= p < stop` that may hold keys in [low, high]; `low` is sorted ascending.

    The search gallops forward from the page of the previous row, so that a batch makes one pass
    over the index. A key in the gap between two pages gets an empty range: it is certainly absent.
    """
    rows = len(low)
    pages = len(first)
    start = np.empty(rows, np.int32)
    stop = np.empty(rows, np.int32)
    page = 0
    for row in range(rows):
        page = first_not_below_from(last, low[row], page)
        start[row] = page
        if high[row] < low[row] or page == pages or first[page] > high[row]:
            stop[row] = page
        elif page + 1 == pages or first[page + 1] > high[row]:
            stop[row] = page + 1
        else:
            stop[row] = first_above(first, high[row], page + 1, pages)
    return start, stop


@kernel
def probe_pages(
    low: Array,
    high: Array,
    need_row: Array,
    need_slot: Array,
    arena_words: Array,
    slot_base: Array,
    rooms: Array,
    key_offset: Array,
    slot_rows: Array,
) -> tuple[Array, Array, int]:
    """First matching row and number of matching rows of each need (a stream row and a slot).

    The third result is SOUND, or a slot whose keys would lie outside of it; see `gather`.
    """
    needs = len(need_row)
    begin = np.empty(needs, np.int32)
    count = np.empty(needs, np.int32)
    bad = SOUND
    for need in range(needs):
        row = need_row[need]
        slot = need_slot[need]
        rows = np.int64(slot_rows[slot])
        offset = np.int64(key_offset[slot])
        if rows < 0 or (
            rows and (offset < 0 or offset + 8 * rows > room_of(slot, len(slot_base), rooms[0], rooms[1]))
        ):
            bad = slot
            rows = 0
        word = (slot_base[slot] + offset) >> 3
        end = word + rows
        at = first_not_below(arena_words, low[row], word, end)
        begin[need] = at - word
        if high[row] == low[row]:
            to = at
            while to < end and arena_words[to] == low[row]:
                to += 1
        else:
            to = first_above(arena_words, high[row], at, end)
        count[need] = to - at
    return begin, count, bad


@kernel
def expand(start: Array, count: Array, total: int) -> tuple[Array, Array]:
    """Every (owner, value) with `start[owner] <= value < start[owner] + count[owner]`."""
    owner = np.empty(total, np.int32)
    value = np.empty(total, np.int32)
    at = 0
    for i in range(len(start)):
        for k in range(count[i]):
            owner[at] = i
            value[at] = start[i] + k
            at += 1
    return owner, value


@kernel
def count_pages(start: Array, stop: Array, counts: Array) -> None:
    """Count the pages of the first spans, stopping once their number reaches that of the counts."""
    counted = 0
    for i in range(len(start)):
        if counted >= len(counts):
            return
        for page in range(start[i], stop[i]):
            counts[page] += 1
        counted += max(stop[i] - start[i], 0)


@kernel
def expand_part(start: Array, ends: Array, first: int, last: int) -> tuple[Array, Array]:
    """Pairs first..last-1 of the result of `expand`; `ends` is the running total of the counts."""
    owner = np.empty(last - first, np.int32)
    value = np.empty(last - first, np.int32)
    at = np.searchsorted(ends, first, side="right")
    for pair in range(first, last):
        while pair >= ends[at]:
            at += 1
        before = ends[at - 1] if at else 0
        owner[pair - first] = at
        value[pair - first] = start[at] + (pair - before)
    return owner, value


@kernel
def entries_in_slot(place: Array, slot: int) -> Array:
    """Positions of the places in this slot; the upper 32 bits of a place are its slot."""
    count = 0
    for at in range(len(place)):
        count += place[at] >> 32 == slot
    found = np.empty(count, np.int64)
    count = 0
    for at in range(len(place)):
        if place[at] >> 32 == slot:
            found[count] = at
            count += 1
    return found
