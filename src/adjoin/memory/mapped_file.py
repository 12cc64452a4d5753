"""One sparse file with a header and named regions, mapped shared."""

import ctypes
import errno
import mmap
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from adjoin.errors import ArenaError, CorruptionError
from adjoin.kernels.types import Array

Size = TypeVar("Size", int, Array)

BLOCK_BYTES = 4096
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
_MOST_STATES = 2**31 - 2
_COARSE_CLOCK = 5
"""The clock from which the system takes the times of changes to files."""


@dataclass
class _Region:
    """A part of the file: where it begins, its greatest length, and how much of it is reserved."""

    begin: int
    room: int
    reserved: int = 0

    @property
    def end(self) -> int:
        return self.begin + self.room


class MappedFile:
    """A file of named regions that occupies blocks only where they are reserved.

    ```
    | header | region ........ | region | region | ...
    ```

    Blocks are reserved before they are touched, so a full file system raises an error instead of a signal.

    Args:
        path: The file, created if it does not exist.
        most_bytes: The most that it may occupy.

    Raises:
        ArenaError: The file cannot be opened or created.
    """

    def __init__(self, path: str | os.PathLike[str], most_bytes: int) -> None:
        self.path = os.fspath(path)
        self.most_bytes = most_bytes
        self._regions: dict[str, _Region] = {}
        self._views: dict[str, Array] = {}
        self._descriptor = -1
        self._header: Array | None = None
        self._changed_ns = 0
        self._state = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise self._refusal("cannot be opened", error) from error
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise ArenaError(f"{self.path} is not a regular file; give another path")

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    @property
    def is_linked(self) -> bool:
        """Whether the file still has its name."""
        return os.fstat(self._descriptor).st_nlink > 0

    @property
    def occupied_bytes(self) -> int:
        """Bytes that are reserved, the header included."""
        return BLOCK_BYTES + sum(region.reserved for region in self._regions.values())

    def close(self) -> None:
        """Close the file; memory that is still referenced stays mapped."""
        self._views.clear()
        self._header = None
        if self.is_open:
            os.close(self._descriptor)
            self._descriptor = -1

    def state(self) -> int:
        """A number that changes when the file is written to, other than through mapped memory.

        0 means that a change cannot be ruled out, because the clock has not advanced since the last one.

        Raises:
            CorruptionError: The file is shorter than its mapping; touching the missing part would be fatal.
        """
        if not self.is_open:
            return 0
        held = os.fstat(self._descriptor)
        needed = max((region.end for region in self._regions.values()), default=0)
        if held.st_size < needed:
            raise CorruptionError(
                f"{self.path} is truncated: {held.st_size:,} of {needed:,} bytes are left; its contents "
                "will not be used again: restart the operator or rerun the batch"
            )
        if held.st_ctime_ns != self._changed_ns:
            self._changed_ns = held.st_ctime_ns
            self._state = self._state % _MOST_STATES + 1
        is_past = time.clock_gettime_ns(_COARSE_CLOCK) > self._changed_ns + _rounding_ns(self._changed_ns)
        return self._state if is_past else 0

    # The header.

    def read_header(self) -> bytes:
        return os.pread(self._descriptor, BLOCK_BYTES, 0)

    def write_header(self, header: bytes) -> None:
        """Replace the header; through a mapping where there is one, which does not count as a change."""
        block = header.ljust(BLOCK_BYTES, b"\0")
        if self._header is not None and self._has_header_block():
            self._header[:] = np.frombuffer(block, np.uint8)
            return
        try:
            written = os.pwrite(self._descriptor, block, 0)
        except OSError as error:
            raise self._refusal(f"has no room for {BLOCK_BYTES:,} more bytes", error) from error
        if written != BLOCK_BYTES:
            raise self._refusal(f"has no room for {BLOCK_BYTES:,} more bytes", OSError(errno.ENOSPC, ""))
        with suppress(OSError):  # without the mapping, every change of the header is a change of the file
            self._header = np.asarray(_Mapping(self._descriptor, 0, BLOCK_BYTES))

    def _has_header_block(self) -> bool:
        """Whether the header has a block; touching a block that is gone would be fatal."""
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_DATA) == 0
        except OSError:
            return False

    @property
    def layout(self) -> dict[str, list[int]]:
        """All regions, as `adopt` takes them when the file is opened again."""
        return {name: [held.begin, held.room, held.reserved] for name, held in self._regions.items()}

    def adopt(self, layout: dict[str, list[int]]) -> bool:
        """Continue with these regions; False if the file does not hold all of them."""
        mapped = self._places()
        self._regions = {name: _Region(*sizes) for name, sizes in layout.items()}
        if self._places() != mapped:
            self._views.clear()
        held = os.fstat(self._descriptor)
        is_long_enough = all(region.end <= held.st_size for region in self._regions.values())
        return is_long_enough and self.occupied_bytes <= min(held.st_blocks * 512, self.most_bytes)

    def _places(self) -> dict[str, tuple[int, int]]:
        return {name: (region.begin, region.room) for name, region in self._regions.items()}

    # Regions.

    def view(self, name: str, size: int, room: int) -> Array:
        """The whole region, with `size` bytes of it reserved; a new one can grow to `room` bytes.

        Raises:
            ArenaError: The file system is full.
        """
        if name not in self._views:
            self._map(name, room)
        self.reserve(name, size)
        return self._views[name]

    def room(self, name: str) -> int:
        return self._regions[name].room

    def reserve(self, name: str, end: int) -> None:
        """Reserve blocks for the first `end` bytes of the region.

        Raises:
            ArenaError: The file system is full.
        """
        region = self._regions[name]
        end = whole_blocks(end)
        wanted = end - region.reserved
        if wanted <= 0:
            return
        if end > region.room or self.occupied_bytes + wanted > self.most_bytes:
            raise ArenaError(
                f"{self.path} occupies {self.occupied_bytes:,} of at most {self.most_bytes:,} bytes and "
                f"needs {wanted:,} more; let it occupy as much as memory="
            )
        try:
            os.posix_fallocate(self._descriptor, region.begin + region.reserved, wanted)
        except OSError as error:
            raise self._refusal(f"has no room for {wanted:,} more bytes", error) from error
        region.reserved = end

    def give_back(self, name: str, begin: int) -> None:
        """Release the blocks of the region from byte `begin` on."""
        region = self._regions[name]
        kept = whole_blocks(begin)
        if kept < region.reserved:
            with suppress(OSError):  # where the file system cannot punch holes, the blocks stay reserved
                _punch(self._descriptor, region.begin + kept, region.reserved - kept)
                region.reserved = kept

    def remove(self, names: Iterable[str]) -> None:
        """Remove these regions and release their blocks."""
        for name in names:
            self._views.pop(name, None)
            self.give_back(name, 0)
            if self._regions[name].reserved == 0:
                del self._regions[name]

    def clear(self) -> None:
        """Remove everything, including the header."""
        self._views.clear()
        self._header = None
        self._regions.clear()
        try:
            os.ftruncate(self._descriptor, 0)
        except OSError as error:
            raise self._refusal("cannot be emptied", error) from error

    def _map(self, name: str, room: int) -> None:
        """Map a region, creating it if there is none of this name."""
        if name not in self._regions:
            room = whole_blocks(max(room, 1))
            region = _Region(self._gap(room), room)
            try:
                length = max(region.end, os.fstat(self._descriptor).st_size)
                os.ftruncate(self._descriptor, length)
            except OSError as error:
                raise self._refusal("cannot be extended", error) from error
            self._regions[name] = region
        region = self._regions[name]
        try:
            mapped = _Mapping(self._descriptor, region.begin, region.room)
        except OSError as error:
            raise self._refusal("cannot be mapped", error) from error
        self._views[name] = np.asarray(mapped)

    def _gap(self, room: int) -> int:
        """The first gap between regions that has room for this many bytes."""
        begin = _mappable(BLOCK_BYTES)
        for region in sorted(self._regions.values(), key=lambda region: region.begin):
            if begin + room <= region.begin:
                break
            begin = _mappable(region.end)
        return begin

    def _refusal(self, fault: str, error: OSError) -> ArenaError:
        return ArenaError(
            f"{self.path} {fault}: {os.strerror(error.errno or errno.EIO)}; free space there, give a smaller "
            "memory=, or another directory (on Spark with the setting spark.adjoin.arena.dir)"
        )


