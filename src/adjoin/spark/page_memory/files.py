"""Page files: page memory on an executor's host that outlives Python workers, in shared memory if it fits.

This module creates a page file, locks it for the length of a task, and removes it; `PageFile` owns the
contents.
"""

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from adjoin.arguments import local_path
from adjoin.errors import OptionError
from adjoin.master import version_records
from adjoin.spark import operator_home
from adjoin.spark.page_memory import sweeper

DIRECTORY_SETTING = "spark.adjoin.arena.dir"

_SHARED_MEMORY = "/dev/shm"
_SUFFIX = ".arena"
_OPERATOR = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
_POLL_SECONDS = 0.01
_ATTEMPTS = 1000


@dataclass(frozen=True)
class PageFiles:
    """The page files of one operator on the host where a task runs.

    How it works: a page file is `<directory>/adjoin-<uid>/<operator>/<partition>.arena`, one per partition,
    so that all executors of a host together have at most `slots` of them. A task locks its file and holds
    a shared lock on the directory; both locks end with the process. The executor is recorded as an owner.
    A small program, the sweeper, removes the files of an operator once they have no owner left, their
    query has ended, or they were idle for an hour.

    Attributes:
        operator: A name for the operator, unique to its query and parameters.
        share_bytes: The maximum size of one file.
        directory: Where to create them; None for /dev/shm if it can hold all of them, else the system's
            directory for temporary files. All executors of a host must use the same one.
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
        """Hold a page file while the task runs.

        Args:
            partition: Whose page file; if a stage has more partitions than slots, some share one and take
                turns. None for any free one, the most recently used first.
            slots: How many page files the operator has on a host.
            records: The directory with the records of its query; once these say that the query has ended,
                the page files are removed.
            keep: False to remove the file when the task ends, however it ends.
            attempt: Which attempt at which task. If a query has the same join twice, both can run at once
                in one attempt; they get a page file each, or they would wait for each other.

        Yields:
            The path of the file, which is empty if it is new.

        Raises:
            ArenaError: The directory is full, not writable, or belongs to another user.
        """
        if slots < 1:
            raise OptionError(f"slots={slots}: give 1 or more")
        home = os.path.join(self._root(slots), f"adjoin-{os.geteuid()}")
        names = [f"{slot}{_SUFFIX}" for slot in (range(slots) if partition is None else [partition % slots])]
        try:
            ended = _mark(records) if keep else "."
            held = _hold(home, self.operator, names, ended, attempt)
        except OSError as error:
            raise operator_home.refused(home, error, DIRECTORY_SETTING) from error
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
    """A locked page file, and the lock on the directory of its operator."""

    path: str
    file: int
    directory: int

    def release(self, keep: bool) -> None:
        # Whatever fails here is left to the sweeper.
        with suppress(OSError):
            os.utime(self.directory)
            if not keep:
                os.unlink(self.path)
        os.close(self.file)
        with suppress(OSError):
            if not keep:
                fcntl.flock(self.directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sweeper.remove(os.path.dirname(self.path))
        os.close(self.directory)


def _hold(home: str, operator: str, names: Sequence[str], ended: str | None, attempt: int) -> _Held:
    held = operator_home.hold(home, operator, ended, DIRECTORY_SETTING)
    try:
        if held.is_new:
            sweeper.sweep(home)
        name, file = _lock_any(held.path, names, attempt)
        os.utime(held.descriptor)
    except BaseException:
        os.close(held.descriptor)
        raise
    return _Held(os.path.join(held.path, name), file, held.descriptor)


def _mark(records: str | None) -> str | None:
    """The file that marks the query as ended."""
    return None if records is None else os.path.join(os.path.abspath(records), version_records.ENDED)


def _lock_any(path: str, names: Sequence[str], attempt: int) -> tuple[str, int]:
    """Lock the first free page file, and wait until there is one: every holder lets go or dies."""
    while True:
        for name in _last_used_first(path, names):
            file = _lock_file(os.path.join(path, name))
            if file is not None:
                try:
                    _write_holder(path, name, attempt)
                except BaseException:
                    os.close(file)
                    raise
                return name, file
            if _holder(path, name) == attempt != 0:
                return _lock_any(path, [f"again-{name}"], attempt)
        time.sleep(_POLL_SECONDS)


def _write_holder(path: str, name: str, attempt: int) -> None:
    with open(os.path.join(path, f"{name}.holder"), "w", encoding="ascii") as file:
        file.write(str(attempt))


def _holder(path: str, name: str) -> int:
    """Which attempt holds the page file; 0 if that is not known yet."""
    with suppress(OSError, ValueError), open(os.path.join(path, f"{name}.holder"), encoding="ascii") as file:
        return int(file.read())
    return 0


def _last_used_first(path: str, names: Sequence[str]) -> Sequence[str]:
    if len(names) == 1:
        return names
    # By the times of the holder notes: changing those of a page file would have its pages verified again.
    used = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(path) if entry.is_file()}
    return sorted(names, key=lambda name: -used.get(f"{name}.holder", 0))


def _lock_file(path: str) -> int | None:
    """Lock the file, and create it if necessary; None if it is taken."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if sweeper.is_at(path, file):
                return file
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        os.close(file)
