"""A hash table of keys, and how often keys were seen: what a cache of master rows goes by."""

from typing import Any

import numpy as np
from numba import njit

from adjoin.kernels.types import Array

EMPTY = -1
MOST_SEEN = 255
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_OTHER = np.int64(0x5851F42D4C957F2D)
"""The bits that tell the two counters of a key apart."""


@njit(cache=True, nogil=True, inline="always")
def _home(key: Any, length: int) -> int:
    """Where the search for a key begins in a table of less than 2**31 entries; neighbours begin far apart."""
    mixed = np.uint64(key) * _SPREAD
    mixed = (mixed ^ (mixed >> _SHIFT)) * _SPREAD
    return np.int64(((mixed >> _SHIFT) * np.uint64(length)) >> _SHIFT)


@njit(cache=True, nogil=True, inline="always")
def _next(at: int, length: int) -> int:
    return at + 1 if at + 1 < length else 0


@njit(cache=True, nogil=True, inline="always")
def _steps(begin: int, end: int, length: int) -> int:
    return end - begin if end >= begin else end - begin + length


@njit(cache=True, nogil=True)
def find_keys(keys: Array, table_key: Array, table_slot: Array) -> Array:
    """The entry of every key, or EMPTY. The table is never full."""
    length = len(table_key)
    found = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        at = _home(keys[i], length)
        while table_slot[at] != EMPTY and table_key[at] != keys[i]:
            at = _next(at, length)
        found[i] = at if table_slot[at] != EMPTY else EMPTY
    return found


@njit(cache=True, nogil=True)
def insert_keys(keys: Array, table_key: Array, table_slot: Array, slot: int) -> Array:
    """Enter keys that the table does not have; returns their entries."""
    length = len(table_key)
    entries = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        at = _home(keys[i], length)
        while table_slot[at] != EMPTY:
            at = _next(at, length)
        table_key[at] = keys[i]
        table_slot[at] = slot
        entries[i] = at
    return entries


@njit(cache=True, nogil=True)
def remove_keys(
    keys: Array, table_key: Array, table_slot: Array, table_row: Array, table_rows: Array, table_heat: Array
) -> int:
    """Remove keys, those that are there; entries behind them move up. Returns how many were removed."""
    length = len(table_key)
    removed = 0
    for i in range(len(keys)):
        hole = _home(keys[i], length)
        while table_slot[hole] != EMPTY and table_key[hole] != keys[i]:
            hole = _next(hole, length)
        if table_slot[hole] == EMPTY:
            continue
        removed += 1
        at = _next(hole, length)
        while table_slot[at] != EMPTY:
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


@njit(cache=True, nogil=True)
def heat_entries(heat: Array, entries: Array, most: int) -> None:
    """One more stream row found each of these entries (repeats count)."""
    for i in range(len(entries)):
        if heat[entries[i]] < most:
            heat[entries[i]] += 1


@njit(cache=True, nogil=True)
def count_seen(keys: Array, times: Array, seen: Array) -> Array:
    """How often each key was seen, these times included, or more.

    A key has two counters, which it shares with others: the lower one is nearer to the truth, and the
    other is not raised beyond what is known.
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


@njit(cache=True, nogil=True)
def times_seen(keys: Array, seen: Array) -> Array:
    """How often each key was seen, or more."""
    length = len(seen)
    counted = np.empty(len(keys), np.int32)
    for i in range(len(keys)):
        counted[i] = min(seen[_home(keys[i], length)], seen[_home(keys[i] ^ _OTHER, length)])
    return counted