class _Mapping:
    """A mapped part of a file as an array; unlike `mmap.mmap`, it does not duplicate the descriptor."""

    def __init__(self, descriptor: int, begin: int, length: int) -> None:
        self._length = 0
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, length, protection, mmap.MAP_SHARED, descriptor, begin)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._address, self._length = address, length

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self._length,), "typestr": "|u1", "data": (self._address, False)}

    def __del__(self) -> None:
        if self._length:
            _libc.munmap(self._address, self._length)


def whole_blocks(size: Size) -> Size:
    """The size, or each of several sizes, rounded up to whole blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _rounding_ns(time_ns: int) -> int:
    """By how much a file system may have rounded this time: some keep whole seconds, most nanoseconds."""
    unit = 1
    while unit < 10**9 and time_ns % (10 * unit) == 0:
        unit *= 10
    return 2 * unit if unit > 1 else 0


def _mappable(begin: int) -> int:
    """The next offset at which a mapping of a file can begin."""
    return -(-begin // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


def _punch(descriptor: int, begin: int, length: int) -> None:
    mode = _FALLOC_KEEP_SIZE | _FALLOC_PUNCH_HOLE
    if _libc.fallocate(descriptor, mode, ctypes.c_int64(begin), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED = ctypes.c_void_p(-1).value
