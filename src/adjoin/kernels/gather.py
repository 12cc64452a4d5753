"""Values of (slot, row) places, copied out of the pages in the arena into Arrow buffers.

A page lies in the arena as the bytes of its Arrow message; `offset[slot]` is where one of its
buffers begins, counted from `base[slot]`, or negative where the page has none (a column without nulls).

Where others can change the arena, nothing outside of a slot is read, whatever pages and offsets say: kernels
return SOUND, or a slot of which something outside was wanted. `rooms` are then the bytes of a slot, and of
the last one. Otherwise `rooms` are empty: pages were verified as they came, and to look at every place again
would take half as long as to copy it.
"""

import numpy as np
from numba import njit

from adjoin.kernels.memory import memcpy
from adjoin.kernels.types import Array

SOUND = -1


@njit(cache=True, nogil=True, inline="always")
def room_of(slot: int, slots: int, room: int, last_room: int) -> int:
    """Bytes of a slot, of so many; numbers alone, for to pass arrays costs more than the rest in a loop."""
    return last_room if slot == slots - 1 else room


@njit(cache=True, nogil=True)
def any_present(slots: Array, offset: Array) -> bool:
    present = False
    for i in range(len(slots)):
        present |= offset[slots[i]] >= 0
    return present


@njit(cache=True, nogil=True)
def gather_bits(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, out: Array
) -> tuple[int, int]:
    """Copy one bit per place (set where the page has no such buffer); returns the number of zeros too."""
    zeros = 0
    is_open = len(rooms) > 0
    room, last_room = (rooms[0], rooms[1]) if is_open else (np.int64(0), np.int64(0))
    bad = SOUND
    for i in range(len(slots)):
        slot = slots[i]
        bit = 1
        if offset[slot] >= 0:
            at = np.int64(offset[slot]) + (rows[i] >> 3)
            if not is_open or (rows[i] >= 0 and at < room_of(slot, len(base), room, last_room)):
                bit = (arena[base[slot] + at] >> (rows[i] & 7)) & 1
            else:
                bad = slot
        if bit:
            out[i >> 3] |= np.uint8(1 << (i & 7))
        else:
            zeros += 1
    return zeros, bad


@njit(cache=True, nogil=True)
def gather_words(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, out: Array
) -> int:
    """Copy one value per place; `arena` and `out` are views of the value's width (1, 2, 4 or 8)."""
    width = arena.itemsize
    if len(rooms) == 0:
        for i in range(len(slots)):
            slot = slots[i]
            out[i] = arena[(base[slot] + offset[slot]) // width + rows[i]]
        return SOUND
    room, last_room = rooms[0], rooms[1]
    bad = SOUND
    for i in range(len(slots)):
        slot = slots[i]
        row = np.int64(rows[i])
        begin = np.int64(offset[slot])
        if begin >= 0 and row >= 0 and begin + (row + 1) * width <= room_of(slot, len(base), room, last_room):
            out[i] = arena[(base[slot] + begin) // width + row]
        else:
            out[i] = 0
            if begin >= 0:
                bad = slot
    return bad


@njit(cache=True, nogil=True)
def gather_wide(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, width: int, out: Array
) -> int:
    """Copy `width` bytes per place; `out` is zeros."""
    source = arena.ctypes.data
    target = out.ctypes.data
    if len(rooms) == 0:
        for i in range(len(slots)):
            slot = slots[i]
            memcpy(target + i * width, source + base[slot] + offset[slot] + rows[i] * width, width)
        return SOUND
    room, last_room = rooms[0], rooms[1]
    bad = SOUND
    for i in range(len(slots)):
        slot = slots[i]
        row = np.int64(rows[i])
        begin = np.int64(offset[slot])
        if begin >= 0 and row >= 0 and begin + (row + 1) * width <= room_of(slot, len(base), room, last_room):
            memcpy(target + i * width, source + base[slot] + begin + row * width, width)
        elif begin >= 0:
            bad = slot
    return bad


@njit(cache=True, nogil=True)
def gather_spans(
    arena: Array,
    base: Array,
    rooms: Array,
    offset: Array,
    slots: Array,
    rows: Array,
    most: int,
    begin: Array,
    out: Array,
) -> int:
    """Where each place's bytes (or list items) begin in its page, and the running total of their lengths.

    `arena` is a view of the width of the offsets. No span of a page ends behind `most` times its room.
    """
    width = arena.itemsize
    total = 0
    if len(rooms) == 0:
        out[0] = 0
        for i in range(len(slots)):
            slot = slots[i]
            word = (base[slot] + offset[slot]) // width + rows[i]
            begin[i] = arena[word]
            total += np.int64(arena[word + 1]) - np.int64(arena[word])
            out[i + 1] = total
        return SOUND
    room, last_room = rooms[0], rooms[1]
    bad = SOUND
    out[0] = 0
    for i in range(len(slots)):
        slot = slots[i]
        row = np.int64(rows[i])
        at = np.int64(offset[slot])
        here = room_of(slot, len(base), room, last_room)
        first, last = np.int64(0), np.int64(0)
        if at >= 0 and row >= 0 and at + (row + 2) * width <= here:
            word = (base[slot] + at) // width + row
            first, last = np.int64(arena[word]), np.int64(arena[word + 1])
        elif at >= 0:
            bad = slot
        if first < 0 or last < first or last > here * most:
            bad = slot
            first, last = np.int64(0), np.int64(0)
        begin[i] = first
        total += last - first
        out[i + 1] = total
    return bad


@njit(cache=True, nogil=True)
def gather_bytes(
    arena: Array,
    base: Array,
    rooms: Array,
    offset: Array,
    slots: Array,
    begin: Array,
    ends: Array,
    out: Array,
) -> int:
    """Copy the spans that `gather_spans` found, one behind the other."""
    source = arena.ctypes.data
    target = out.ctypes.data
    if len(rooms) == 0:
        for i in range(len(slots)):
            slot = slots[i]
            if ends[i + 1] > ends[i]:
                memcpy(target + ends[i], source + base[slot] + offset[slot] + begin[i], ends[i + 1] - ends[i])
        return SOUND
    room, last_room = rooms[0], rooms[1]
    bad = SOUND
    for i in range(len(slots)):
        slot = slots[i]
        length = ends[i + 1] - ends[i]
        if length > 0:
            at = np.int64(offset[slot])
            if at >= 0 and at + begin[i] + length <= room_of(slot, len(base), room, last_room):
                memcpy(target + ends[i], source + base[slot] + at + begin[i], length)
            else:
                bad = slot
    return bad


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
