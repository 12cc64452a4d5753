"""Pages from disk to arena with many reads in flight, through the kernel's queue for asynchronous I/O.

An operation is one `preadv` of a scan, or of a part of it if it has many pages. Layout of the two
structures of the system, as int64 words:

    iocb:   0 data   1 key, flags   2 opcode | descriptor << 32   3 vectors   4 their number
            5 offset   6, 7 unused
    event:  0 data   1 iocb   2 result   3 unused
"""

import numpy as np
from numba import njit

from adjoin.kernels.memory import syscall
from adjoin.kernels.pages import PAGE_DAMAGED, READ, READ_FAILED, READ_LOST, admit_page
from adjoin.kernels.types import Array

VECTORS = 64
"""Most pieces of memory that one operation fills."""
_PREADV = 7
_MOST_INTERRUPTIONS = 1 << 20


@njit(cache=True, nogil=True)
def _fill_vectors(
    vectors: Array,
    offset: Array,
    length: Array,
    target: Array,
    first: int,
    last: int,
    address: int,
    scratch: int,
    scratch_bytes: int,
) -> tuple[int, int, int]:
    """Vectors for pages of a scan from `first` on, as many as fit: how many, their bytes, the last page."""
    used = 0
    total = 0
    page = first
    while page <= last:
        gap = offset[page] - (offset[first] + total)
        pieces = (gap + scratch_bytes - 1) // scratch_bytes
        if used + pieces + 1 > VECTORS and page > first:
            break
        while gap > 0:
            vectors[2 * used] = scratch
            vectors[2 * used + 1] = min(gap, scratch_bytes)
            total += vectors[2 * used + 1]
            gap -= vectors[2 * used + 1]
            used += 1
        vectors[2 * used] = address + target[page]
        vectors[2 * used + 1] = length[page]
        total += length[page]
        used += 1
        page += 1
    return used, total, page - 1


@njit(cache=True, nogil=True)
def _submit(number: int, context: int, pointers: Array, count: int) -> int:
    """Hand operations over; returns how many were taken, fewer than given only if the system refuses."""
    done = 0
    while done < count:
        taken = syscall(number, context, count - done, pointers.ctypes.data + 8 * done, 0, 0)
        if taken <= 0:
            break
        done += taken
    return done


@njit(cache=True, nogil=True)
def _collect(number: int, context: int, events: Array) -> int:
    """Wait for events, again when a signal interrupts; returns how many have come."""
    for _ in range(_MOST_INTERRUPTIONS):
        count = syscall(number, context, 1, len(events) // 4, events.ctypes.data, 0)
        if count > 0:
            return count
    return 0


@njit(cache=True, nogil=True)
def read_scans_ahead(
    queue: tuple[int, int, int],
    blocks: tuple[Array, Array, Array, Array, Array],
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
    """As `read_scans`, with as many operations in flight as the queue has room for.

    `queue` is the context and the numbers of the calls that submit and collect; `blocks` are control
    blocks, vectors, pointers, events, and (first page, last page, bytes) of each operation.
    """
    context, submit, collect = queue
    control, vectors, pointers, events, under_way = blocks
    depth = len(pointers)
    address = arena.ctypes.data
    target = slot_base[slot]
    free = np.arange(depth)
    free_count = depth
    status, bad = READ, -1
    scan = from_scan
    page = scan_first[scan] if scan < to_scan else 0
    while True:
        count = 0
        while free_count > 0 and scan < to_scan and status == READ:
            free_count -= 1
            op = free[free_count]
            used, total, last = _fill_vectors(
                vectors[op],
                offset,
                length,
                target,
                page,
                scan_last[scan],
                address,
                address + scratch,
                scratch_bytes,
            )
            control[op, 0] = op
            control[op, 1] = 0
            control[op, 2] = _PREADV | np.int64(descriptor[page]) << 32
            control[op, 3] = vectors.ctypes.data + op * vectors.shape[1] * 8
            control[op, 4] = used
            control[op, 5] = offset[page]
            control[op, 6] = 0
            control[op, 7] = 0
            under_way[op, 0], under_way[op, 1], under_way[op, 2] = page, last, total
            pointers[count] = control.ctypes.data + op * 64
            count += 1
            page = last + 1
            if last == scan_last[scan]:
                scan += 1
                page = scan_first[scan] if scan < to_scan else 0
        for refused in range(_submit(submit, context, pointers, count), count):
            op = (pointers[refused] - control.ctypes.data) // 64
            free[free_count] = op
            free_count += 1
            status, bad = READ_FAILED, under_way[op, 0]
        if free_count == depth:
            return status, bad
        come = _collect(collect, context, events)
        if come == 0:
            return READ_LOST, under_way[0, 0]
        for event in range(come):
            op = events[4 * event]
            free[free_count] = op
            free_count += 1
            if status != READ:
                continue
            if events[4 * event + 2] != under_way[op, 2]:
                status, bad = READ_FAILED, under_way[op, 0]
                continue
            for arrived in range(under_way[op, 0], under_way[op, 1] + 1):
                if len(checksum) and not admit_page(
                    arena,
                    words,
                    target[arrived],
                    length[arrived],
                    checksum[arrived],
                    wanted,
                    offsets,
                    rows,
                    slot[arrived],
                ):
                    status, bad = PAGE_DAMAGED, arrived
                    break
