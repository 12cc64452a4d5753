"""Values of (slot, row) places, copied out of the pages in the arena into Arrow buffers.

A page lies in the arena as the bytes of its Arrow message; `offset[slot]` is where one of its
buffers begins, counted from `base[slot]`, or -1 where the page has none (a column without nulls).
"""

import numpy as np
from numba import njit

from adjoin.kernels.memory import memcpy
from adjoin.kernels.types import Array


@njit(cache=True, nogil=True)
def any_present(slots: Array, offset: Array) -> bool:
    present = False
    for i in range(len(slots)):
        present |= offset[slots[i]] >= 0
    return present


@njit(cache=True, nogil=True)
def gather_bits(arena: Array, base: Array, offset: Array, slots: Array, rows: Array, out: Array) -> int:
    """Copy one bit per place (set where the page has no such buffer); returns the number of zeros."""
    zeros = 0
    for i in range(len(slots)):
        slot = slots[i]
        bit = 1
        if offset[slot] >= 0:
            byte = arena[base[slot] + offset[slot] + (rows[i] >> 3)]
            bit = (byte >> (rows[i] & 7)) & 1
        if bit:
            out[i >> 3] |= np.uint8(1 << (i & 7))
        else:
            zeros += 1
    return zeros


@njit(cache=True, nogil=True)
def gather_words(arena: Array, base: Array, offset: Array, slots: Array, rows: Array, out: Array) -> None:
    """Copy one value per place; `arena` and `out` are views of the value's width (1, 2, 4 or 8)."""
    width = arena.itemsize
    for i in range(len(slots)):
        slot = slots[i]
        out[i] = arena[(base[slot] + offset[slot]) // width + rows[i]]


@njit(cache=True, nogil=True)
def gather_wide(
    arena: Array, base: Array, offset: Array, slots: Array, rows: Array, width: int, out: Array
) -> None:
    """Copy `width` bytes per place."""
    source = arena.ctypes.data
    target = out.ctypes.data
    for i in range(len(slots)):
        slot = slots[i]
        memcpy(target + i * width, source + base[slot] + offset[slot] + rows[i] * width, width)


@njit(cache=True, nogil=True)
def gather_spans(
    arena: Array, base: Array, offset: Array, slots: Array, rows: Array, begin: Array, out: Array
) -> None:
    """Where each place's bytes (or list items) begin in its page, and the running total of their lengths.

    `arena` is a view of the width of the offsets.
    """
    width = arena.itemsize
    total = 0
    out[0] = 0
    for i in range(len(slots)):
        slot = slots[i]
        word = (base[slot] + offset[slot]) // width + rows[i]
        begin[i] = arena[word]
        total += np.int64(arena[word + 1]) - np.int64(arena[word])
        out[i + 1] = total


@njit(cache=True, nogil=True)
def gather_bytes(
    arena: Array, base: Array, offset: Array, slots: Array, begin: Array, ends: Array, out: Array
) -> None:
    """Copy the spans that `gather_spans` found, one behind the other."""
    source = arena.ctypes.data
    target = out.ctypes.data
    for i in range(len(slots)):
        slot = slots[i]
        length = ends[i + 1] - ends[i]
        if length > 0:
            memcpy(target + ends[i], source + base[slot] + offset[slot] + begin[i], length)


@njit(cache=True, nogil=True)
def spread_items(slots: Array, begin: Array, ends: Array) -> tuple[Array, Array]:
    """Places of the items of lists: the slot of each, and its row among the page's items."""
    total = ends[len(slots)]
    item_slots = np.empty(total, np.int32)
    item_rows = np.empty(total, np.int32)
    for i in range(len(slots)):
        for k in range(ends[i], ends[i + 1]):
            item_slots[k] = slots[i]
            item_rows[k] = begin[i] + (k - ends[i])
    return item_slots, item_rows
