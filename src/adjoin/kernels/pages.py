"""Pages on their way from disk to arena: reading along a plan, verifying, locating buffers."""

from typing import NamedTuple

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.gather import SOUND, room_of
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.libc import memcpy, preadv
from adjoin.kernels.types import Array

READ = 0
READ_FAILED = 1
PAGE_DAMAGED = 2
READ_LOST = 3
"""The system no longer reports which reads have finished: they may still write to the arena."""

_MOST_ROWS = (1 << 31) - 1

LACKING = -2
"""In place of an offset: pages of this layout lack the buffer; -1 stands for an empty buffer."""

VECTORS = 64
"""The most pieces of memory that one read fills."""


_PREFIX_BYTES = 8
"""Of a message: its marker, and the length of the metadata."""
_NOWHERE = -1


@kernel
def _int32(data: Array, at: int) -> int:
    return (
        np.int32(data[at])
        | np.int32(data[at + 1]) << 8
        | np.int32(data[at + 2]) << 16
        | np.int32(data[at + 3]) << 24
    )


@kernel
def _int16(data: Array, at: int) -> int:
    return np.int32(data[at]) | np.int32(data[at + 1]) << 8


@kernel
def _table_field(data: Array, table: int, field: int, begin: int, end: int) -> int:
    """Where a field of a flatbuffer table lies; 0 if absent, _NOWHERE if outside of begin..end-1."""
    if table < begin or table + 4 > end:
        return _NOWHERE
    vtable = table - _int32(data, table)
    entry = 4 + 2 * field
    if vtable < begin or vtable + 2 > end:
        return _NOWHERE
    if entry >= _int16(data, vtable):
        return 0
    if vtable + entry + 2 > end:
        return _NOWHERE
    at = _int16(data, vtable + entry)
    if at == 0:
        return 0
    return table + at if table + at + 8 <= end else _NOWHERE


@kernel
def _follow(data: Array, at: int, begin: int, end: int) -> int:
    """The target of the reference at this place; _NOWHERE if either lies outside of begin..end-1."""
    if at < begin or at + 4 > end:
        return _NOWHERE
    to = at + _int32(data, at)
    return to if begin <= to and to + 4 <= end else _NOWHERE


@kernel
def find_buffers(
    arena: Array, words: Array, page: int, length: int, wanted: Array, offsets: Array, rows: Array, slot: int
) -> bool:
    """Record where the wanted buffers of the page at byte `page` begin, and how many rows it has.

    A negative ordinal stands for a buffer that pages of this layout do not have.

    The metadata is parsed in place: Message.header -> RecordBatch {length, nodes, buffers}. Nothing outside
    of the page is read, whatever the metadata says. False means that the bytes are not a record batch of at
    most `length` bytes whose buffers lie within it; the slot is then recorded as empty.
    """
    rows[slot] = 0
    offsets[:, slot] = -1
    begin = page + _PREFIX_BYTES
    if length < _PREFIX_BYTES + 4:
        return False
    metadata = _int32(arena, page + 4)
    if metadata < 0 or metadata % 8 or metadata > length - _PREFIX_BYTES:
        return False
    end = begin + metadata
    message = _follow(arena, begin, begin, end)
    batch = _follow(arena, _table_field(arena, message, 2, begin, end), begin, end)
    count_at = _table_field(arena, batch, 0, begin, end)
    buffers = _follow(arena, _table_field(arena, batch, 2, begin, end), begin, end)
    if count_at == _NOWHERE or count_at % 8 or buffers == _NOWHERE or (buffers + 4) % 8:
        return False
    count = words[count_at >> 3] if count_at else 0
    buffer_count = _int32(arena, buffers)
    if count < 0 or count > _MOST_ROWS or buffer_count < 0 or buffer_count > (end - buffers - 4) >> 4:
        return False
    body = _PREFIX_BYTES + metadata
    for i in range(len(wanted)):
        if wanted[i] < 0:
            offsets[i, slot] = LACKING
            continue
        at, size = -1, 0
        if wanted[i] < buffer_count:
            entry = (buffers + 4 + 16 * wanted[i]) >> 3
            at, size = words[entry], words[entry + 1]
        if at < 0 or at % 8 or size < 0 or at > length - body or size > length - body - at:
            offsets[:, slot] = -1
            return False
        offsets[i, slot] = body + at if size else -1
    rows[slot] = count
    return True


class Reads(NamedTuple):
    """Pages to read and where they go; the first five arrays have one entry per page.

    Attributes:
        descriptor: The open file that holds the page.
        offset: Where the page begins in the file.
        length: Bytes of the page.
        checksum: What its bytes must hash to; if empty, pages are read and not verified.
        slot: The slot that receives the page.
        slot_base: Where each slot begins in the arena.
        arena: The arena as bytes.
        words: The arena as int64.
        scratch_bytes: Size of the region at the start of the arena for bytes that are not wanted.
        layout: The layout of each page.
        wanted: Ordinals of the buffers to locate in a page, by layout.
        offsets: Receives where they begin, by buffer and slot.
        rows: Receives the number of rows, by slot.
    """

    descriptor: Array
    offset: Array
    length: Array
    checksum: Array
    slot: Array
    slot_base: Array
    arena: Array
    words: Array
    scratch_bytes: int
    layout: Array
    wanted: Array
    offsets: Array
    rows: Array


