"""Freed memory that goes back to the operating system."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 1 << 20


def return_freed_memory() -> bool:
    """Have the C library return large buffers to the operating system as soon as they are freed.

    Joins account for every byte they hold. The process can still be larger than their budgets, by buffers
    that were freed and that the C library keeps for later. Call this once, when the program starts, if the
    resident size of the process has to follow the budgets. It applies to the whole process, which is why no
    import and no operator does it; the tasks that adjoin runs in Spark's Python workers do.

    How it works: glibc maps large buffers one by one, and unmaps them when they are freed. But each time one
    of them is freed it raises the size that counts as large, up to 32 MB, and takes smaller buffers from its
    heap, where they leave holes that stay resident. This fixes that size at 1 MB, and the free memory that
    is kept at the end of the heap as well.

    Returns:
        Whether the C library supports this. glibc does; others are left as they are.

    Example:
        >>> import adjoin
        >>> is_glibc = adjoin.return_freed_memory()

    Cost: a system call for each buffer of more than 1 MB.

    Reference: mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return bool(libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES) and libc.mallopt(_TRIM_THRESHOLD, _LARGE_BYTES))
