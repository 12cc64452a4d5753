"""Where pages and the notes on them lie: in private memory, or in a file that outlives its user."""

import ctypes
import errno
import json
import mmap
import os
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from adjoin.errors import ArenaError, OptionError
from adjoin.kernels.types import Array

BLOCK_BYTES = 4096
_HUGE_BYTES = 2 << 20
_HUGE_FROM_BYTES = 16 << 20
"""Slots that can take so much use huge pages, and come and go by whole ones."""
_PAGES = "pages"
_MAGIC = b"adjoin pages 1\n\0"
_IN_USE = _MAGIC + b"in use"
_DIGEST_BYTES = 16
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2


class PageMemory:
    """Anonymous memory of one process; what is given back is the system's at once.

    Attributes:
        fixed_bytes: What it takes beside pages and notes.
        bytes_per_slot: What it takes for every slot beside the notes of arena, columns and cache.
        outlives: Whether the next user finds what is left here.
    """

    outlives = False
    fixed_bytes = 0
    bytes_per_slot = 0

    def recall(self, key: str) -> dict[str, Any] | None:  # noqa: ARG002
        """What the last user left here under the same key; None, and empty, if there is nothing."""
        return None

    def empty(self) -> None:
        """Forget everything that was left here."""

    def leave(self, left: dict[str, Any]) -> None:
        """The user goes and leaves pages and notes for the next."""

    def abandon(self) -> None:
        """The user goes and leaves nothing."""

    def array(self, name: str, length: int, dtype: Any, room: int | None = None) -> Array:  # noqa: ARG002
        """Notes under this name; zeros where they are new. Asked again, they can be as long as `room`."""
        return np.zeros(length, dtype)

    def has_room(self, name: str, length: int, dtype: Any) -> bool:  # noqa: ARG002
        """Whether an array can be as long."""
        return True

    def grain_bytes(self, slots_bytes: int) -> int:
        """By how much memory slots come and go, 0 if it does not matter."""
        return _HUGE_BYTES if slots_bytes >= _HUGE_FROM_BYTES else 0

    def map(self, before_bytes: int, slots_bytes: int) -> Array:
        """Room for pages: some that is always there, then slots that come and go."""
        # Private, because only private memory is given back when the system is told so.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, before_bytes + slots_bytes + _HUGE_BYTES, flags=private)
        mapped: Array = np.frombuffer(self._mapping, np.uint8)
        # The slots begin where a huge page does.
        self._start = -(mapped.ctypes.data + before_bytes) % _HUGE_BYTES
        if self.grain_bytes(slots_bytes):
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        return mapped[self._start : self._start + before_bytes + slots_bytes]

    def reserve(self, end: int) -> None:
        """The room for pages will be used up to this byte."""

    def give_back(self, begin: int, end: int) -> None:
        """Nobody needs these bytes of the room for pages any more."""
        self._mapping.madvise(mmap.MADV_DONTNEED, self._start + begin, end - begin)

    def drop(self) -> None:
        """Give all room for pages back; nothing but zeros can be read there afterwards."""
        self._mapping.madvise(mmap.MADV_DONTNEED)


@dataclass
class _Region:
    """A part of the file: where it begins, how long it can be, and how much of it has blocks."""

    begin: int
    room: int
    reserved: int = 0


