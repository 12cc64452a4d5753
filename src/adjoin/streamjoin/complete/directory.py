"""Where the pages of an input are: a table of entries of bounded size in memory, the rest in a file."""

from collections.abc import Callable, Iterator

import numpy as np

from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.spilled import FILTER_WORDS
from adjoin.kernels.types import Array
from adjoin.streamjoin.disk.spill_file import SpillFile

Entry = np.dtype[np.void]
ENTRY: Entry = np.dtype(
    [
        ("place", np.int64),
        ("low", np.int64),
        ("reach", np.int64),
        ("least", np.int64),
        ("most", np.int64),
        ("median", np.int64),
        ("checksum", np.uint64),
        ("length", np.int32),
        ("message", np.int32),
        ("rows", np.int32),
        ("unmatched", np.int32),
    ]
)
"""Of a page: where it is; the least lower and the greatest upper end of its keys; the least, the greatest
and the median time; the checksum of its message; its length and that of the message; how many tuples it has,
and how many of them had no match."""
FILTERED: Entry = np.dtype([*ENTRY.descr, ("filter", np.uint64, (FILTER_WORDS,))])
"""The same with a filter that knows which keys a page may have, for joins by equality."""
_MOST_CHUNK_ENTRIES = 512
_LEAST_CHUNK_ENTRIES = 8


class PageDirectory:
    """Entries of pages in chunks: the first ones and the last one in memory, the others in a file.

    An entry without rows is of a page that is gone.

    Args:
        most_bytes: The memory for entries.
        open_file: Opens the file once they need more.
        entry: What is known about a page: `ENTRY` or `FILTERED`.

    Attributes:
        entry: What is known about a page.
        chunk_entries: How many entries a chunk has.
    """

    def __init__(self, most_bytes: int, open_file: Callable[[], SpillFile], entry: Entry = ENTRY) -> None:
        self.entry = entry
        rows = most_bytes // entry.itemsize
        self.chunk_entries = max(_LEAST_CHUNK_ENTRIES, min(_MOST_CHUNK_ENTRIES, rows // 8))
        # One more is being filled, one is being read, and one may wait for the disk.
        self._most_chunks = max(1, rows // self.chunk_entries - 3)
        self._open_file = open_file
        self._file: SpillFile | None = None
        self._chunks: list[Array | None] = []
        self._counts: list[int] = []
        self._checksums: list[int] = []
        self._unwritten: dict[int, Array] = {}

    @staticmethod
    def least_bytes() -> int:
        """The least memory that is enough."""
        return 5 * _LEAST_CHUNK_ENTRIES * FILTERED.itemsize

    def __len__(self) -> int:
        """The number of entries, including those of pages that are gone."""
        return sum(self._counts)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return 0 if self._file is None else self._file.bytes

    def scan(self) -> Iterator[tuple[int, Array]]:
        """All entries, chunk by chunk, with the number of the chunk; report changes with `changed`."""
        for number in range(len(self._chunks)):
            yield number, self.entries(number)

    def entries(self, number: int) -> Array:
        """The entries of a chunk."""
        return self._chunk(number)[: self._counts[number]]

    def changed(self, number: int, entries: Array) -> None:
        """Entries from `scan` have been modified in place."""
        if self._chunks[number] is None:
            self._unwritten[number] = self._full(entries)
        self._write_rest()

    def _full(self, entries: Array) -> Array:
        chunk = np.zeros(self.chunk_entries, self.entry)
        chunk[: len(entries)] = entries
        return chunk

    def _write_rest(self) -> None:
        """Write what the disk had no room for; if it still has none, keep it."""
        for number in list(self._unwritten):
            try:
                self._write(number, self._unwritten[number])
            except StorageError:
                return
            del self._unwritten[number]

    def make_room(self, count: int) -> None:
        """Make room for this many more entries, at most a chunk.

        Raises:
            StorageError: The disk is full; nothing has changed.
        """
        assert count <= self.chunk_entries
        if self._chunks and self._counts[-1] + count <= self.chunk_entries:
            return
        last = len(self._chunks) - 1
        if last >= self._most_chunks:
            chunk = self._chunks[last]
            assert chunk is not None
            self._write(last, chunk)
            self._chunks[last] = None
        self._chunks.append(np.zeros(self.chunk_entries, self.entry))
        self._counts.append(0)
        self._checksums.append(0)

    def append(self, entries: Array) -> None:
        """Append entries; there must be room."""
        begin = self._counts[-1]
        chunk = self._chunks[-1]
        assert chunk is not None
        chunk[begin : begin + len(entries)] = entries
        self._counts[-1] += len(entries)

    def cut(self, count: int) -> None:
        """The pages behind the first `count` entries are gone."""
        number, left = len(self._chunks), len(self)
        while left > count:
            number -= 1
            left -= self._counts[number]
            entries = self.entries(number)
            entries["rows"][max(count - left, 0) :] = 0
            self.changed(number, entries)

    def tidy(self) -> None:
        """Forget entries of pages that are gone, once they are the majority."""
        left = sum(int(np.count_nonzero(entries["rows"])) for _, entries in self.scan())
        if 2 * left >= len(self) - self.chunk_entries:
            return
        tidied = PageDirectory(0, self._open_file, self.entry)
        tidied.chunk_entries, tidied._most_chunks = self.chunk_entries, self._most_chunks
        try:
            for _, entries in self.scan():
                there = entries[entries["rows"] > 0]
                tidied.make_room(len(there))
                tidied.append(there)
        except StorageError:
            tidied.close()
            return
        self.close()
        vars(self).update(vars(tidied))

    def _chunk(self, number: int) -> Array:
        chunk = self._chunks[number]
        if chunk is None:
            chunk = self._unwritten.get(number)
        return self._read(number) if chunk is None else chunk

    def _write(self, number: int, chunk: Array) -> None:
        if self._file is None:
            self._file = self._open_file()
        data = chunk.view(np.uint8)
        self._file.write(number * len(data), data)
        self._checksums[number] = int(hash_bytes(data, 0, len(data)))

    def _read(self, number: int) -> Array:
        assert self._file is not None
        chunk = np.empty(self.chunk_entries, self.entry)
        data = chunk.view(np.uint8)
        self._file.fill(number * len(data), data)
        if int(hash_bytes(data, 0, len(data))) != self._checksums[number]:
            raise CorruptionError("the directory of spilled pages is damaged; join the inputs again")
        return chunk

    def close(self) -> None:
        """Release the disk space."""
        if self._file is not None:
            self._file.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if there are too many chunks in memory."""
        held = sum(chunk is not None for chunk in self._chunks)
        assert held <= self._most_chunks + 1
        assert all(count <= self.chunk_entries for count in self._counts)
