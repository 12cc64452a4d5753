"""Where pages and the notes on them lie: in private memory, or in a file that outlives its user."""

import json
import mmap
import os
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from adjoin.errors import ArenaError, CorruptionError, OptionError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array
from adjoin.memory.mapped_file import BLOCK_BYTES, Regions

__all__ = ["BLOCK_BYTES", "FilePart", "PageFile", "PageMemory"]

_HUGE_BYTES = 2 << 20
_HUGE_FROM_BYTES = 16 << 20
"""Slots that can take so much use huge pages, and come and go by whole ones."""
_PAGES = "pages"
_MAGIC = b"adjoin pages 1\n\0"
_IN_USE = _MAGIC + b"in use"
_DIGEST_BYTES = 16


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

    def damage(self, what: str) -> CorruptionError:
        """The error that says that something here is not as it was written."""
        return CorruptionError(f"{what} in memory contradicts itself; start the operator again")

    def part(self, name: str) -> "PageMemory":  # noqa: ARG002
        """Memory of the same kind for another, who comes and goes with the user of this one."""
        return PageMemory()

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

    def held(self, name: str, length: int, dtype: Any) -> Array:  # noqa: ARG002
        """As `array`, in memory of this process, whatever happens to others: what must not be doubted."""
        return np.zeros(length, dtype)

    def state(self) -> int:
        """A number that is another one once somebody else may have changed what is here; 0: always."""
        return 1

    def verified_states(self, slots: int) -> Array:
        """For each slot the state in which its contents were verified; see `Trust`."""
        return np.zeros(slots, np.int32)

    def trim(self, name: str, length: int, dtype: Any) -> None:
        """The notes under this name are no longer than that any more."""

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


class FinePages(PageMemory):
    """Memory whose slots come and go one by one, however many there are."""

    def grain_bytes(self, slots_bytes: int) -> int:  # noqa: ARG002
        """Of any size."""
        return 0


class _RegionMemory(PageMemory):
    """Memory in regions of a file."""

    outlives = True

    def __init__(self, regions: Regions, prefix: str) -> None:
        self._regions = regions
        self._prefix = prefix
        self._held: dict[str, Array] = {}
        self._checksums: dict[str, int] = {}
        self._verified: Array = np.zeros(0, np.int32)

    def damage(self, what: str) -> CorruptionError:
        """The error that says that something here is not as it was written."""
        return CorruptionError(
            f"{self._regions.path}: {what} is damaged; nothing that is left there will be used again: start "
            "the operator or run the batch again"
        )

    def array(self, name: str, length: int, dtype: Any, room: int | None = None) -> Array:
        """Notes under this name; zeros where they are new. Asked again, they can be as long as `room`.

        Raises:
            ArenaError: The file system is full.
        """
        item_bytes = np.dtype(dtype).itemsize
        size = length * item_bytes
        view = self._regions.view(self._prefix + name, size, max(size, (room or 0) * item_bytes))
        return view[:size].view(dtype)

    def held(self, name: str, length: int, dtype: Any) -> Array:
        """As `array`, in memory of this process, and in the file only while nobody uses it.

        Raises:
            ArenaError: The file system is full.
            CorruptionError: They are not as they were left.
        """
        left = self.array(name, length, dtype)
        checksum = self._checksums.pop(name, None)
        self._held[name] = np.zeros(length, dtype) if checksum is None else left.copy()
        if checksum is not None and _checksum(self._held[name]) != checksum:
            raise self.damage(f"what was noted as {self._prefix + name!r}")
        return self._held[name]

    def _put_down(self) -> dict[str, int]:
        """Put what was held into the file; returns the checksums."""
        for name, values in self._held.items():
            self.array(name, len(values), values.dtype)[:] = values
        return {name: _checksum(values) for name, values in self._held.items()}

    def _let_go(self) -> None:
        self._held.clear()
        self._checksums.clear()

    def state(self) -> int:
        """A number that is another one once somebody else may have changed what is here; 0: always."""
        return self._regions.state()

    def verified_states(self, slots: int) -> Array:
        """For each slot the state in which its contents were verified, by whoever in this process."""
        if len(self._verified) != slots:
            self._verified = np.zeros(slots, np.int32)
        return self._verified

    def trim(self, name: str, length: int, dtype: Any) -> None:
        """The notes under this name are no longer than that any more."""
        self._regions.give_back(self._prefix + name, length * np.dtype(dtype).itemsize)

    def has_room(self, name: str, length: int, dtype: Any) -> bool:
        """Whether an array can be as long."""
        return length * np.dtype(dtype).itemsize <= self._regions.room(self._prefix + name)

    def grain_bytes(self, slots_bytes: int) -> int:  # noqa: ARG002
        """By how much memory slots come and go, 0 if it does not matter."""
        return 0

    def map(self, before_bytes: int, slots_bytes: int) -> Array:
        """Room for pages: some that is always there, then slots that come and go."""
        room = before_bytes + slots_bytes
        return self._regions.view(self._prefix + _PAGES, before_bytes, room)[:room]

    def reserve(self, end: int) -> None:
        """The room for pages will be used up to this byte.

        Raises:
            ArenaError: The file system is full.
        """
        self._regions.reserve(self._prefix + _PAGES, end)

    def give_back(self, begin: int, end: int) -> None:  # noqa: ARG002
        """Nobody needs the room for pages from here on any more."""
        self._regions.give_back(self._prefix + _PAGES, begin)

    def drop(self) -> None:
        """What is mapped stays mapped: the next user in this process need not touch it all anew."""


