"""Removes page files that nobody needs any more, from outside the processes that used them.

`files` runs this file as a program, one per home directory, with nothing but the standard library. In a home
every operator has a directory with its page files; with `owners`, the processes it serves; and with `ended`,
a link to the mark that its query has ended. A task holds a shared lock on the directory of its operator while
it runs. Locked files are never removed: locks die with their processes, so a later sweep gets them.
"""

import fcntl
import os
import re
import sys
import time
from contextlib import suppress
from typing import NamedTuple

ENDED = "ended"
OWNERS = "owners"

_OWNER = re.compile(r"(\d+)-(\d+)-(\d+)")
_IDLE_SECONDS = 3600.0
_PERIOD_SECONDS = 1.0


class Process(NamedTuple):
    """What /proc says about a process."""

    name: str
    parent: int
    started: int
    is_alive: bool


def process(pid: int) -> Process | None:
    """The process with this id, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()
    return Process(name, int(fields[1]), int(fields[19]), fields[0] not in {"Z", "X"})


def owner_name(pid: int) -> str:
    """A name for the process that no other process will ever have."""
    found = process(pid)
    return f"{pid}-{found.started if found else 0}-{_namespace()}"


def _namespace() -> str:
    """The process id namespace: containers that share a file system may number processes separately."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    except OSError:
        return "0"


def _is_alive(owner: str) -> bool:
    """Whether the owner is alive. Processes in other containers cannot be seen and count as alive."""
    named = _OWNER.fullmatch(owner)
    if named is None:
        return False  # not one of ours: network file systems leave files of their own
    pid, started, namespace = named.groups()
    if namespace != _namespace():
        return True
    found = process(int(pid))
    return found is not None and found.is_alive and found.started == int(started)


def sweep(home: str) -> None:
    """Remove the operators that are no longer needed."""
    for name in _names(home):
        path = os.path.join(home, name)
        with suppress(OSError):
            _remove_if_unneeded(path)


def _remove_if_unneeded(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if is_unneeded(path, descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A task may have come and gone since, and the operator may be in use again.
            if is_at(path, descriptor) and is_unneeded(path, descriptor):
                remove(path)
    finally:
        os.close(descriptor)


def is_unneeded(path: str, descriptor: int) -> bool:
    """Whether its query has ended, its owners are gone, or it was idle for long."""
    return (
        os.path.exists(os.path.join(path, ENDED))
        or not any(map(_is_alive, _names(os.path.join(path, OWNERS))))
        or time.time() - os.fstat(descriptor).st_mtime > _IDLE_SECONDS
    )


def remove(path: str) -> None:
    """Remove an operator; the caller has locked it."""
    for directory in (os.path.join(path, OWNERS), path):
        for name in _names(directory):
            with suppress(OSError):
                os.unlink(os.path.join(directory, name))
        with suppress(FileNotFoundError):
            os.rmdir(directory)


def is_at(path: str, descriptor: int) -> bool:
    """Whether this name still refers to the open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _is_empty(home: str) -> bool:
    return not any(os.path.isdir(os.path.join(home, name, OWNERS)) for name in _names(home))


def keep(home: str, descriptor: int) -> None:
    """Sweep until nothing is left. The lock on the descriptor of the home makes this the only sweeper."""
    while is_at(home, descriptor):
        sweep(home)
        with suppress(OSError):
            os.rmdir(home)
            return
        if _is_empty(home):
            # Tasks from here on see that there is no sweeper; look once more for those that came before.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            if _is_empty(home):
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_PERIOD_SECONDS)


if __name__ == "__main__":
    os.chdir("/")
    with suppress(BlockingIOError):  # another sweeper is there
        keep(sys.argv[1], int(sys.argv[2]))