class PageFile(PageMemory):
    """A file, mapped shared, in which the next user finds pages and notes as the last one left them.

    ```
    | header | pages ........ | notes | notes | ...      each region sparse, blocks where reserved
    ```

    The header says that the file is in use, or what its last user left when it went properly. A file
    whose last user died, which is not whole, or which is from before the system was started, is
    empty. Blocks are reserved before they are touched, so a full file system is an error and not a signal.

    The caller sees to it that only one process uses the file at a time.

    Args:
        path: The file, in memory (tmpfs) or on a disk; it is made if need be.
        most_bytes: The most that it may occupy.

    Raises:
        ArenaError: The file cannot be opened or made.
    """

    outlives = True
    fixed_bytes = 16 * BLOCK_BYTES
    """Header, ends of regions, and what a file system notes on them."""
    bytes_per_slot = 16
    """Which page it is: first key and checksum."""

    def __init__(self, path: str | os.PathLike[str], most_bytes: int) -> None:
        self.path = os.fspath(path)
        self.most_bytes = most_bytes
        self._regions: dict[str, _Region] = {}
        self._views: dict[str, Array] = {}
        self._key = ""
        self._is_used = False
        self._descriptor = -1
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise self._refusal("cannot be opened", error) from error
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise ArenaError(f"{self.path} is no file; name another place")

    @property
    def occupied_bytes(self) -> int:
        """Bytes that are reserved."""
        return BLOCK_BYTES + sum(region.reserved for region in self._regions.values())

    def recall(self, key: str) -> dict[str, Any] | None:
        """What the last user left here under the same key; None, and empty, if there is nothing.

        From now on the file is in use.
        """
        if self._is_used or self._descriptor < 0:
            raise OptionError(f"{self.path} is closed or in use by another operator; give each its own")
        self._key = key
        mapped = self._places()
        left = self._read_header()
        self._is_used = True
        self._write(_IN_USE)
        if left is None:
            self.empty()
        elif self._places() != mapped:
            self._views.clear()
        return left

    def empty(self) -> None:
        """Forget everything and give all room back."""
        self._views.clear()
        self._regions.clear()
        try:
            os.ftruncate(self._descriptor, 0)
        except OSError as error:
            raise self._refusal("cannot be emptied", error) from error
        self._write(_IN_USE)

    def leave(self, left: dict[str, Any]) -> None:
        """The user goes and leaves pages and notes for the next."""
        if self._is_used:
            self.abandon()
            saved = {
                "boot": _boot(),
                "key": self._key,
                "regions": {name: list(asdict(region).values()) for name, region in self._regions.items()},
                "left": left,
            }
            header = _sealed(json.dumps(saved).encode())
            if len(header) <= BLOCK_BYTES:
                self._write(header)

    def abandon(self) -> None:
        """The user goes and leaves nothing."""
        self._is_used = False

    def array(self, name: str, length: int, dtype: Any, room: int | None = None) -> Array:
        """Notes under this name; zeros where they are new. Asked again, they can be as long as `room`.

        Raises:
            ArenaError: The file system is full.
        """
        size = length * np.dtype(dtype).itemsize
        self._region(name, max(size, (room or 0) * np.dtype(dtype).itemsize))
        self._reserve(name, size)
        return self._views[name][:size].view(dtype)

    def has_room(self, name: str, length: int, dtype: Any) -> bool:
        """Whether an array can be as long."""
        return length * np.dtype(dtype).itemsize <= self._regions[name].room

    def grain_bytes(self, slots_bytes: int) -> int:  # noqa: ARG002
        """By how much memory slots come and go, 0 if it does not matter."""
        return 0

    def map(self, before_bytes: int, slots_bytes: int) -> Array:
        """Room for pages: some that is always there, then slots that come and go."""
        self._region(_PAGES, before_bytes + slots_bytes)
        self._reserve(_PAGES, before_bytes)
        return self._views[_PAGES][: before_bytes + slots_bytes]

    def reserve(self, end: int) -> None:
        """The room for pages will be used up to this byte.

        Raises:
            ArenaError: The file system is full.
        """
        self._reserve(_PAGES, end)

    def give_back(self, begin: int, end: int) -> None:  # noqa: ARG002
        """Nobody needs the room for pages from here on any more."""
        region = self._regions[_PAGES]
        kept = _whole_blocks(begin)
        if kept < region.reserved:
            with suppress(OSError):  # a file system that cannot: the room stays reserved
                _punch(self._descriptor, region.begin + kept, region.reserved - kept)
                region.reserved = kept

    def drop(self) -> None:
        """What is mapped stays mapped: the next user in this process need not touch it all anew."""

    @property
    def is_linked(self) -> bool:
        """Whether the file still has its name."""
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """Close the file; memory that operators still hold of it stays mapped."""
        self._views.clear()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> "PageFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _places(self) -> dict[str, tuple[int, int]]:
        return {name: (region.begin, region.room) for name, region in self._regions.items()}

    def _region(self, name: str, room: int) -> None:
        """Find or make a region, and map it."""
        if name in self._views:
            return
        if name not in self._regions:
            last = max((region.begin + region.room for region in self._regions.values()), default=BLOCK_BYTES)
            begin = -(-last // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            self._regions[name] = _Region(begin, _whole_blocks(max(room, 1)))
            try:
                os.ftruncate(self._descriptor, begin + self._regions[name].room)
            except OSError as error:
                raise self._refusal("cannot be made longer", error) from error
        region = self._regions[name]
        try:
            mapped = _Mapping(self._descriptor, region.begin, region.room)
        except OSError as error:
            raise self._refusal("cannot be mapped", error) from error
        self._views[name] = np.asarray(mapped)

    def _reserve(self, name: str, end: int) -> None:
        region = self._regions[name]
        end = _whole_blocks(end)
        wanted = end - region.reserved
        if wanted <= 0:
            return
        if end > region.room or self.occupied_bytes + wanted > self.most_bytes:
            raise ArenaError(
                f"{self.path} may occupy {self.most_bytes:,} bytes and holds {self.occupied_bytes:,}; "
                f"{wanted:,} more are needed: give the file as much as memory="
            )
        try:
            os.posix_fallocate(self._descriptor, region.begin + region.reserved, wanted)
        except OSError as error:
            raise self._refusal(f"gets no room for {wanted:,} bytes more", error) from error
        region.reserved = end

    def _read_header(self) -> dict[str, Any] | None:
        """What was left, if it can be relied upon; sets the regions."""
        try:
            saved = _unsealed(os.pread(self._descriptor, BLOCK_BYTES, 0))
            if saved["key"] != self._key or saved["boot"] != _boot():
                return None
            self._regions = {name: _Region(*sizes) for name, sizes in saved["regions"].items()}
            left: dict[str, Any] = saved["left"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        held = os.fstat(self._descriptor)
        regions = self._regions.values()
        is_whole = all(
            region.begin + region.room <= held.st_size for region in regions
        ) and self.occupied_bytes <= min(held.st_blocks * 512, self.most_bytes)
        return left if is_whole else None

    def _write(self, header: bytes) -> None:
        try:
            written = os.pwrite(self._descriptor, header.ljust(BLOCK_BYTES, b"\0"), 0)
        except OSError as error:
            raise self._refusal(f"gets no room for {BLOCK_BYTES:,} bytes more", error) from error
        if written != BLOCK_BYTES:
            raise self._refusal(f"gets no room for {BLOCK_BYTES:,} bytes more", OSError(errno.ENOSPC, ""))

    def _refusal(self, fault: str, error: OSError) -> ArenaError:
        return ArenaError(
            f"{self.path} {fault}: {os.strerror(error.errno or errno.EIO)}; free room there, give a smaller "
            "memory=, or another directory (on Spark by the setting spark.adjoin.arena.dir)"
        )


class _Mapping:
    """A part of a file as an array; unlike Python's own, it holds no descriptor of its own."""

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


def _sealed(body: bytes) -> bytes:
    return _MAGIC + blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def _unsealed(header: bytes) -> dict[str, Any]:
    """The body of a header; ValueError unless it is whole."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    body = header[begin:].rstrip(b"\0")
    if header[:begin] != _sealed(body)[:begin]:
        raise ValueError("not a whole header")
    saved: dict[str, Any] = json.loads(body)
    return saved


@cache
def _boot() -> str:
    """Which start of the system this is: a disk may not have got all that was written before the last."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


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
