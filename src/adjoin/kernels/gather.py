"""Values at (slot, row) places, copied from the pages in the arena into Arrow buffers.

A page lies in the arena as the bytes of its Arrow message; `offset[slot]` is where one of its
buffers begins, counted from `base[slot]`, or negative where the page has none (a column without nulls).

Nothing outside of a slot is ever read, whatever the pages and offsets say: a kernel returns SOUND, or a slot
whose page refers to bytes outside of it. `rooms` holds the size of a slot, and that of the last one. Places
are computed first and copied in a second loop: that loop waits for memory, and the shorter its body, the more
loads are in flight at once.
"""

import numpy as np

from adjoin.kernels.compiling import inline_kernel, kernel
from adjoin.kernels.libc import memcpy
from adjoin.kernels.types import Array

SOUND = -1
_NOWHERE = -1


@inline_kernel
def room_of(slot: int, slots: int, room: int, last_room: int) -> int:
    """Bytes of one of `slots` slots; takes numbers, because passing arrays would cost more than the rest."""
    return last_room if slot == slots - 1 else room


@kernel
def any_present(slots: Array, offset: Array) -> bool:
    """Whether the page in any of these slots has the buffer with these offsets."""
    present = False
    for i in range(len(slots)):
        present |= offset[slots[i]] >= 0
    return present


@kernel
def _find_places(
    base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, width: int, more: int
) -> tuple[Array, int]:
    """Where each place's value begins in the arena, if it and the `more` bytes after it lie in the slot.

    _NOWHERE where the page has no such buffer, or where the value would lie outside of its slot.
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


@kernel
def gather_bits(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, out: Array
) -> tuple[int, int]:
    """Copy one bit per place (1 where the page has no such buffer); also returns the number of zeros."""
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


@kernel
def gather_words(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, out: Array
) -> int:
    """Copy one value per place; `arena` and `out` are views of the value's width (1, 2, 4 or 8)."""
    width = arena.itemsize
    places, bad = _find_places(base, rooms, offset, slots, rows, width, 0)
    for i in range(len(slots)):
        out[i] = arena[places[i] // width] if places[i] != _NOWHERE else 0
    return bad


@kernel
def gather_wide(
    arena: Array, base: Array, rooms: Array, offset: Array, slots: Array, rows: Array, width: int, out: Array
) -> int:
    """Copy `width` bytes per place into `out`, which must be zeroed."""
    source = arena.ctypes.data
    target = out.ctypes.data
    places, bad = _find_places(base, rooms, offset, slots, rows, width, 0)
    for i in range(len(slots)):
        if places[i] != _NOWHERE:
            memcpy(target + i * width, source + places[i], width)
    return bad


@kernel
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
    """Where each place's list items begin in its page, and the running total of their counts.

    `arena` is a view whose items are as wide as the offsets. A span that ends beyond `most` times the room
    of its slot is damage.
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


@kernel
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

    `arena` is a view whose items are as wide as the offsets; `data_offset` says where the bytes begin.
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


@kernel
def gather_bytes(arena: Array, begin: Array, ends: Array, out: Array) -> None:
    """Copy what `gather_extents` found into one contiguous buffer."""
    source = arena.ctypes.data
    target = out.ctypes.data
    for i in range(len(begin)):
        length = ends[i + 1] - ends[i]
        if length > 0:
            memcpy(target + ends[i], source + begin[i], length)


@kernel
def spread_items(slots: Array, begin: Array, ends: Array) -> tuple[Array, Array]:
    """The places of list items: the slot of each, and its row among the items of the page."""
    total = ends[len(slots)]
    item_slots = np.empty(total, np.int32)
    item_rows = np.empty(total, np.int32)
    for i in range(len(slots)):
        for k in range(ends[i], ends[i + 1]):
            item_slots[k] = slots[i]
            item_rows[k] = begin[i] + (k - ends[i])
    return item_slots, item_rows
