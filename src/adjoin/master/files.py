"""Every change that adjoin makes to a master's directory.

All changes go through `change`, one call for each step that a power cut can separate from the next, so that
tests can stop the world at any of them.
"""

import errno
import fcntl
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import CorruptionError, StorageError

_Result = TypeVar("_Result")
Bytes: TypeAlias = bytes | bytearray | NDArray[np.uint8] | pa.Buffer

_CURES = {
    errno.ENOSPC: "make room (Master.vacuum removes old versions) and try again",
    errno.EDQUOT: "raise the quota or make room, and try again",
    errno.EACCES: "give this user permission to write there",
    errno.EPERM: "give this user permission to write there",
    errno.EROFS: "mount the file system for writing",
    errno.EMFILE: "close masters that are no longer used, or raise the limit of open files",
}


def change(operation: str, path: str, action: Callable[[], _Result]) -> _Result:  # noqa: ARG001 (tests read it)
    """Carry out one step that changes the file system; a refusal becomes a StorageError."""
    try:
        return action()
    except FileExistsError:
        raise
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: str, error: OSError) -> StorageError:
    cause = os.strerror(error.errno) if error.errno else str(error)
    cure = _CURES.get(error.errno or 0, "check the device and the path, and try again")
    return StorageError(f"{path}: {cause}; committed versions are intact; {cure}")


def new_name(suffix: str, marker: str = "") -> str:
    """A unique file name; the marker (16 hexadecimal digits) identifies the files of one task."""
    return (marker + uuid.uuid4().hex)[:32] + suffix


def make_dir(path: str) -> None:
    if not os.path.isdir(path):
        change("make_dir", path, lambda: os.makedirs(path, exist_ok=True))


def make_dir_durably(path: str) -> None:
    """Make a directory that survives a power cut, with all of its missing parents."""
    old = path
    while not os.path.isdir(old) and old != os.path.dirname(old):
        old = os.path.dirname(old)
    if old == path:
        return
    make_dir(path)
    while path != old:
        path = os.path.dirname(path)
        sync_dir(path)


def unlink(path: str) -> None:
    change("unlink", path, lambda: _unlink(path))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def discard(path: str) -> None:
    """Remove garbage; if that fails, `vacuum` will remove it."""
    with suppress(StorageError):
        unlink(path)


def link(source: str, target: str) -> None:
    """Give the file a second name; FileExistsError if the name is taken."""
    change("link", target, lambda: os.link(source, target))


def replace(source: str, target: str) -> None:
    """Rename the file, replacing a file that has the new name."""
    change("replace", target, lambda: os.replace(source, target))


def sync_dir(path: str) -> None:
    change("sync_dir", path, lambda: _sync_dir(path))


def _sync_dir(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class NewFile:
    """A file being written, which must not exist before; `finish` makes its bytes durable."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.bytes = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        self._descriptor = change("create", path, lambda: os.open(path, flags, 0o666))

    def write(self, data: Bytes) -> None:
        view = np.frombuffer(data, np.uint8).data
        change("write", self.path, lambda: self._write(view))
        self.bytes += len(view)

    def _write(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += os.write(self._descriptor, view[done:])

    def read(self, start: int, length: int) -> bytearray:
        return read_at(self._descriptor, self.path, start, length)

    def finish(self) -> None:
        change("sync", self.path, lambda: os.fsync(self._descriptor))
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_file(path: str, data: Bytes) -> None:
    """Write a whole new file. Its bytes are durable when this returns, its name after `sync_dir`."""
    file = NewFile(path)
    try:
        file.write(data)
        file.finish()
    finally:
        file.close()


def open_to_read(path: str) -> int:
    """Open a file that a version names; returns a descriptor. A missing file is reported as damage."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise CorruptionError(f"{path} is missing; restore it, or open an older version") from error
    except OSError as error:
        raise storage_error(path, error) from error


def read_file(path: str) -> bytearray:
    descriptor = open_to_read(path)
    try:
        return read_at(descriptor, path, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def read_at(descriptor: int, path: str, start: int, length: int) -> bytearray:
    target = bytearray(length)
    read_into(descriptor, path, start, memoryview(target))
    return target


def read_into(descriptor: int, path: str, start: int, target: memoryview) -> None:
    """Fill `target` with the bytes of the file from `start` on; CorruptionError if it is too short."""
    done = 0
    while done < len(target):
        try:
            count = os.preadv(descriptor, [target[done:]], start + done)
        except OSError as error:
            raise storage_error(path, error) from error
        if count == 0:
            raise CorruptionError(
                f"{path} is truncated at byte {start + done} of {start + len(target)}; restore it from a copy"
            )
        done += count


class Lock:
    """An advisory lock on a file, released by `release` or when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def is_held(self) -> bool:
        return self.descriptor >= 0

    def twin(self) -> "Lock":
        """A second handle on the same lock, which is released with the last handle."""
        return Lock(os.dup(self.descriptor))

    def share(self) -> None:
        """Turn the exclusive lock into a shared one."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    @property
    def is_linked(self) -> bool:
        """False if the locked file was removed before the lock was taken."""
        return os.fstat(self.descriptor).st_nlink > 0

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_file(path: str, *, exclusive: bool = False) -> Lock | None:
    """Lock a file, shared (waits for it) or exclusive (does not wait); None if it is missing or taken."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise storage_error(path, error) from error
    return Lock(descriptor)


def make_lock_file(path: str) -> None:
    if not os.path.exists(path):
        change("create", path, lambda: os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666)))
