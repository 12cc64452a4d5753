"""Removes the page memory that nobody needs any more, from outside of the processes that used it.

`files` runs this file as a program, one for each home of arenas, with the standard library alone. In a
home every operator has a directory: its arenas; `owners`, with the processes it serves; and `ended`, a link
to the mark that its query has ended. A task holds a shared lock on the directory of its operator as long as
it runs. What is locked is never removed: locks die with their processes, so it goes a little later.
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
    """What /proc says of a process."""

    name: str
    parent: int
    started: int
    is_alive: bool


def process(pid: int) -> Process | None:
    """The process of this number, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()
    return Process(name, int(fields[1]), int(fields[19]), fields[0] not in {"Z", "X"})


def owner_name(pid: int) -> str:
    """A name for the process that no other one will have."""
    found = process(pid)
    return f"{pid}-{found.started if found else 0}-{_namespace()}"


def _namespace() -> str:
    """Containers that share a file system may count their processes apart."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    except OSError:
        return "0"


def _is_alive(owner: str) -> bool:
    """Of a process in another container nothing is known, so it counts as alive."""
    named = _OWNER.fullmatch(owner)
    if named is None:
        return False  # not one of ours; network file systems leave names of their own
    pid, started, namespace = named.groups()
    if namespace != _namespace():
        return True
    found = process(int(pid))
    return found is not None and found.is_alive and found.started == int(started)


def sweep(home: str) -> None:
    """Remove the operators that are needed no more."""
    for name in _names(home):
        path = os.path.join(home, name)
        with suppress(OSError):
            _remove_if_unneeded(path)


def _remove_if_unneeded(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if _is_unneeded(path, descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A task may have come and gone since, and left it in use.
            if is_at(path, descriptor) and _is_unneeded(path, descriptor):
                remove(path)
    finally:
        os.close(descriptor)


def _is_unneeded(path: str, descriptor: int) -> bool:
    """Its query has ended, its owners are gone, or it was not used for long."""
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
    """Whether the open file is still the one of this name."""
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
    """Sweep until nothing is left; the descriptor is the home, locked so that there is one sweeper."""
    while is_at(home, descriptor):
        sweep(home)
        with suppress(OSError):
            os.rmdir(home)
            return
        if _is_empty(home):
            # Whoever comes from here on sees that there is no sweeper; who came before is seen here.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            if _is_empty(home):
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_PERIOD_SECONDS)


if __name__ == "__main__":
    os.chdir("/")
    with suppress(BlockingIOError):  # another sweeper is there
        keep(sys.argv[1], int(sys.argv[2]))
