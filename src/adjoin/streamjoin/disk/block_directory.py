"""The directory of blocks on disk: of bounded size in memory, the rest of it on disk too."""

from collections.abc import Callable, Iterator

import numpy as np

from adjoin.errors import CorruptionError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array
from adjoin.streamjoin.disk.spill_file import SpillFile

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


class Directory:
    """Entries by number, in chunks: those that were used last in memory, all others in a file.

    Args:
        most_chunks: So many chunks are in memory at most; at least two.
        open_file: Opens the file, once the chunks are more.
    """

    def __init__(self, most_chunks: int, open_file: Callable[[], SpillFile]) -> None:
        self._most_chunks = max(2, most_chunks)
        self._open_file = open_file
        self._file: SpillFile | None = None
        self._chunks: dict[int, Array] = {}  # the one that was used last comes last
        self._changed: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def make_room(self) -> None:
        """Let there be room for one more entry.

        Raises:
            StorageError: There is no room on the disk; nothing has changed.
        """
        number, at = divmod(self._count, CHUNK_ENTRIES)
        if at:
            self._chunk(number)
        elif number not in self._chunks:
            self._evict()
            self._chunks[number] = np.zeros(1, _CHUNK)

    def append(self, entry: Array) -> None:
        """Add an entry; there must be room."""
        number, at = divmod(self._count, CHUNK_ENTRIES)
        self._chunks[number]["entries"][0, at] = entry
        self._changed.add(number)
        self._count += 1

    def cut(self, count: int) -> None:
        """Forget all but the first so many entries."""
        self._count = count
        for number in [number for number in self._chunks if number * CHUNK_ENTRIES >= count]:
            del self._chunks[number]
            self._changed.discard(number)

    def entry(self, number: int) -> Array:
        """An entry; what is read stays as it is."""
        entry: Array = self._chunk(number // CHUNK_ENTRIES)["entries"][0, number % CHUNK_ENTRIES]
        return entry

    def change(self, number: int, name: str, value: int) -> None:
        """Change a field of an entry."""
        self.entry(number)[name] = value
        self._changed.add(number // CHUNK_ENTRIES)

    def scan(self, first: int = 0) -> Iterator[tuple[int, Array]]:
        """All entries from this one on, about half as many at a time as there are in memory.

        Returns:
            The number of the first entry, and entries.
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
        """Let the chunk that was not used for longest leave memory, if there are too many."""
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
        """Give the room on disk back."""
        if self._file is not None:
            self._file.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if more is in memory than may be."""
        assert len(self._chunks) <= self._most_chunks
        assert self._changed <= set(self._chunks)


def _checksum(chunk: Array) -> np.uint64:
    return np.uint64(int(hash_bytes(chunk.view(np.uint8), 0, CHUNK_BYTES)) & 0xFFFFFFFFFFFFFFFF)
