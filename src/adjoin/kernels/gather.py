"""Values of (slot, row) places, copied out of the pages in the arena into Arrow buffers.

A page lies in the arena as the bytes of its Arrow message; `offset[slot]` is where one of its
buffers begins, counted from `base[slot]`, or negative where the page has none (a column without nulls).

Whatever pages and offsets say, nothing outside of a slot is read: kernels return SOUND, or a slot of which
something outside was wanted. `rooms` are the bytes of a slot, and of the last one. Places are looked at first
and copied then: the loop that copies waits for memory, and the fewer steps it has, the more places are on
their way at once.
"""

import numpy as np
from numba import njit

from adjoin.kernels.libc import memcpy
from adjoin.kernels.types import Array

SOUND = -1
_NOWHERE = -1


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
def _find_places(
    base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, width: int, more: int
) -> tuple[Array, int]:
    """Where the value of each place begins in the arena, and `more` bytes behind it are in its slot as well.

    _NOWHERE where the page has no such buffer, or would have it outside of its slot.
    """
    room, last_room, last = rooms[0], rooms[1], len(base) - 1
    found = np.empty(len(slots), np.int64)
    bad = SOUND
    for i in range(len(slots)):
        slot = slots[i]
        row, begin = np.int64(rows[i]), np.int64(offset[slot])
        here = last_room if slot == last else room
        is_inside = (begin >= 0) & (row >= 0) & (begin + (row + 1) * width + more <= here)
        found[i] = base[slot] + begin + row * width if is_inside else _NOWHERE
        bad = slot if (begin >= 0) & (not is_inside) else bad
    return found, bad


@njit(cache=True, nogil=True)
def gather_bits(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, out: Array
) -> tuple[int, int]:
    """Copy one bit per place (set where the page has no such buffer); returns the number of zeros too."""
    places, bad = _find_places(base, rooms, offset, slots, rows >> 3, 1, 0)
    zeros = 0
    for i in range(len(slots)):
        bit = 1
        if places[i] != _NOWHERE:
            bit = (arena[places[i]] >> (rows[i] & 7)) & 1
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
    places, bad = _find_places(base, rooms, offset, slots, rows, width, 0)
    for i in range(len(slots)):
        out[i] = arena[places[i] // width] if places[i] != _NOWHERE else 0
    return bad


@njit(cache=True, nogil=True)
def gather_wide(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, width: int, out: Array
) -> int:
    """Copy `width` bytes per place; `out` is zeros."""
    source = arena.ctypes.data
    target = out.ctypes.data
    places, bad = _find_places(base, rooms, offset, slots, rows, width, 0)
    for i in range(len(slots)):
        if places[i] != _NOWHERE:
            memcpy(target + i * width, source + places[i], width)
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
    """Where each place's list items begin in its page, and the running total of their number.

    `arena` is a view of the width of the offsets. No span of a page ends behind `most` times its room.
    """
    width = arena.itemsize
    places, bad = _find_places(base, rooms, offset, slots, rows, width, width)
    room, last_room, last_slot = rooms[0], rooms[1], len(base) - 1
    total = 0
    out[0] = 0
    for i in range(len(slots)):
        first, last = np.int64(0), np.int64(0)
        if places[i] != _NOWHERE:
            word = places[i] // width
            first, last = np.int64(arena[word]), np.int64(arena[word + 1])
        here = last_room if slots[i] == last_slot else room
        if first < 0 or last < first or last > here * most:
            bad = slots[i]
            first, last = np.int64(0), np.int64(0)
        begin[i] = first
        total += last - first
        out[i + 1] = total
    return bad


@njit(cache=True, nogil=True)
def gather_extents(
    arena: Array,
    base: Array,
    rooms: Array,
    offset: Array,
    data_offset: Array,
    slots: Array,
    rows: Array,
    begin: Array,
    out: Array,
) -> int:
    """Where each place's bytes begin in the arena, and the running total of their lengths.

    `arena` is a view of the width of the offsets, `data_offset` is that of the bytes.
    """
    width = arena.itemsize
    places, bad = _find_places(base, rooms, offset, slots, rows, width, width)
    room, last_room, last_slot = rooms[0], rooms[1], len(base) - 1
    total = 0
    out[0] = 0
    for i in range(len(slots)):
        slot = slots[i]
        begin[i] = 0
        if places[i] != _NOWHERE:
            word = places[i] // width
            first, last = np.int64(arena[word]), np.int64(arena[word + 1])
            at = np.int64(data_offset[slot])
            here = last_room if slot == last_slot else room
            if last != first:
                if at < 0 or first < 0 or last < first or last > here - at:
                    bad = slot
                else:
                    begin[i] = base[slot] + at + first
                    total += last - first
        out[i + 1] = total
    return bad


@njit(cache=True, nogil=True)
def gather_bytes(arena: Array, begin: Array, ends: Array, out: Array) -> None:
    """Copy what `gather_extents` found, one behind the other."""
    source = arena.ctypes.data
    target = out.ctypes.data
    for i in range(len(begin)):
        length = ends[i + 1] - ends[i]
        if length > 0:
            memcpy(target + ends[i], source + begin[i], length)


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
