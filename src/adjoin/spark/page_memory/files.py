"""Page memory on the host of an executor: files that outlive Python workers, in shared memory if they fit.

A file is made, locked for the length of a task, and removed here; what is in it belongs to `PageFile`.
"""

import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache

from adjoin.arguments import local_path
from adjoin.errors import ArenaError, OptionError
from adjoin.master import version_records
from adjoin.spark.page_memory import sweeper

DIRECTORY_SETTING = "spark.adjoin.arena.dir"

_SHARED_MEMORY = "/dev/shm"
_OPERATOR = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
_POLL_SECONDS = 0.01
_ATTEMPTS = 1000


@dataclass(frozen=True)
class Arenas:
    """The arenas of one operator on the host where a task runs.

    How it works: `<directory>/adjoin-<uid>/<operator>/<partition>.arena`, one file for each partition, so
    that all executors of a host together have no more than `slots` of them. A task locks its file, and
    shares a lock on the directory; both locks end with the process. The executor is noted as an owner. A
    small program, the sweeper, removes what has no owner left, whose query has ended, or what was idle for
    an hour.

    Attributes:
        operator: A name for the operator, unique to its query and its parameters.
        share_bytes: The most bytes of one file.
        directory: Where to make them; None for /dev/shm if it can hold all of them, else the system's
            directory for temporary files. All executors of a host must have the same.
    """

    operator: str
    share_bytes: int
    directory: str | None = None

    def __post_init__(self) -> None:
        if not _OPERATOR.fullmatch(self.operator):
            raise OptionError(f"operator={self.operator!r}: give letters, digits, - and _, at most 200")
        if self.share_bytes < 1:
            raise OptionError(f"share_bytes={self.share_bytes}: give 1 or more")

    @contextmanager
    def acquire(
        self,
        partition: int | None,
        slots: int,
        records: str | None = None,
        *,
        keep: bool = True,
        attempt: int = 0,
    ) -> Iterator[str]:
        """Hold an arena as long as the task runs.

        Args:
            partition: Whose arena; where a stage has more partitions than slots, some share one and take
                turns. None for any that is free, the one last used first.
            slots: How many arenas the operator has on a host.
            records: The directory of the records of its query; once that has the mark that the query
                has ended, the arenas go.
            keep: False to remove it when the task ends, however it ends.
            attempt: Which attempt at which task; two that run at once in the same one, because a query
                has the same join twice, have an arena each, or they would wait for each other.

        Yields:
            The path of the file, which is empty if it is new.

        Raises:
            ArenaError: The directory is full, cannot be written or belongs to somebody else.
        """
        if slots < 1:
            raise OptionError(f"slots={slots}: give 1 or more")
        home = os.path.join(self._root(slots), f"adjoin-{os.geteuid()}")
        names = [f"{slot}.arena" for slot in (range(slots) if partition is None else [partition % slots])]
        try:
            ended = _mark(records) if keep else "."
            held = _hold(home, self.operator, names, ended, attempt)
        except OSError as error:
            raise _refused(home, error) from error
        try:
            yield held.path
        finally:
            held.release(keep)

    def _root(self, slots: int) -> str:
        if self.directory is not None:
            return os.path.abspath(local_path(self.directory, DIRECTORY_SETTING))
        with suppress(OSError):
            size = os.statvfs(_SHARED_MEMORY)
            if size.f_frsize * size.f_blocks >= slots * self.share_bytes and os.access(
                _SHARED_MEMORY, os.W_OK
            ):
                return _SHARED_MEMORY
        # Not Spark's local directories: each executor of the host has its own.
        return tempfile.gettempdir()


