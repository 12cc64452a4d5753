"""Linux's queue for asynchronous reads, one per reading thread."""

import ctypes
import os
import platform
import weakref

import numpy as np

from adjoin.kernels.async_read import Operations, read_scans_ahead
from adjoin.kernels.pages import READ_FAILED, READ_LOST, VECTORS, Reads
from adjoin.kernels.types import Array

_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
"""Numbers of io_setup, io_destroy, io_submit and io_getevents."""
_libc = ctypes.CDLL(None, use_errno=True)


class AsyncQueue:
    """Reads scans with up to `depth` operations in flight.

    Raises:
        OSError: The system has no such queues, or none left.
    """

    def __init__(self, depth: int) -> None:
        calls = _CALLS.get(platform.machine())
        if calls is None:
            raise OSError(f"asynchronous reads are not supported on {platform.machine()}")
        setup, destroy, submit, collect = calls
        context = ctypes.c_ulong(0)
        if _libc.syscall(ctypes.c_long(setup), ctypes.c_long(depth), ctypes.byref(context)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.close = weakref.finalize(
            self, _libc.syscall, ctypes.c_long(destroy), ctypes.c_ulong(context.value)
        )
        self._operations = Operations(
            context=int(context.value),
            submit_call=submit,
            collect_call=collect,
            control=np.zeros((depth, 8), np.int64),
            vectors=np.zeros((depth, 2 * VECTORS), np.int64),
            pointers=np.zeros(depth, np.int64),
            events=np.zeros(4 * depth, np.int64),
            pages=np.zeros((depth, 3), np.int64),
        )

    def read(self, first: Array, last: Array, begin: int, end: int, reads: Reads) -> tuple[int, int]:
        """Read scans; see `read_scans` for arguments and result."""
        status, page = read_scans_ahead(self._operations, first, last, begin, end, reads)
        if status == READ_LOST:
            self.close()  # waits until no read is in flight
            return READ_FAILED, page
        return status, page
