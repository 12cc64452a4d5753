"""What a Python worker keeps from one task to the next: it lives through many, of any partition."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from adjoin.master.device import Disk
from adjoin.master.master import Master
from adjoin.parts.pagememory import PageFile
from adjoin.spark.sharing import share_of

_MASTERS_KEPT = 4
_FILES_KEPT = 8


@lru_cache(maxsize=_MASTERS_KEPT)
def open_master(path: str, version: int, memory_bytes: int, partitions: int) -> tuple[Master, int]:
    """A version of a master with its index mapped, and the share of the memory that a task has."""
    master = Master.open(path, version)
    return master, share_of(master, memory_bytes, partitions)


@lru_cache(maxsize=1)
def disk() -> Disk:
    """The device, with its threads and queues."""
    return Disk()


@contextmanager
def page_file(path: str, share_bytes: int, *, keep: bool) -> Iterator[PageFile]:
    """The page memory at this path, which the caller has locked.

    It stays mapped afterwards if `keep` says so: touching it all anew takes as long as joining a small
    batch. What was removed meanwhile is let go.
    """
    for gone in [known for known, file in _files.items() if not file.is_linked]:
        _files.pop(gone).close()
    file = _files.pop((path, share_bytes), None) or PageFile(path, share_bytes)
    try:
        yield file
    except BaseException:
        file.close()
        raise
    if not keep:
        file.close()
        return
    _files[path, share_bytes] = file
    if len(_files) > _FILES_KEPT:
        _files.popitem(last=False)[1].close()


_files: OrderedDict[tuple[str, int], PageFile] = OrderedDict()
