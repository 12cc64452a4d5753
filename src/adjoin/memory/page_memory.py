"""Where pages and their bookkeeping lie: in private memory, or in a file that outlives its user."""

import json
import mmap
import os
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from adjoin.arguments import local_path, whole_number
from adjoin.errors import ArenaError, CorruptionError, OptionError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array
from adjoin.memory.mapped_file import BLOCK_BYTES, MappedFile

__all__ = ["BLOCK_BYTES", "FilePart", "PageFile", "PageMemory"]

_HUGE_BYTES = 2 << 20
_HUGE_FROM_BYTES = 16 << 20
"""From this total size on, slots use huge pages, and are added and released in whole ones."""
_PAGES = "pages"
_MAGIC = b"adjoin pages 1\n\0"
_IN_USE = _MAGIC + b"in use"
_DIGEST_BYTES = 16


class PageMemory:
    """Anonymous memory of one process; what is released returns to the system at once.

    Attributes:
        fixed_bytes: What it takes in addition to pages and bookkeeping arrays.
        bytes_per_slot: What it takes per slot, in addition to the bookkeeping of arena, columns and cache.
        outlives: Whether the next user finds what this one leaves.
    """

    outlives = False
    fixed_bytes = 0
    bytes_per_slot = 0

    def damage(self, what: str) -> CorruptionError:
        """An error that says what was found damaged."""
        return CorruptionError(f"{what} in memory is inconsistent; restart the operator")

    def part(self, name: str) -> "PageMemory":  # noqa: ARG002
        """Memory of the same kind for a second user, with the same lifetime."""
        return PageMemory()

    def recall(self, key: str) -> dict[str, Any] | None:  # noqa: ARG002
        """What the last user left under the same key; if nothing, None, and the memory is empty."""
        return None

    def empty(self) -> None:
        """Discard everything that was left here."""

    def leave(self, left: dict[str, Any]) -> None:
        """Stop using the memory, and leave pages and bookkeeping to the next user."""

    def abandon(self) -> None:
        """Stop using the memory, and leave nothing."""

    def array(self, name: str, length: int, dtype: Any, room: int | None = None) -> Array:  # noqa: ARG002
        """The array of this name, zeros where it is new; a later call can extend it up to `room`."""
        return np.zeros(length, dtype)

    def held(self, name: str, length: int, dtype: Any) -> Array:  # noqa: ARG002
        """Like `array`, but in memory of this process, which no other process can change."""
        return np.zeros(length, dtype)

    def state(self) -> int:
        """A number that changes if another process may have changed the memory; 0 if that is unknown."""
        return 1

    def verified_states(self, slots: int) -> Array:
        """For each slot the state in which its contents were verified; see `SlotTrust`."""
        return np.zeros(slots, np.int32)

    def trim(self, name: str, length: int, dtype: Any) -> None:
        """Shorten the array of this name."""

    def has_room(self, name: str, length: int, dtype: Any) -> bool:  # noqa: ARG002
        """Whether the array of this name can have this length."""
        return True

    def grain_bytes(self, slots_bytes: int) -> int:
        """The unit of memory in which slots are added and released; 0 if any will do."""
        return _HUGE_BYTES if slots_bytes >= _HUGE_FROM_BYTES else 0

    def map(self, before_bytes: int, slots_bytes: int) -> Array:
        """Memory for pages: a fixed part, followed by slots that are added and released."""
        # Private, because MADV_DONTNEED returns only private memory to the system.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._mapping = mmap.mmap(-1, before_bytes + slots_bytes + _HUGE_BYTES, flags=private)
        mapped: Array = np.frombuffer(self._mapping, np.uint8)
        # The slots begin where a huge page does.
        self._start = -(mapped.ctypes.data + before_bytes) % _HUGE_BYTES
        if self.grain_bytes(slots_bytes):
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        return mapped[self._start : self._start + before_bytes + slots_bytes]

    def reserve(self, end: int) -> None:
        """Make sure that the memory for pages can be used up to byte `end`."""

    def give_back(self, begin: int, end: int) -> None:
        """Return this range of the memory for pages to the system."""
        self._mapping.madvise(mmap.MADV_DONTNEED, self._start + begin, end - begin)

    def drop(self) -> None:
        """Return all memory for pages to the system; it reads as zeros afterwards."""
        self._mapping.madvise(mmap.MADV_DONTNEED)


class FinePages(PageMemory):
    """Memory whose slots are added and released one by one, however many there are."""

    def grain_bytes(self, slots_bytes: int) -> int:  # noqa: ARG002
        """Any unit will do."""
        return 0


