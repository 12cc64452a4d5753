"""Reading pages into the arena with many reads in flight, through Linux asynchronous I/O.

An operation is one `preadv` of a scan, or of a part of a scan that has many pages. The layout of the two
kernel structures, as int64 words:

    iocb:   0 data   1 key, flags   2 opcode | descriptor << 32   3 vectors   4 number of vectors
            5 offset   6, 7 unused
    event:  0 data   1 iocb   2 result   3 unused
"""

from typing import NamedTuple

import numpy as np

from adjoin.kernels.compiling import kernel
from adjoin.kernels.libc import syscall
from adjoin.kernels.pages import (
    PAGE_DAMAGED,
    READ,
    READ_FAILED,
    READ_LOST,
    Reads,
    admit_page,
    fill_vectors,
)
from adjoin.kernels.types import Array

_PREADV = 7
_MOST_INTERRUPTIONS = 1 << 20


class Operations(NamedTuple):
    """Memory for the operations that can be in flight, and their queue.

    Attributes:
        context: The queue.
        submit_call: Number of the system call that submits operations.
        collect_call: Number of the system call that waits for them.
        control: The control block of each operation.
        vectors: The pieces of memory that each operation fills.
        pointers: Addresses of the control blocks to submit.
        events: Receives the events of finished operations.
        pages: First page, last page and bytes of each operation.
    """

    context: int
    submit_call: int
    collect_call: int
    control: Array
    vectors: Array
    pointers: Array
    events: Array
    pages: Array


@kernel
def _prepare(ops: Operations, op: int, reads: Reads, page: int, last_of_scan: int) -> int:
    """Set up an operation that reads pages of a scan from `page` on; returns the last page it reads."""
    used, total, last = fill_vectors(reads, ops.vectors[op], page, last_of_scan)
    ops.control[op, 0] = op
    ops.control[op, 2] = _PREADV | np.int64(reads.descriptor[page]) << 32
    ops.control[op, 3] = ops.vectors.ctypes.data + op * ops.vectors.shape[1] * 8
    ops.control[op, 4] = used
    ops.control[op, 5] = reads.offset[page]
    ops.pages[op, 0], ops.pages[op, 1], ops.pages[op, 2] = page, last, total
    return last


@kernel
def _submit(ops: Operations, count: int) -> int:
    """Submit operations; returns how many were accepted, fewer than `count` only if the system refuses."""
    done = 0
    while done < count:
        rest = ops.pointers.ctypes.data + 8 * done
        taken = syscall(ops.submit_call, ops.context, count - done, rest, 0, 0)
        if taken <= 0:
            break
        done += taken
    return done


@kernel
def _collect(ops: Operations) -> int:
    """Wait for events, again after an interrupting signal; returns their number, 0 on failure."""
    for _ in range(_MOST_INTERRUPTIONS):
        room = len(ops.events) // 4
        count = syscall(ops.collect_call, ops.context, 1, room, ops.events.ctypes.data, 0)
        if count > 0:
            return count
    return 0


@kernel
def _receive(ops: Operations, op: int, result: int, reads: Reads) -> tuple[int, int]:
    """Check a finished operation; returns the same as `read_scans`."""
    if result != ops.pages[op, 2]:
        return READ_FAILED, ops.pages[op, 0]
    for page in range(ops.pages[op, 0], ops.pages[op, 1] + 1):
        if not admit_page(reads, page):
            return PAGE_DAMAGED, page
    return READ, -1


@kernel
def read_scans_ahead(
    ops: Operations, scan_first: Array, scan_last: Array, begin: int, end: int, reads: Reads
) -> tuple[int, int]:
    """Like `read_scans`, with as many operations in flight as there is room for.

    After a failure no new operation is started, but those in flight are awaited, because they write to the
    arena. READ_LOST means that awaiting them failed.
    """
    free = np.arange(len(ops.pointers))
    free_count = len(free)
    status, bad = READ, -1
    scan = begin
    page = scan_first[begin] if begin < end else 0
    while True:
        count = 0
        while free_count > 0 and scan < end and status == READ:
            free_count -= 1
            op = free[free_count]
            page = _prepare(ops, op, reads, page, scan_last[scan]) + 1
            ops.pointers[count] = ops.control.ctypes.data + op * ops.control.shape[1] * 8
            count += 1
            if page > scan_last[scan]:
                scan += 1
                page = scan_first[scan] if scan < end else 0
        taken = _submit(ops, count)
        for _ in range(taken, count):
            status, bad = READ_FAILED, ops.pages[free[free_count], 0]
            free_count += 1
        if free_count == len(free):
            return status, bad
        come = _collect(ops)
        if come == 0:
            return READ_LOST, ops.pages[free[free_count], 0]
        for event in range(come):
            op = ops.events[4 * event]
            free[free_count] = op
            free_count += 1
            if status == READ:
                status, bad = _receive(ops, op, ops.events[4 * event + 2], reads)
