"""A kernel limit on the memory of one process, page cache included."""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """A control group; without a directory, nothing is enforced."""

    directory: Path | None
    reason: str = ""

    @property
    def enforced(self) -> bool:
        return self.directory is not None

    def command(self, arguments: list[str]) -> list[str]:
        """A command that runs in the group from its first instruction on."""
        if self.directory is None:
            return arguments
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.directory), *arguments]

    def peak_bytes(self) -> int | None:
        """The peak memory of the group."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if self.directory is not None and (self.directory / name).exists():
                return int((self.directory / name).read_text())
        return None


@contextlib.contextmanager
def memory_cap(limit_bytes: int | None) -> Iterator[Group]:
    """A group with this limit while the block runs; `None` means no limit."""
    if limit_bytes is None:
        yield Group(None, "no cap requested")
        return
    group = _create(limit_bytes)
    try:
        yield group
    finally:
        if group.directory is not None:
            _remove(group.directory)


def _create(limit_bytes: int) -> Group:
    reasons = []
    for parent, limit_file in _places():
        directory = parent / f"adjoin-bench-{os.getpid()}"
        try:
            directory.mkdir()
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror}")
            continue
        try:
            (directory / limit_file).write_text(str(limit_bytes))
            return Group(directory)
        except OSError as error:
            reasons.append(f"{directory / limit_file}: {error.strerror}")
            directory.rmdir()
    return Group(None, "; ".join(reasons) or "no memory controller is mounted")


def _places() -> Iterator[tuple[Path, str]]:
    """Where a group can be created: below our own in version 1, next to it in version 2.

    Version 2 allows no limits on children of a group that has processes itself.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "memory":
            yield _below(_ROOT / "memory", own), "memory.limit_in_bytes"
        elif controllers == "":
            yield _below(_ROOT, str(Path(own).parent)), "memory.max"


def _below(root: Path, own: str) -> Path:
    """Our own group, or the root where a namespace hides it."""
    path = root / own.lstrip("/")
    return path if path.is_dir() else root


def _remove(directory: Path) -> None:
    with contextlib.suppress(OSError):
        (directory / "memory.force_empty").write_text("0")
    directory.rmdir()


def evict(path: Path) -> int:
    """Drop a data set from the page cache, and return how many of its bytes remain cached.

    Pages that are cached already remain charged to whoever read them first, outside the cap.
    """
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(_evict_file(file) for file in files)


def _evict_file(file: Path) -> int:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return _cached_bytes(descriptor)
    finally:
        os.close(descriptor)


def _cached_bytes(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    pages = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as view:
        data = np.frombuffer(view, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(
            ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(pages.ctypes.data)
        )
        del data
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed")
    return int((pages & 1).sum()) * mmap.PAGESIZE
