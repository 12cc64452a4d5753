"""The directory of an operator on a host: private, held while in use, swept once nobody needs it.

In a home, a directory private to the user, every operator has a directory of its own. Its users hold a
shared lock on it, which ends with their process, and the executor is recorded as an owner. The sweeper
removes it once it has no owner left, its query has ended, or it was idle for an hour.
"""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from adjoin.errors import ArenaError
from adjoin.spark.page_memory import sweeper

_ATTEMPTS = 1000


class HeldHome(NamedTuple):
    """The directory of an operator, locked.

    Attributes:
        path: Where it is.
        descriptor: Holds the lock, until it is closed.
        is_new: Whether it has just been created.
    """

    path: str
    descriptor: int
    is_new: bool


def hold(home: str, operator: str, ended: str | None, setting: str) -> HeldHome:
    """Create the directory of an operator if necessary, and lock it so that it is not removed.

    Args:
        home: The directory of all operators of this user.
        operator: The name of this one.
        ended: A file that appears once the operator is no longer needed; None if there is no such file.
        setting: The setting that names another home, for errors.

    Raises:
        ArenaError: The home is not private, or directories in it keep being removed.
    """
    path = os.path.join(home, operator)
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # the sweeper has just removed it: create it again
            is_new = _make_private(home, path, setting)
            descriptor = _lock_directory(path)
            if descriptor is not None:
                try:
                    _note(path, ended)
                    _start_sweeper(home)
                except BaseException:
                    os.close(descriptor)
                    raise
                return HeldHome(path, descriptor, is_new)
    raise ArenaError(f"{path} keeps being removed; set {setting} to another directory")


def _make_private(home: str, path: str, setting: str) -> bool:
    """Create the directory of the operator, below one that others can write to; True if it is new."""
    os.makedirs(os.path.dirname(home), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(home, 0o700)
    found = os.lstat(home)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ArenaError(
            f"{home} is not a directory private to user {os.geteuid()}: remove it, or set "
            f"{setting} to another directory"
        )
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    return True


def _lock_directory(path: str) -> int | None:
    """Take a shared lock on the operator; None if it has been removed meanwhile."""
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


def _note(path: str, ended: str | None) -> None:
    """Tell the sweeper whom the operator serves, and which file appears once it is no longer needed.

    A batch job needs it only while it is locked, so its file exists from the start.
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
    """The executor: the nearest ancestor process named java, else the parent."""
    ancestor = parent
    while ancestor > 0:
        found = sweeper.process(ancestor)
        if found is None:
            break
        if found.name == "java":
            return sweeper.owner_name(ancestor)
        ancestor = found.parent
    # The parent of an orphan is process 1, which never ends.
    return sweeper.owner_name(parent if parent > 1 else pid)


def _start_sweeper(home: str) -> None:
    """Start a sweeper unless one runs: it inherits the lock. If that fails, other tasks will sweep."""
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Through a shell that exits at once: the sweeper has no parent that would have to wait for it.
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


def refused(home: str, error: OSError, setting: str) -> ArenaError:
    """The error for a home that cannot be written to."""
    cause = os.strerror(error.errno) if error.errno else str(error)
    cure = "make room there" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "make it writable"
    place = error.filename or home
    return ArenaError(f"{place}: {cause}; {cure}, or set {setting} to another directory")
