"""Rows that arrive, joined with pages of spilled tuples; the marks of tuples that had a match."""

from typing import Any, NamedTuple

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.gather import SOUND
from adjoin.kernels.hashing import hash_bytes, hash_word
from adjoin.kernels.libc import pwrite
from adjoin.kernels.pages import find_buffers
from adjoin.kernels.types import Array

_LEAST = np.iinfo(np.int64).min
_LEAST_UNSIGNED = np.uint64(1 << 63)
FILTER_WORDS = 16
"""Words of the filter of a page: with 80 keys, it has one of 200 others by mistake, with 300 one of five."""
_PROBES = 4
_PLACE_BITS = np.uint64(10)
_PLACES = np.uint64(64 * FILTER_WORDS - 1)
_WORD_BITS = np.uint64(6)
_BITS = np.uint64(63)
_ONE = np.uint64(1)


class Rows(NamedTuple):
    """Rows that arrive, in ascending order of their lower ends wherever a task looks at them.

    Attributes:
        low: Lower ends of their key intervals.
        high: Upper ends.
        time: Their times; empty if the join has no bound on time.
        window: What the time of a partner may differ by: whether there is a least difference and two numbers
            that add up to it, and the same for the greatest.
    """

    low: Array
    high: Array
    time: Array
    window: Array


class Tasks(NamedTuple):
    """Pages in memory, each with the range of rows that may match.

    Attributes:
        begin: The first row of each task.
        end: The row after its last one.
        slot: The slot of its page.
        skips: A tuple with one of these marks is left out.
    """

    begin: Array
    end: Array
    slot: Array
    skips: Any


class Loaded(NamedTuple):
    """Pages in the slots of an arena.

    Attributes:
        arena: The arena as bytes.
        words: The arena as int64.
        base: Where each slot begins.
        low: Where the lower ends begin in each slot, counted from its base.
        high: Where the upper ends begin; empty where intervals are single keys.
        time: Where the times begin; empty if the join has no bound on time.
        rows: How many tuples are in each slot.
        least: The tuples of a slot with a smaller time have expired.
        marks: Where the marks begin in the arena, a byte for each tuple.
    """

    arena: Array
    words: Array
    base: Array
    low: Array
    high: Array
    time: Array
    rows: Array
    least: Array
    marks: Array


@kernel
def _overflows(value: int, more: int) -> bool:
    total = value + more
    return ((value ^ total) & (more ^ total)) < 0


@kernel
def _is_at_least(other: int, time: int, bound: int, more: int) -> bool:
    """Whether other >= time + bound + more; the two numbers have the same sign."""
    if _overflows(time, bound):
        return bound < 0
    if _overflows(time + bound, more):
        return more < 0
    return other >= time + bound + more


@kernel
def _is_at_most(other: int, time: int, bound: int, more: int) -> bool:
    """Whether other <= time + bound + more; the two numbers have the same sign."""
    if _overflows(time, bound):
        return bound > 0
    if _overflows(time + bound, more):
        return more > 0
    return other <= time + bound + more


@kernel
def _is_in_window(time: int, other: int, window: Array) -> bool:
    if window[0] and not _is_at_least(other, time, window[1], window[2]):
        return False
    return not (window[3] and not _is_at_most(other, time, window[4], window[5]))


@kernel
def are_in_window(time: Array, owner: Array, others: Array, window: Array) -> Array:
    """Whether the time of each partner is in the window around the time of the row that owns the pair."""
    found = np.empty(len(owner), np.bool_)
    for pair in range(len(owner)):
        found[pair] = _is_in_window(time[owner[pair]], others[pair], window)
    return found


@kernel
def _minus_length(value: int, length: Any) -> int:
    """The value minus an unsigned length, clipped to int64."""
    if length >= np.uint64(value) + _LEAST_UNSIGNED:
        return _LEAST
    return np.int64(np.uint64(value) - length)


@kernel
def _longest(words: Array, low: int, high: int, rows: int) -> Any:
    length = np.uint64(0)
    for at in range(rows):
        length = max(length, np.uint64(words[high + at]) - np.uint64(words[low + at]))
    return length


@kernel
def _first_not_below(words: Array, bound: int, start: int, stop: int) -> int:
    """The first place from `start` on with a value >= the bound; gallops, because it is often near."""
    step = 1
    above = start
    while above < stop and words[above] < bound:
        start = above + 1
        above += step
        step *= 2
    above = min(above, stop)
    while start < above:
        middle = (start + above) >> 1
        if words[middle] < bound:
            start = middle + 1
        else:
            above = middle
    return start


