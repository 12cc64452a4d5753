"""What a Python worker keeps between tasks; it runs many, of any partition."""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from adjoin.master.device import Disk
from adjoin.master.evolve import View
from adjoin.master.master import Master
from adjoin.master.versions import Home
from adjoin.memory.page_memory import PageFile
from adjoin.spark.enrich.shares import share_of

_MASTERS_KEPT = 4
_FILES_KEPT = 8
_SWEEP_SECONDS = 1.0


def open_master(
    path: str, version: int, view: View, memory_bytes: int, partitions: int
) -> tuple[Master, int]:
    """A version of a master with its index mapped, and the memory share of one task.

    Raises:
        MasterReplacedError: The master at the path is not the one the query was made for.
        SchemaError: The version lacks a column that the query needs.
    """
    try:
        found = os.stat(Home(path).manifest_path(version))
    except OSError:
        return _open.__wrapped__(path, version, view, memory_bytes, partitions, ())
    identity = (found.st_dev, found.st_ino, found.st_mtime_ns)
    return _open(path, version, view, memory_bytes, partitions, identity)


@lru_cache(maxsize=_MASTERS_KEPT)
def _open(
    path: str, version: int, view: View, memory_bytes: int, partitions: int, _manifest: tuple[int, ...]
) -> tuple[Master, int]:
    """Cached by the identity of the manifest: a master can be removed and rebuilt at the same path."""
    with Master.open(path, version) as opened:
        master = opened.seen_as(view)
    return master, share_of(master, memory_bytes, partitions)


@lru_cache(maxsize=1)
def disk() -> Disk:
    """The disk, with its threads and queues."""
    return Disk()


class MappedPageFiles:
    """Page files that stay mapped between tasks: mapping and touching one takes as long as a small join.

    A file that has been removed is unmapped within a second, so that its memory is free soon after the
    end of its query.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], PageFile] = OrderedDict()
        self._lock = threading.Lock()
        self._sweeper: threading.Thread | None = None

    @contextmanager
    def use(self, path: str, share_bytes: int, *, keep: bool) -> Iterator[PageFile]:
        """The page file at this path, which the caller has locked; it stays mapped unless the task fails."""
        with self._lock:
            self._unmap_removed()
            file = self._kept.pop((path, share_bytes), None)
        file = file or PageFile(path, share_bytes)
        try:
            yield file
        except BaseException:
            file.close()
            raise
        if keep:
            self._keep((path, share_bytes), file)
        else:
            file.close()

    def _keep(self, name: tuple[str, int], file: PageFile) -> None:
        with self._lock:
            self._kept[name] = file
            if len(self._kept) > _FILES_KEPT:
                self._kept.popitem(last=False)[1].close()
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._sweep, name="adjoin page files", daemon=True)
                self._sweeper.start()

    def _sweep(self) -> None:
        """Run as long as a file is mapped."""
        done = threading.Event()
        while not done.wait(_SWEEP_SECONDS):
            with self._lock:
                self._unmap_removed()
                if not self._kept:
                    self._sweeper = None
                    done.set()

    def _unmap_removed(self) -> None:
        for name in [name for name, file in self._kept.items() if not file.is_linked]:
            self._kept.pop(name).close()


mapped_page_files = MappedPageFiles()