class FilePart(_RegionMemory):
    """The part of a page file that belongs to somebody beside its user; `PageFile.part` makes it."""

    fixed_bytes = 10 * BLOCK_BYTES
    """Ends of regions, and what a file system notes on them."""
    bytes_per_slot = 44
    """What is held in memory of the process, and where that is put down."""

    def __init__(self, regions: Regions, name: str) -> None:
        super().__init__(regions, f"{name}/")
        self._key = ""
        self.left: dict[str, Any] | None = None

    def recall(self, key: str) -> dict[str, Any] | None:
        """What was left here under the same key; None, and empty, if there is nothing."""
        self._key = key
        found, self.left = self.left, None
        if found is None or found["key"] != key:
            self.empty()
            return None
        left: dict[str, Any] = found["left"]
        self._checksums = found["checksums"]
        return left

    def empty(self) -> None:
        """Forget everything and give all room back."""
        self.left = None
        self._verified = self._verified[:0]
        self._let_go()
        self._regions.remove([name for name in self._regions.layout if name.startswith(self._prefix)])

    def leave(self, left: dict[str, Any]) -> None:
        """Leave everything for the next, if the user of the file does as well."""
        self.left = {"key": self._key, "left": left, "checksums": self._put_down()}
        self._let_go()


class PageFile(_RegionMemory):
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

    fixed_bytes = 16 * BLOCK_BYTES
    """Header, ends of regions, and what a file system notes on them."""
    bytes_per_slot = 29
    """Which page it is: first key and checksum; what is held in memory of the process besides."""

    def __init__(self, path: str | os.PathLike[str], most_bytes: int) -> None:
        super().__init__(Regions(path, most_bytes), "")
        self.path = self._regions.path
        self.most_bytes = most_bytes
        self._parts: dict[str, FilePart] = {}
        self._key = ""
        self._is_used = False

    @property
    def occupied_bytes(self) -> int:
        """Bytes that are reserved."""
        return self._regions.occupied_bytes

    def part(self, name: str) -> FilePart:
        """Room in this file for another, asked for before `recall`; what is left there shares its fate."""
        self._check_free()
        self._parts[name] = FilePart(self._regions, name)
        return self._parts[name]

    def recall(self, key: str) -> dict[str, Any] | None:
        """What the last user left here under the same key; None, and empty, if there is nothing.

        From now on the file is in use.
        """
        self._check_free()
        self._key = " ".join([key, *sorted(self._parts)])
        left = self._read_header()
        self._is_used = True
        self._regions.write_header(_IN_USE)
        if left is None:
            self.empty()
        return left

    def empty(self) -> None:
        """Forget everything and give all room back."""
        for part in self._parts.values():
            part.left = None
            part._let_go()
        self._verified = self._verified[:0]
        self._let_go()
        self._regions.clear()
        self._regions.write_header(_IN_USE)

    def leave(self, left: dict[str, Any]) -> None:
        """The user goes and leaves pages and notes for the next, and so do those of the parts who left."""
        if not self._is_used:
            return
        for part in self._parts.values():
            if part.left is None:
                part.empty()
        saved = {
            "boot": _boot(),
            "key": self._key,
            "regions": self._regions.layout,
            "left": left,
            "checksums": self._put_down(),
            "parts": {name: part.left for name, part in self._parts.items()},
        }
        self.abandon()
        header = _sealed(json.dumps(saved).encode())
        if len(header) <= BLOCK_BYTES:
            self._regions.write_header(header)

    def abandon(self) -> None:
        """The user goes and leaves nothing."""
        if self._is_used and self._regions.is_open:
            with suppress(ArenaError):  # whoever has written there may have put an older header back
                self._regions.write_header(_IN_USE)
        self._is_used = False
        self._parts.clear()
        self._let_go()

    @property
    def is_linked(self) -> bool:
        """Whether the file still has its name."""
        return self._regions.is_linked

    def close(self) -> None:
        """Close the file; memory that operators still hold of it stays mapped."""
        self._regions.close()

    def __enter__(self) -> "PageFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_free(self) -> None:
        if self._is_used or not self._regions.is_open:
            raise OptionError(f"{self.path} is closed or in use by another operator; give each its own")

    def _read_header(self) -> dict[str, Any] | None:
        """What was left, if it can be relied upon; goes on with its regions."""
        try:
            saved = _unsealed(self._regions.read_header())
            if saved["key"] != self._key or saved["boot"] != _boot():
                return None
            for name, part in self._parts.items():
                part.left = saved["parts"][name]
            left: dict[str, Any] = saved["left"]
            self._checksums = saved["checksums"]
            return left if self._regions.adopt(saved["regions"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _checksum(values: Array) -> int:
    return int(hash_bytes(values.view(np.uint8), 0, values.nbytes))


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