@kernel
def join_pages(
    rows: Rows, tasks: Tasks, pages: Loaded, state: Array, limit: int
) -> tuple[Array, Array, Array]:
    """The next pairs of rows and tuples that match, at most `limit`.

    `state` says where to continue: task, row and tuple; -1 stands for the first one. Once all tasks are done,
    its task is their number. Keys with equal hashes count as equal.

    Returns:
        The row, the slot and the place in the slot of each pair.
    """
    owner = np.empty(limit, np.int32)
    slots = np.empty(limit, np.int32)
    places = np.empty(limit, np.int32)
    found = 0
    task, row, at = state[0], state[1], state[2]
    has_time = len(rows.time) > 0
    are_points = len(pages.high) == 0
    while task < len(tasks.slot):
        slot = tasks.slot[task]
        base, count = pages.base[slot], np.int64(pages.rows[slot])
        lows = (base + pages.low[slot]) >> 3
        highs = lows if are_points else (base + pages.high[slot]) >> 3
        times = (base + pages.time[slot]) >> 3 if has_time else lows
        longest = np.uint64(0) if are_points else _longest(pages.words, lows, highs, count)
        row = tasks.begin[task] if row < 0 else row
        start = lows
        while row < tasks.end[task]:
            low, high = rows.low[row], rows.high[row]
            if at < 0:
                start = _first_not_below(pages.words, _minus_length(low, longest), start, lows + count)
                at = start - lows
            while at < count and pages.words[lows + at] <= high:
                is_match = are_points or pages.words[highs + at] >= low
                if is_match and tasks.skips:
                    is_match = (pages.arena[pages.marks[slot] + at] & tasks.skips) == 0
                if is_match and has_time:
                    time = pages.words[times + at]
                    is_match = time >= pages.least[slot] and _is_in_window(rows.time[row], time, rows.window)
                if is_match:
                    if found == limit:
                        state[0], state[1], state[2] = task, row, at
                        return owner, slots, places
                    owner[found] = row
                    slots[found] = slot
                    places[found] = at
                    found += 1
                at += 1
            row += 1
            at = -1
        task += 1
        row = -1
    state[0], state[1], state[2] = task, -1, -1
    return owner[:found], slots[:found], places[:found]


@kernel
def leaving_tuples(
    count: int, pages: Loaded, has_time: bool, is_bounded: bool, before: int, skips: Any
) -> tuple[Array, Array]:
    """The tuples in the first slots that have none of these marks and have not expired yet.

    If `is_bounded`, only those with a time less than `before`.

    Returns:
        The slot and the place in the slot of each.
    """
    total = 0
    for slot in range(count):
        total += pages.rows[slot]
    found_slots = np.empty(total, np.int32)
    places = np.empty(total, np.int32)
    found = 0
    for slot in range(count):
        times = (pages.base[slot] + pages.time[slot]) >> 3 if has_time else 0
        for at in range(pages.rows[slot]):
            if pages.arena[pages.marks[slot] + at] & skips:
                continue
            if has_time:
                time = pages.words[times + at]
                if time < pages.least[slot] or (is_bounded and time >= before):
                    continue
            found_slots[found] = slot
            places[found] = at
            found += 1
    return found_slots[:found], places[:found]


@kernel
def mark_first(marks: Array, at: Array, mark: Any) -> Array:
    """Set a mark at these places; returns which of them did not have it before, each place once."""
    is_first = np.empty(len(at), np.bool_)
    for i in range(len(at)):
        is_first[i] = (marks[at[i]] & mark) == 0
        marks[at[i]] |= mark
    return is_first


@kernel
def find_damaged_page(
    pages: Loaded, lengths: Array, checksums: Array, room: int, wanted: Array, offsets: Array, counts: Array
) -> int:
    """Verify the pages of the first slots and locate their buffers; SOUND, or the first damaged one.

    `counts` is how many tuples each must have. Within `room` bytes all of its buffers must lie.
    """
    for slot in range(len(lengths)):
        base, length = pages.base[slot], lengths[slot]
        if length > room or hash_bytes(pages.arena, base, base + length) != checksums[slot]:
            return slot
        if not find_buffers(pages.arena, pages.words, base, length, wanted, offsets, pages.rows, slot):
            return slot
        if pages.rows[slot] != counts[slot]:
            return slot
    return SOUND


@kernel
def write_pieces(descriptor: int, arena: Array, begin: Array, place: Array, length: Array) -> int:
    """Write pieces of the arena to these places of a file; returns how many could be written."""
    address = arena.ctypes.data
    for i in range(len(begin)):
        if pwrite(descriptor, address + begin[i], length[i], place[i]) != length[i]:
            return i
    return len(begin)


@kernel
def page_times(bounds: Array, time: Array) -> tuple[Array, Array, Array]:
    """The least, the greatest and the median time of the tuples bounds[i]..bounds[i + 1] - 1 of each page."""
    pages = len(bounds) - 1
    least = np.empty(pages, np.int64)
    most = np.empty(pages, np.int64)
    median = np.empty(pages, np.int64)
    for page in range(pages):
        ordered = np.sort(time[bounds[page] : bounds[page + 1]])
        least[page] = ordered[0]
        most[page] = ordered[-1]
        median[page] = ordered[len(ordered) // 2]
    return least, most, median


@kernel
def fill_filters(bounds: Array, keys: Array, filters: Array) -> None:
    """Add the keys bounds[i]..bounds[i + 1] - 1 to the Bloom filter of each page."""
    for page in range(len(bounds) - 1):
        for at in range(bounds[page], bounds[page + 1]):
            hashed = hash_word(np.uint64(keys[at]))
            for _ in range(_PROBES):
                place = hashed & _PLACES
                filters[page, place >> _WORD_BITS] |= _ONE << (place & _BITS)
                hashed >>= _PLACE_BITS


@kernel
def may_have_any(begin: Array, end: Array, keys: Array, filters: Array) -> Array:
    """Whether each page may have one of the keys begin[i]..end[i] - 1, by its filter."""
    found = np.zeros(len(begin), np.bool_)
    for page in range(len(begin)):
        at = begin[page]
        while at < end[page] and not found[page]:
            hashed = hash_word(np.uint64(keys[at]))
            hit = True
            for _ in range(_PROBES):
                place = hashed & _PLACES
                hit &= (filters[page, place >> _WORD_BITS] >> (place & _BITS)) & _ONE != 0
                hashed >>= _PLACE_BITS
            found[page] = hit
            at += 1
    return found
