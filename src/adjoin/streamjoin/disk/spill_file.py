"""The files of a spilling join: blocks, and the directory of where they are, of bounded size in memory."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from adjoin.arguments import local_path
from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock

_DISK_BLOCK_BYTES = 4096

ENTRY = np.dtype(
    [
        ("begin", np.int64),
        ("bytes", np.int32),
        ("message_bytes", np.int32),
        ("rows", np.int32),
        ("group", np.int32),
        ("left", np.int64),
        ("low", np.int64),
        ("reach", np.int64),
        ("checksum", np.uint64),
    ]
)
CHUNK_ENTRIES = 64
CHUNK_BYTES = CHUNK_ENTRIES * ENTRY.itemsize
_CHUNK = np.dtype([("entries", ENTRY, CHUNK_ENTRIES), ("checksum", np.uint64)])


class DiskTime:
    """Lets time pass on the clock for what a simulated disk reads and writes.

    Args:
        clock: The clock.
        disk: The disk; None: a real one takes its time by itself.
    """

    def __init__(self, clock: Clock, disk: Cost | None) -> None:
        self._clock = clock
        self._disk = disk
        self._head = 0, -1

    def spend(self, file: int, begin: int, end: int) -> None:
        """Read or write these bytes of a file; the disk seeks unless it continues where it was."""
        if self._disk is not None:
            is_there = self._head == (file, begin)
            self._head = file, end
            blocks = -(-(end - begin) // _DISK_BLOCK_BYTES)
            self._clock.sleep(self._disk.seconds(0 if is_there else 1, blocks))


class SpillFile:
    """A private file of blocks: it has no name once it is open.

    Args:
        folder: Its directory; by default the system's temporary directory.
        spend: Called with the range of every read and write, so that a simulated disk can let time pass.

    Attributes:
        bytes: Its size.
    """

    def __init__(
        self, folder: Path | str | None = None, spend: Callable[[int, int], None] | None = None
    ) -> None:
        folder = None if folder is None else local_path(folder, "spill")
        self._folder = folder or tempfile.gettempdir()
        self._spend = spend or (lambda _begin, _end: None)
        try:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="adjoin-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise StorageError(f"cannot write to {self._folder}: {error.strerror}") from error
        self.bytes = 0

    @property
    def descriptor(self) -> int:
        """The open file, for kernels that read and write it."""
        return self._file.fileno()

    @property
    def actual_bytes(self) -> int:
        """What the system says that its size is."""
        return os.fstat(self.descriptor).st_size

    def spend(self, begin: int, end: int) -> None:
        """Let the time pass that a kernel takes to read or write these bytes."""
        self._spend(begin, end)

    def cut(self, end: int) -> None:
        """Release the disk space behind this offset."""
        if end < self.bytes:
            with suppress(OSError):
                self._file.truncate(end)
                self.bytes = end

    def append(self, block: Array) -> tuple[int, int]:
        """Append a block; returns its offset and checksum.

        Raises:
            StorageError: The disk is full; nothing has changed, and the call can be repeated.
        """
        begin = self.bytes
        self.write(begin, block)
        return begin, int(hash_bytes(block, 0, len(block)))

    def write(self, begin: int, block: Array) -> None:
        """Write a block at this offset.

        Raises:
            StorageError: The disk is full; the call can be repeated.
        """
        left = block.data
        try:
            while left:
                left = left[os.pwrite(self._file.fileno(), left, begin + len(block) - len(left)) :]
        except OSError as error:
            raise StorageError(
                f"cannot write {len(block):,} bytes to {self._folder}: {error.strerror}; make room and "
                "continue"
            ) from error
        self.bytes = max(self.bytes, begin + len(block))
        self._spend(begin, begin + len(block))

    def read(self, begin: int, target: Array, checksum: int) -> None:
        """Fill `target` with the block at this offset.

        Raises:
            CorruptionError: It is not the block that was written.
        """
        self.fill(begin, target)
        if int(hash_bytes(target, 0, len(target))) != checksum:
            raise CorruptionError(f"a spilled block at byte {begin} is damaged; join the inputs again")

    def fill(self, begin: int, target: Array) -> None:
        """Fill `target` with the bytes at this offset.

        Raises:
            CorruptionError: The file is too short.
        """
        left = target.data
        while left:
            try:
                count = os.preadv(self._file.fileno(), [left], begin + len(target) - len(left))
            except OSError as error:
                raise StorageError(f"cannot read a spilled block: {error.strerror}") from error
            if count == 0:
                raise CorruptionError(f"a spilled block at byte {begin} is cut off; join the inputs again")
            left = left[count:]
        self._spend(begin, begin + len(target))

    def close(self) -> None:
        """Release the disk space."""
        self._file.close()


class Directory:
    """Entries of blocks by number, in chunks: the most recently used ones in memory, the others in a file.

    Args:
        most_chunks: The maximum number of chunks in memory; at least two.
        open_file: Opens the file once there are more.
    """

    def __init__(self, most_chunks: int, open_file: Callable[[], SpillFile]) -> None:
        self._most_chunks = max(2, most_chunks)
        self._open_file = open_file
        self._file: SpillFile | None = None
        self._chunks: dict[int, Array] = {}  # the most recently used one comes last
        self._changed: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def make_room(self) -> None:
        """Make room for one more entry.

        Raises:
            StorageError: The disk is full; nothing has changed.
        """
        number, at = divmod(self._count, CHUNK_ENTRIES)
        if at:
            self._chunk(number)
        elif number not in self._chunks:
            self._evict()
            self._chunks[number] = np.zeros(1, _CHUNK)

    def append(self, entry: Array) -> None:
        """Append an entry; there must be room."""
        number, at = divmod(self._count, CHUNK_ENTRIES)
        self._chunks[number]["entries"][0, at] = entry
        self._changed.add(number)
        self._count += 1

    def cut(self, count: int) -> None:
        """Forget all but the first `count` entries."""
        self._count = count
        for number in [number for number in self._chunks if number * CHUNK_ENTRIES >= count]:
            del self._chunks[number]
            self._changed.discard(number)

    def entry(self, number: int) -> Array:
        """An entry, which must not be modified."""
        entry: Array = self._chunk(number // CHUNK_ENTRIES)["entries"][0, number % CHUNK_ENTRIES]
        return entry

    def change(self, number: int, name: str, value: int) -> None:
        """Set a field of an entry."""
        self.entry(number)[name] = value
        self._changed.add(number // CHUNK_ENTRIES)

    def scan(self, first: int = 0) -> Iterator[tuple[int, Array]]:
        """All entries from number `first` on, half as many chunks at a time as fit in memory.

        Returns:
            The number of the first of these entries, and the entries.
        """
        at_a_time = max(1, self._most_chunks // 2)
        for begin in range(first // CHUNK_ENTRIES, -(-self._count // CHUNK_ENTRIES), at_a_time):
            end = min(begin + at_a_time, -(-self._count // CHUNK_ENTRIES))
            chunks = [self._chunks[n] if n in self._chunks else self._read(n) for n in range(begin, end)]
            entries = np.concatenate([chunk["entries"][0] for chunk in chunks])
            skipped = max(0, first - begin * CHUNK_ENTRIES)
            number = begin * CHUNK_ENTRIES
            yield number + skipped, entries[skipped : self._count - number]

    def _chunk(self, number: int) -> Array:
        chunk = self._chunks.pop(number, None)
        if chunk is None:
            self._evict()
            chunk = self._read(number)
        self._chunks[number] = chunk
        return chunk

    def _evict(self) -> None:
        """Remove the least recently used chunks from memory while there are too many."""
        while len(self._chunks) >= self._most_chunks:
            number = next(iter(self._chunks))
            if number in self._changed:
                self._write(number)
            del self._chunks[number]

    def _write(self, number: int) -> None:
        if self._file is None:
            self._file = self._open_file()
        chunk = self._chunks[number]
        chunk["checksum"] = _checksum(chunk)
        self._file.write(number * _CHUNK.itemsize, chunk.view(np.uint8))
        self._changed.discard(number)

    def _read(self, number: int) -> Array:
        assert self._file is not None
        chunk = np.empty(1, _CHUNK)
        self._file.fill(number * _CHUNK.itemsize, chunk.view(np.uint8))
        if chunk["checksum"][0] != _checksum(chunk):
            raise CorruptionError("the directory of spilled blocks is damaged; join the inputs again")
        return chunk

    def close(self) -> None:
        """Release the disk space."""
        if self._file is not None:
            self._file.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if there are too many chunks in memory."""
        assert len(self._chunks) <= self._most_chunks
        assert self._changed <= set(self._chunks)


def _checksum(chunk: Array) -> np.uint64:
    return np.uint64(int(hash_bytes(chunk.view(np.uint8), 0, CHUNK_BYTES)) & 0xFFFFFFFFFFFFFFFF)