@kernel
def admit_page(reads: Reads, page: int) -> bool:
    """Verify a page that has been read and record where its buffers are; False if it is damaged."""
    if len(reads.checksum) == 0:
        return True
    slot = reads.slot[page]
    at = reads.slot_base[slot]
    if hash_bytes(reads.arena, at, at + reads.length[page]) != reads.checksum[page]:
        return False
    wanted = reads.wanted[reads.layout[page]]
    return find_buffers(
        reads.arena, reads.words, at, reads.length[page], wanted, reads.offsets, reads.rows, slot
    )


@kernel
def fill_vectors(reads: Reads, vectors: Array, first: int, last: int) -> tuple[int, int, int]:
    """Describe the memory for the pages of a scan from `first` on, as far as `vectors` has room.

    Bytes between two wanted pages go to the scratch region.

    Returns:
        The number of pieces, their total bytes, and the last page that they cover.
    """
    address = reads.arena.ctypes.data
    used = 0
    total = 0
    page = first
    while page <= last:
        gap = reads.offset[page] - (reads.offset[first] + total)
        pieces = (gap + reads.scratch_bytes - 1) // reads.scratch_bytes
        if 2 * (used + pieces + 1) > len(vectors) and page > first:
            break
        while gap > 0:
            piece = min(gap, reads.scratch_bytes)
            vectors[2 * used] = address
            vectors[2 * used + 1] = piece
            total += piece
            gap -= piece
            used += 1
        vectors[2 * used] = address + reads.slot_base[reads.slot[page]]
        vectors[2 * used + 1] = reads.length[page]
        total += reads.length[page]
        used += 1
        page += 1
    return used, total, page - 1


@kernel
def _read(descriptor: int, vectors: Array, used: int, offset: int) -> int:
    # A separate function: numba frees a local array after its last use, and taking its address does not
    # count as one, but it never frees an argument that the caller still holds.
    return preadv(descriptor, vectors.ctypes.data, used, offset)


@kernel
def read_scans(scan_first: Array, scan_last: Array, begin: int, end: int, reads: Reads) -> tuple[int, int]:
    """Read the scans begin..end-1, verify every page and locate its buffers.

    Returns:
        READ and -1, or READ_FAILED or PAGE_DAMAGED and the page where it happened.
    """
    vectors = np.empty(2 * VECTORS, np.int64)
    for scan in range(begin, end):
        page = scan_first[scan]
        while page <= scan_last[scan]:
            used, total, last = fill_vectors(reads, vectors, page, scan_last[scan])
            if _read(reads.descriptor[page], vectors, used, reads.offset[page]) != total:
                return READ_FAILED, page
            for arrived in range(page, last + 1):
                if not admit_page(reads, arrived):
                    return PAGE_DAMAGED, arrived
            page = last + 1
    return READ, -1


@kernel
def find_slots(slot_of_page: Array, page_of_slot: Array, pages: Array, slots: Array) -> bool:
    """Look up the slot of each page, negative if it has none; False if a slot belongs to another page."""
    for i in range(len(pages)):
        slot = slot_of_page[pages[i]]
        if slot < -1 or slot >= len(page_of_slot) or (slot >= 0 and page_of_slot[slot] != pages[i]):
            return False
        slots[i] = slot
    return True


@kernel
def are_all(values: Array, places: Array, wanted: int) -> bool:
    """Whether all of these places hold the wanted value."""
    same = True
    for i in range(len(places)):
        same &= values[places[i]] == wanted
    return same


@kernel
def find_damage(
    arena: Array,
    words: Array,
    base: Array,
    rooms: Array,
    slots: Array,
    lengths: Array,
    checksums: Array,
    layouts: Array,
    wanted: Array,
    offsets: Array,
    rows: Array,
) -> int:
    """SOUND, or the first position whose slot fails its checksum or has other buffers than recorded."""
    found = np.empty((wanted.shape[1], 1), np.int32)
    count = np.empty(1, np.int32)
    for i in range(len(slots)):
        slot = slots[i]
        at = base[slot]
        if lengths[i] < 0 or lengths[i] > room_of(slot, len(base), rooms[0], rooms[1]):
            return i
        if hash_bytes(arena, at, at + lengths[i]) != checksums[i]:
            return i
        if not find_buffers(arena, words, at, lengths[i], wanted[layouts[i]], found, count, 0):
            return i
        if count[0] != rows[slot]:
            return i
        for buffer in range(len(found)):
            if found[buffer, 0] != offsets[buffer, slot]:
                return i
    return SOUND


@kernel
def move_pages(arena: Array, slot_base: Array, source: Array, target: Array, slot_bytes: int) -> None:
    """Copy whole slots within the arena."""
    address = arena.ctypes.data
    for i in range(len(source)):
        memcpy(address + slot_base[target[i]], address + slot_base[source[i]], slot_bytes)
