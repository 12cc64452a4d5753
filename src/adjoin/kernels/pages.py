"""Pages from disk to arena: read along a plan, verify, and find their buffers."""

import numpy as np
from numba import njit

from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.memory import memcpy, preadv
from adjoin.kernels.types import Array

READ = 0
READ_FAILED = 1
PAGE_DAMAGED = 2
READ_LOST = 3
"""The system no longer tells which reads are over: they may still write to the arena."""

_MAX_VECTORS = 1024


@njit(cache=True, nogil=True)
def _int32(data: Array, at: int) -> int:
    return (
        np.int32(data[at])
        | np.int32(data[at + 1]) << 8
        | np.int32(data[at + 2]) << 16
        | np.int32(data[at + 3]) << 24
    )


@njit(cache=True, nogil=True)
def _table_field(data: Array, table: int, field: int) -> int:
    """Where a field of a flatbuffer table lies; 0 if it is absent."""
    vtable = table - _int32(data, table)
    entry = 4 + 2 * field
    if entry >= np.int32(data[vtable]) | np.int32(data[vtable + 1]) << 8:
        return 0
    at = np.int32(data[vtable + entry]) | np.int32(data[vtable + entry + 1]) << 8
    return table + at if at else 0


@njit(cache=True, nogil=True)
def _follow(data: Array, at: int) -> int:
    return at + _int32(data, at)


@njit(cache=True, nogil=True)
def find_buffers(
    arena: Array, words: Array, page: int, wanted: Array, offsets: Array, rows: Array, slot: int
) -> None:
    """Note where the wanted buffers of the page at byte `page` begin, and how many rows it has.

    Reads the page's metadata as it stands: Message.header -> RecordBatch {length, nodes, buffers}.
    """
    message = _follow(arena, page + 8)
    batch = _follow(arena, _table_field(arena, message, 2))
    rows[slot] = words[_table_field(arena, batch, 0) >> 3]
    buffers = _follow(arena, _table_field(arena, batch, 2)) + 4
    body = 8 + _int32(arena, page + 4)
    for i in range(len(wanted)):
        entry = (buffers + 16 * wanted[i]) >> 3
        offsets[i, slot] = body + words[entry] if words[entry + 1] else -1


@njit(cache=True, nogil=True)
def admit_page(
    arena: Array,
    words: Array,
    at: int,
    length: int,
    checksum: int,
    wanted: Array,
    offsets: Array,
    rows: Array,
    slot: int,
) -> bool:
    """Verify a page that has arrived and note where its buffers are; False if it is damaged."""
    if hash_bytes(arena, at, at + length) != checksum:
        return False
    find_buffers(arena, words, at, wanted, offsets, rows, slot)
    return True


@njit(cache=True, nogil=True)
def _read(descriptor: int, vectors: Array, used: int, offset: int) -> int:
    # A function of its own: numba frees a local array after its last mention, which an address is not,
    # but never an argument that the caller still holds.
    return preadv(descriptor, vectors.ctypes.data, used, offset)


@njit(cache=True, nogil=True)
def _scan(
    vectors: Array,
    descriptor: int,
    offset: Array,
    length: Array,
    target: Array,
    first: int,
    last: int,
    address: int,
    scratch: int,
    scratch_bytes: int,
) -> bool:
    """Read the pages first..last in one pass; what lies between them goes to the scratch block."""
    used = 0
    begin = offset[first]
    expected = 0
    for page in range(first, last + 1):
        gap = offset[page] - (begin + expected)
        while gap > 0 or used + 1 >= _MAX_VECTORS:
            if used + 1 >= _MAX_VECTORS:
                if _read(descriptor, vectors, used, begin) != expected:
                    return False
                begin += expected
                expected = 0
                used = 0
            if gap > 0:
                piece = min(gap, scratch_bytes)
                vectors[2 * used] = scratch
                vectors[2 * used + 1] = piece
                used += 1
                expected += piece
                gap -= piece
        vectors[2 * used] = address + target[page]
        vectors[2 * used + 1] = length[page]
        used += 1
        expected += length[page]
    return _read(descriptor, vectors, used, begin) == expected


@njit(cache=True, nogil=True)
def read_scans(
    scan_first: Array,
    scan_last: Array,
    from_scan: int,
    to_scan: int,
    descriptor: Array,
    offset: Array,
    length: Array,
    checksum: Array,
    slot: Array,
    slot_base: Array,
    arena: Array,
    words: Array,
    scratch: int,
    scratch_bytes: int,
    wanted: Array,
    offsets: Array,
    rows: Array,
) -> tuple[int, int]:
    """Read scans, verify every page and find its buffers: (READ | READ_FAILED | PAGE_DAMAGED, page).

    Without checksums the pages are only read.
    """
    address = arena.ctypes.data
    target = slot_base[slot]
    vectors = np.empty(2 * _MAX_VECTORS, np.int64)
    for scan in range(from_scan, to_scan):
        first = scan_first[scan]
        last = scan_last[scan]
        if not _scan(
            vectors,
            descriptor[first],
            offset,
            length,
            target,
            first,
            last,
            address,
            address + scratch,
            scratch_bytes,
        ):
            return READ_FAILED, first
        for page in range(first, last + 1):
            if len(checksum) and not admit_page(
                arena, words, target[page], length[page], checksum[page], wanted, offsets, rows, slot[page]
            ):
                return PAGE_DAMAGED, page
    return READ, -1


@njit(cache=True, nogil=True)
def move_pages(arena: Array, slot_base: Array, source: Array, target: Array, slot_bytes: int) -> None:
    """Copy whole slots within the arena."""
    address = arena.ctypes.data
    for i in range(len(source)):
        memcpy(address + slot_base[target[i]], address + slot_base[source[i]], slot_bytes)