class _FileMemory(PageMemory):
    """Memory in the regions of a file whose names start with a prefix."""

    outlives = True

    def __init__(self, file: MappedFile, prefix: str) -> None:
        self._file = file
        self._prefix = prefix
        self._held: dict[str, Array] = {}
        self._checksums: dict[str, int] = {}
        self._verified: Array = np.zeros(0, np.int32)

    def damage(self, what: str) -> CorruptionError:
        """An error that says what was found damaged."""
        return CorruptionError(
            f"{self._file.path}: {what} is damaged; the contents of the file will not be used again: "
            "restart the operator or rerun the batch"
        )

    def array(self, name: str, length: int, dtype: Any, room: int | None = None) -> Array:
        """The array of this name, zeros where it is new; a later call can extend it up to `room`.

        Raises:
            ArenaError: The file system is full.
        """
        item_bytes = np.dtype(dtype).itemsize
        size = length * item_bytes
        view = self._file.view(self._prefix + name, size, max(size, (room or 0) * item_bytes))
        return view[:size].view(dtype)

    def held(self, name: str, length: int, dtype: Any) -> Array:
        """Like `array`, but in memory of this process; it is stored in the file only between users.

        Raises:
            ArenaError: The file system is full.
            CorruptionError: The array is not as the last user left it.
        """
        left = self.array(name, length, dtype)
        checksum = self._checksums.pop(name, None)
        self._held[name] = np.zeros(length, dtype) if checksum is None else left.copy()
        if checksum is not None and _checksum(self._held[name]) != checksum:
            raise self.damage(f"the array {self._prefix + name!r}")
        return self._held[name]

    def _store_held(self) -> dict[str, int]:
        """Write the held arrays to the file; returns their checksums."""
        for name, values in self._held.items():
            self.array(name, len(values), values.dtype)[:] = values
        return {name: _checksum(values) for name, values in self._held.items()}

    def release_held(self) -> None:
        """Forget the held arrays."""
        self._held.clear()
        self._checksums.clear()

    def state(self) -> int:
        """A number that changes if another process may have changed the memory; 0 if that is unknown."""
        return self._file.state()

    def verified_states(self, slots: int) -> Array:
        """For each slot the state in which any user in this process verified its contents."""
        if len(self._verified) != slots:
            self._verified = np.zeros(slots, np.int32)
        return self._verified

    def distrust(self) -> None:
        """Nothing here counts as verified any more."""
        self._verified = self._verified[:0]

    def trim(self, name: str, length: int, dtype: Any) -> None:
        """Shorten the array of this name."""
        self._file.give_back(self._prefix + name, length * np.dtype(dtype).itemsize)

    def has_room(self, name: str, length: int, dtype: Any) -> bool:
        """Whether the array of this name can have this length."""
        return length * np.dtype(dtype).itemsize <= self._file.room(self._prefix + name)

    def grain_bytes(self, slots_bytes: int) -> int:  # noqa: ARG002
        """The unit of memory in which slots are added and released; 0 if any will do."""
        return 0

    def map(self, before_bytes: int, slots_bytes: int) -> Array:
        """Memory for pages: a fixed part, followed by slots that are added and released."""
        room = before_bytes + slots_bytes
        return self._file.view(self._prefix + _PAGES, before_bytes, room)[:room]

    def reserve(self, end: int) -> None:
        """Make sure that the memory for pages can be used up to byte `end`.

        Raises:
            ArenaError: The file system is full.
        """
        self._file.reserve(self._prefix + _PAGES, end)

    def give_back(self, begin: int, end: int) -> None:  # noqa: ARG002
        """Return the memory for pages from `begin` on to the system."""
        self._file.give_back(self._prefix + _PAGES, begin)

    def drop(self) -> None:
        """Keep the mapping: the next user in this process need not fault it in again."""


class FilePart(_FileMemory):
    """The part of a page file that belongs to a second user; `PageFile.part` makes it."""

    fixed_bytes = 10 * BLOCK_BYTES
    """Unused ends of regions, and the file system's metadata for them."""
    bytes_per_slot = 44
    """The arrays held in memory of the process, and their copies in the file."""

    def __init__(self, file: MappedFile, name: str) -> None:
        super().__init__(file, f"{name}/")
        self._key = ""
        self.left: dict[str, Any] | None = None

    def recall(self, key: str) -> dict[str, Any] | None:
        """What was left under the same key; if nothing, None, and this part is empty."""
        self._key = key
        found, self.left = self.left, None
        if found is None or found["key"] != key:
            self.empty()
            return None
        left: dict[str, Any] = found["left"]
        self._checksums = found["checksums"]
        return left

    def empty(self) -> None:
        """Discard everything and release its blocks."""
        self.left = None
        self.distrust()
        self.release_held()
        self._file.remove([name for name in self._file.layout if name.startswith(self._prefix)])

    def leave(self, left: dict[str, Any]) -> None:
        """Leave everything to the next user, provided that the user of the file does so too."""
        self.left = {"key": self._key, "left": left, "checksums": self._store_held()}
        self.release_held()


