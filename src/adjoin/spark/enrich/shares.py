"""How the tasks of a host share its budget."""

from adjoin.errors import BudgetError
from adjoin.master.master import Master
from adjoin.memory.page_memory import PageFile
from adjoin.semistream.pages.split import least_memory

_COMFORTABLE_BYTES = 16 << 20
"""By default no partition gets less than this."""
_STEP = 1.25


def share_of(master: Master, memory_bytes: int, partitions: int) -> int:
    """Bytes per task, after subtracting the index, which all processes of a host share.

    The index is counted with some room to grow, in steps, so that shares stay the same, and pages warm,
    while the master is updated.
    """
    share_bytes = (memory_bytes - _index_bytes(master)) // partitions
    least = _least_bytes(master)
    if share_bytes < least:
        enough = least * partitions + _index_bytes(master)
        raise BudgetError(
            f"memory={memory_bytes} is too small for {partitions} partitions of a join with {master.path}: "
            f"each needs {least:,} bytes, and the index needs {_index_bytes(master):,}; "
            f"give memory={enough} or more, or fewer partitions"
        )
    return share_bytes


def default_partitions(master: Master, memory_bytes: int, parallelism: int) -> int:
    """As many as run at once, as long as each is large enough to cache a useful part."""
    comfortable = max(_COMFORTABLE_BYTES, 4 * _least_bytes(master))
    return max(1, min(parallelism, (memory_bytes - _index_bytes(master)) // comfortable))


def _least_bytes(master: Master) -> int:
    return least_memory(master, shared_index=True, pages=PageFile)


def _index_bytes(master: Master) -> int:
    counted = 64 << 10
    while counted < master.index_file_bytes:
        counted = int(counted * _STEP)
    return counted