@dataclass(frozen=True)
class _Held:
    """A locked arena, and the lock on the directory of its operator."""

    path: str
    arena: int
    directory: int

    def release(self, keep: bool) -> None:
        # Whatever is refused here is removed by the sweeper.
        with suppress(OSError):
            os.utime(self.directory)
            if not keep:
                os.unlink(self.path)
        os.close(self.arena)
        with suppress(OSError):
            if not keep:
                fcntl.flock(self.directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sweeper.remove(os.path.dirname(self.path))
        os.close(self.directory)


def _hold(home: str, operator: str, names: Sequence[str], ended: str | None, attempt: int) -> _Held:
    path = os.path.join(home, operator)
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # the sweeper has removed it: make it again
            is_new = _make_private(home, path)
            directory = _lock_directory(path)
            if directory is not None:
                return _hold_in(home, path, directory, names, ended, attempt, is_new=is_new)
    raise ArenaError(f"{path} vanishes again and again; name another directory by {DIRECTORY_SETTING}")


def _hold_in(
    home: str,
    path: str,
    directory: int,
    names: Sequence[str],
    ended: str | None,
    attempt: int,
    *,
    is_new: bool,
) -> _Held:
    try:
        _note(path, ended)
        _start_sweeper(home)
        if is_new:
            sweeper.sweep(home)
        name, arena = _lock_any(path, names, attempt)
        os.utime(directory)
    except BaseException:
        os.close(directory)
        raise
    return _Held(os.path.join(path, name), arena, directory)


def _make_private(home: str, path: str) -> bool:
    """Make the directory of the operator, where others may write too; whether it is new."""
    os.makedirs(os.path.dirname(home), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(home, 0o700)
    found = os.lstat(home)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ArenaError(
            f"{home} is no directory that belongs to user {os.geteuid()} alone: remove it, or name another "
            f"directory by {DIRECTORY_SETTING}"
        )
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    return True


def _lock_directory(path: str) -> int | None:
    """Share the lock on the operator; None if it was removed meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if sweeper.is_at(path, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _mark(records: str | None) -> str | None:
    """Where it says that the query has ended."""
    return None if records is None else os.path.join(os.path.abspath(records), version_records.ENDED)


def _note(path: str, ended: str | None) -> None:
    """For the sweeper: whom the arenas serve, and what is there once they are needed no more.

    Those of a batch job never are when nobody has them locked, so something is there from the start.
    """
    owner = os.path.join(path, sweeper.OWNERS, _owner(os.getpid(), os.getppid()))
    if not os.path.exists(owner):
        with suppress(FileExistsError):
            os.mkdir(os.path.dirname(owner), 0o700)
        os.close(os.open(owner, os.O_WRONLY | os.O_CREAT, 0o600))
    if ended is not None:
        with suppress(FileExistsError):
            os.symlink(ended, os.path.join(path, sweeper.ENDED))


@lru_cache(maxsize=1)
def _owner(pid: int, parent: int) -> str:
    """The executor: the nearest ancestor that is a Java, else the parent."""
    ancestor = parent
    while ancestor > 0:
        found = sweeper.process(ancestor)
        if found is None:
            break
        if found.name == "java":
            return sweeper.owner_name(ancestor)
        ancestor = found.parent
    # An orphan belongs to process 1, which says nothing about it.
    return sweeper.owner_name(parent if parent > 1 else pid)


def _lock_any(path: str, names: Sequence[str], attempt: int) -> tuple[str, int]:
    """Lock the first arena that is free; wait until one is: whoever holds it lets go or dies."""
    while True:
        for name in _last_used_first(path, names):
            arena = _lock_arena(os.path.join(path, name))
            if arena is not None:
                try:
                    _write_holder(path, name, attempt)
                except BaseException:
                    os.close(arena)
                    raise
                return name, arena
            if _holder(path, name) == attempt != 0:
                return _lock_any(path, [f"again-{name}"], attempt)
        time.sleep(_POLL_SECONDS)


def _write_holder(path: str, name: str, attempt: int) -> None:
    with open(os.path.join(path, f"{name}.holder"), "w", encoding="ascii") as file:
        file.write(str(attempt))


def _holder(path: str, name: str) -> int:
    """Which attempt holds the arena; 0 if that is not known yet."""
    with suppress(OSError, ValueError), open(os.path.join(path, f"{name}.holder"), encoding="ascii") as file:
        return int(file.read())
    return 0


def _last_used_first(path: str, names: Sequence[str]) -> Sequence[str]:
    if len(names) == 1:
        return names
    # By what is noted of its holders: a file of pages whose times change is verified anew.
    used = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(path) if entry.is_file()}
    return sorted(names, key=lambda name: -used.get(f"{name}.holder", 0))


def _lock_arena(path: str) -> int | None:
    """Make the file if need be and lock it; None if it is taken."""
    while True:
        arena = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(arena, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if sweeper.is_at(path, arena):
                return arena
        except BlockingIOError:
            os.close(arena)
            return None
        except BaseException:
            os.close(arena)
            raise
        os.close(arena)


def _start_sweeper(home: str) -> None:
    """Unless one runs. It inherits the lock, so there never are two; without one, others sweep."""
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Through a shell that ends at once: the sweeper is nobody's child, and nobody has to wait for it.
        command = [sys.executable, "-I", "-S", sweeper.__file__, home, str(descriptor)]
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
            check=False,
        )
    except OSError:
        return
    finally:
        os.close(descriptor)


def _refused(home: str, error: OSError) -> ArenaError:
    cause = os.strerror(error.errno) if error.errno else str(error)
    cure = "make room there" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "make it writable"
    place = error.filename or home
    return ArenaError(f"{place}: {cause}; {cure}, or name another directory by {DIRECTORY_SETTING}")