class PageFile(_FileMemory):
    """A shared mapping of a file in which a user finds pages and bookkeeping as the last user left them.

    How it works:

    ```
    | header | pages ........ | array | array | ...      each region sparse, blocks where reserved
    ```

    The header says that the file is in use, or what its last user left when it closed properly. The file
    counts as empty if its last user died, if it is incomplete, or if the system has restarted since. Blocks
    are reserved before they are touched, so a full file system raises an error instead of a signal.

    The caller makes sure that only one process uses the file at a time.

    Args:
        path: The file, in memory (tmpfs) or on disk, plain or as `file:///...`; created if it does not exist.
        most_bytes: The most that it may occupy.

    Raises:
        ArenaError: The file cannot be opened or created.
        OptionError: The path is not a local one, or the size is not a whole number above 0.
    """

    fixed_bytes = 16 * BLOCK_BYTES
    """The header, unused ends of regions, and the file system's metadata for them."""
    bytes_per_slot = 29
    """First key and checksum of the page, and the arrays held in memory of the process."""

    def __init__(self, path: str | os.PathLike[str], most_bytes: int) -> None:
        most_bytes = whole_number("most_bytes", most_bytes, 1)
        super().__init__(MappedFile(local_path(path), most_bytes), "")
        self.path = self._file.path
        self.most_bytes = most_bytes
        self._parts: dict[str, FilePart] = {}
        self._key = ""
        self._is_used = False

    @property
    def occupied_bytes(self) -> int:
        """Bytes that the file has reserved."""
        return self._file.occupied_bytes

    def part(self, name: str) -> FilePart:
        """A part of this file for a second user, requested before `recall`; it is lost with the file."""
        self._check_free()
        self._parts[name] = FilePart(self._file, name)
        return self._parts[name]

    def recall(self, key: str) -> dict[str, Any] | None:
        """What the last user left under the same key; if nothing, None, and the file is empty.

        From now on the file is in use.
        """
        self._check_free()
        self._key = " ".join([key, *sorted(self._parts)])
        left = self._read_header()
        self._is_used = True
        self._file.write_header(_IN_USE)
        if left is None:
            self.empty()
        return left

    def empty(self) -> None:
        """Discard everything and release its blocks."""
        for part in self._parts.values():
            part.left = None
            part.distrust()
            part.release_held()
        self.distrust()
        self.release_held()
        self._file.clear()
        self._file.write_header(_IN_USE)

    def leave(self, left: dict[str, Any]) -> None:
        """Stop using the file, and leave to the next user its pages and those of the parts that were left."""
        if not self._is_used:
            return
        for part in self._parts.values():
            if part.left is None:
                part.empty()
        saved = {
            "boot": _boot(),
            "key": self._key,
            "regions": self._file.layout,
            "left": left,
            "checksums": self._store_held(),
            "parts": {name: part.left for name, part in self._parts.items()},
        }
        self.abandon()
        header = _sealed(json.dumps(saved).encode())
        if len(header) <= BLOCK_BYTES:
            self._file.write_header(header)

    def abandon(self) -> None:
        """Stop using the file, and leave nothing."""
        if self._is_used and self._file.is_open:
            with suppress(ArenaError):  # whoever wrote to the file may have restored an old header
                self._file.write_header(_IN_USE)
        self._is_used = False
        self._parts.clear()
        self.release_held()

    @property
    def is_linked(self) -> bool:
        """Whether the file still has its name."""
        return self._file.is_linked

    def close(self) -> None:
        """Close the file; memory that operators still reference stays mapped."""
        self._file.close()

    def __enter__(self) -> "PageFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_free(self) -> None:
        if self._is_used or not self._file.is_open:
            raise OptionError(
                f"{self.path} is closed or in use by another operator; give each its own page file"
            )

    def _read_header(self) -> dict[str, Any] | None:
        """What the last user left, after adopting its regions; None if it cannot be relied upon."""
        try:
            saved = _unsealed(self._file.read_header())
            if saved["key"] != self._key or saved["boot"] != _boot():
                return None
            for name, part in self._parts.items():
                part.left = saved["parts"][name]
            left: dict[str, Any] = saved["left"]
            self._checksums = saved["checksums"]
            return left if self._file.adopt(saved["regions"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _checksum(values: Array) -> int:
    return int(hash_bytes(values.view(np.uint8), 0, values.nbytes))


def _sealed(body: bytes) -> bytes:
    return _MAGIC + blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def _unsealed(header: bytes) -> dict[str, Any]:
    """The body of a header; ValueError unless it is intact."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    body = header[begin:].rstrip(b"\0")
    if header[:begin] != _sealed(body)[:begin]:
        raise ValueError("the header is incomplete or damaged")
    saved: dict[str, Any] = json.loads(body)
    return saved


@cache
def _boot() -> str:
    """Identifies this boot of the system: after a crash, a disk may lack what was written before it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
