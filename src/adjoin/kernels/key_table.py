"""A hash table of keys and a sketch of their frequencies, for the cache of master rows."""

from typing import Any

import numpy as np

from adjoin.kernels.compiling import inline_kernel, kernel
from adjoin.kernels.gather import room_of
from adjoin.kernels.types import Array

EMPTY = -1
MOST_SEEN = 255
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_OTHER = np.int64(0x5851F42D4C957F2D)
"""Flipped in a key to find the second of its two counters."""


@inline_kernel
def _home(key: Any, length: int) -> int:
    """Where the search for a key starts, in a table of less than 2**31 entries; scatters neighboring keys."""
    mixed = np.uint64(key) * _SPREAD
    mixed = (mixed ^ (mixed >> _SHIFT)) * _SPREAD
    return np.int64(((mixed >> _SHIFT) * np.uint64(length)) >> _SHIFT)


@inline_kernel
def _next(at: int, length: int) -> int:
    return at + 1 if at + 1 < length else 0


@inline_kernel
def _steps(begin: int, end: int, length: int) -> int:
    return end - begin if end >= begin else end - begin + length


@kernel
def find_keys(keys: Array, table_key: Array, table_slot: Array) -> Array:
    """The entry of each key, or EMPTY. The search ends even if the table is full, which it never is."""
    length = len(table_key)
    found = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        at = _home(keys[i], length)
        found[i] = EMPTY
        for _ in range(length):
            if table_slot[at] == EMPTY:
                break
            if table_key[at] == keys[i]:
                found[i] = at
                break
            at = _next(at, length)
    return found


@kernel
def insert_keys(keys: Array, table_key: Array, table_slot: Array, slot: int) -> Array:
    """Insert keys that are not in the table; returns their entries, EMPTY where the table is full."""
    length = len(table_key)
    entries = np.full(len(keys), EMPTY, np.int32)
    for i in range(len(keys)):
        at = _home(keys[i], length)
        for _ in range(length):
            if table_slot[at] == EMPTY:
                break
            at = _next(at, length)
        if table_slot[at] != EMPTY:
            continue
        table_key[at] = keys[i]
        table_slot[at] = slot
        entries[i] = at
    return entries


@kernel
def remove_keys(
    keys: Array, table_key: Array, table_slot: Array, table_row: Array, table_rows: Array, table_heat: Array
) -> int:
    """Remove the keys that are in the table, moving up the entries after them; returns their number."""
    length = len(table_key)
    removed = 0
    for i in range(len(keys)):
        hole = _home(keys[i], length)
        for _ in range(length):
            if table_slot[hole] == EMPTY or table_key[hole] == keys[i]:
                break
            hole = _next(hole, length)
        if table_slot[hole] == EMPTY or table_key[hole] != keys[i]:
            continue
        removed += 1
        at = _next(hole, length)
        for _ in range(length):
            if table_slot[at] == EMPTY:
                break
            home = _home(table_key[at], length)
            # An entry may move into the hole unless its home lies between hole and entry.
            if _steps(home, at, length) >= _steps(hole, at, length):
                table_key[hole] = table_key[at]
                table_slot[hole] = table_slot[at]
                table_row[hole] = table_row[at]
                table_rows[hole] = table_rows[at]
                table_heat[hole] = table_heat[at]
                hole = at
            at = _next(at, length)
        table_slot[hole] = EMPTY
    return removed


@kernel
def find_wrong_group(
    words: Array,
    base: Array,
    rooms: Array,
    key_offset: Array,
    slot_rows: Array,
    keys: Array,
    slot: Array,
    row: Array,
    rows: Array,
) -> int:
    """EMPTY, or the first group that is not exactly the adjacent rows of its key in its slot."""
    for i in range(len(keys)):
        at = np.int64(key_offset[slot[i]])
        count = np.int64(slot_rows[slot[i]])
        begin, end = np.int64(row[i]), np.int64(row[i]) + rows[i]
        if at < 0 or count < 0 or at + 8 * count > room_of(slot[i], len(base), rooms[0], rooms[1]):
            return i
        if begin < 0 or rows[i] <= 0 or end > count:
            return i
        word = (base[slot[i]] + at) >> 3
        if begin > 0 and words[word + begin - 1] == keys[i]:
            return i
        if end < count and words[word + end] == keys[i]:
            return i
        for k in range(begin, end):
            if words[word + k] != keys[i]:
                return i
    return EMPTY


@kernel
def heat_entries(heat: Array, entries: Array, most: int) -> None:
    """Count a hit for each of these entries, repeats included, up to `most`."""
    for i in range(len(entries)):
        if heat[entries[i]] < most:
            heat[entries[i]] += 1


@kernel
def count_seen(keys: Array, times: Array, seen: Array) -> Array:
    """An upper estimate of how often each key was seen, including the `times` added now.

    A key has two counters, which it shares with others: the lower one is the better estimate, and the
    other is not raised beyond it.
    """
    length = len(seen)
    counted = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        one, other = _home(keys[i], length), _home(keys[i] ^ _OTHER, length)
        count = min(MOST_SEEN, np.int64(min(seen[one], seen[other])) + times[i])
        seen[one] = max(seen[one], count)
        seen[other] = max(seen[other], count)
        counted[i] = count
    return counted


@kernel
def times_seen(keys: Array, seen: Array) -> Array:
    """An upper estimate of how often each key was seen."""
    length = len(seen)
    counted = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        counted[i] = min(seen[_home(keys[i], length)], seen[_home(keys[i] ^ _OTHER, length)])
    return counted
