"""The index: keys, location and checksum of every page, as flat arrays.

Its file has two sums for every block of entries, one of keys and one of locations, so that the index can be
used in the mapped file without trusting that the file stays as it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.kernels.blocks import (
    ENTRIES,
    SOUND,
    Entries,
    locate_in_blocks,
    sum_entries,
    take_entries,
)
from adjoin.kernels.search import locate_pages

_ENTRIES_AT_A_TIME = 1 << 16
_TYPICAL = 0.99

Places = NDArray[Any]
"""Numbers of pages."""


@dataclass(frozen=True)
class PageIndex:
    """One entry per page, in key order.

    Attributes:
        first: The encoded key of the page's first row.
        last: The encoded key of its last row, which may also be the first key of the next page.
        file: The position of its data file in the version's list.
        block: Where the page begins in the file, in blocks of 4096 bytes.
        blocks: Its length in blocks.
        rows: The number of its rows.
        checksum: XXH64 of the whole padded page.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    file: NDArray[np.int32]
    block: NDArray[np.int32]
    blocks: NDArray[np.int32]
    rows: NDArray[np.int32]
    checksum: NDArray[np.uint64]

    @classmethod
    def empty(cls) -> "PageIndex":
        return cls(*(np.empty(0, dtype) for dtype in _DTYPES))

    @classmethod
    def concat(cls, parts: Sequence["PageIndex"]) -> "PageIndex":
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES))

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> "PageIndex":
        return PageIndex(*(getattr(self, name)[places] for name in _NAMES))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(self, name).nbytes) for name in _NAMES)

    @cached_property
    def typical_blocks(self) -> int:
        """The 99th percentile of the lengths of pages."""
        return _typical(self.blocks)

    @cached_property
    def largest_blocks(self) -> int:
        """The length of the longest page."""
        return int(self.blocks.max(initial=1))

    @property
    def entries(self) -> Entries:
        """The arrays, for kernels."""
        return Entries(*(getattr(self, name) for name in _NAMES))

    def locate(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[Places, Places]:
        """Pages `start <= p < stop` that may hold keys in [low, high]; `low` is sorted ascending."""
        return locate_pages(low, high, self.first, self.last)

    def parts(self) -> Iterator["PageIndex"]:
        """All entries, as a single part; see `CheckedIndex.parts`."""
        yield self

    def to_bytes(self) -> pa.Buffer:
        """A plain Arrow IPC file with a single row: a list for each array, and for the sums of blocks."""
        blocks = -(-len(self) // ENTRIES)
        sums = {name: np.empty(blocks, np.uint64) for name in _SUMS}
        sum_entries(self.entries, *sums.values())
        arrays = {**{name: getattr(self, name) for name in _NAMES}, **sums}
        return file_of_lists(arrays)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> "PageIndex":
        """Read an index from a file that has been verified as a whole."""
        batch = read_lists(data)
        return cls(*(batch[name].astype(dtype) for name, dtype in zip(_NAMES, _DTYPES, strict=True)))

    @classmethod
    def from_first_format(cls, data: bytes | bytearray) -> "PageIndex":
        """Read an index from a file of format 1, which has a row for each page and no sums."""
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        return cls(*(_owned(table[name], dtype) for name, dtype in zip(_NAMES, _DTYPES, strict=True)))

    def fault(self) -> str:
        """What is wrong with the entries; empty if nothing is."""
        checks = (
            (self.first <= self.last, "the first key of a page is greater than its last"),
            (self.last[:-1] <= self.first[1:], "pages are not in key order"),
            (self.rows > 0, "a page has no rows"),
            (self.blocks > 0, "a page has no bytes"),
            (self.block > 0, "a page lies in the header of its file"),
            (self.file >= 0, "a page has no file"),
        )
        return next((fault for is_sound, fault in checks if not is_sound.all()), "")

    def check_invariants(self) -> None:
        """The arrays have the same length, and the entries have no fault."""
        assert all(len(getattr(self, name)) == len(self) for name in _NAMES)
        assert not self.fault(), self.fault()


_NAMES = tuple(field.name for field in fields(PageIndex))
_DTYPES: tuple[Any, ...] = tuple(
    map(np.dtype, (np.int64, np.int64, np.int32, np.int32, np.int32, np.int32, np.uint64))
)
_SUMS = ("key_sums", "place_sums")


def _owned(column: pa.ChunkedArray, dtype: Any) -> NDArray[Any]:
    # A copy, so as not to keep the bytes of the file alive in addition to what `nbytes` counts.
    return np.concatenate([np.empty(0, dtype), *(chunk.to_numpy() for chunk in column.chunks)], dtype=dtype)


def file_of_lists(arrays: dict[str, NDArray[Any]]) -> pa.Buffer:
    """An Arrow IPC file with a single row, which has each array as a list."""
    lists = [pa.ListArray.from_arrays([0, len(values)], pa.array(values)) for values in arrays.values()]
    batch = pa.record_batch(lists, names=list(arrays))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def read_lists(data: Any) -> dict[str, NDArray[Any]]:
    """The arrays in a file written by `file_of_lists`, without copying, read-only.

    Raises:
        pa.ArrowInvalid: It is not such a file.
    """
    batch = pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)
    batch.validate()
    return {name: column.values.to_numpy() for name, column in zip(batch.schema.names, batch, strict=True)}


def in_place(data: NDArray[np.uint8], values: NDArray[Any]) -> NDArray[Any]:
    """Values that `read_lists` found in `data`, as a writable array.

    Kernels would be compiled a second time for read-only arrays.
    """
    begin = values.ctypes.data - data.ctypes.data if len(values) else 0
    if not 0 <= begin <= begin + values.nbytes <= len(data):
        raise pa.ArrowInvalid("values lie outside of the file")
    return data[begin : begin + values.nbytes].view(values.dtype)


class VerifiedFile(Protocol):
    """A memory-mapped file that was verified as a whole when it was opened, and may change since.

    Attributes:
        bytes: Its contents.
    """

    bytes: NDArray[np.uint8]

    def check(self) -> None:
        """Raise a CorruptionError if the file is shorter now: touching the missing part would be fatal."""

    def damage(self, where: str) -> Exception:
        """An error that says which part is damaged."""


class CheckedIndex:
    """An index in a mapped file that may change at any time: whatever is used is verified.

    How it works: the sums of all blocks, and their first and last keys, are held in private memory. A search
    uses those, and the block where it ends. Entries are copied. Afterwards, each block that was used must
    still have its sum.

    Args:
        file: The file.

    Raises:
        CorruptionError: A block does not have the sum that it should have.
    """

    def __init__(self, file: VerifiedFile) -> None:
        self._file = file
        found = read_lists(file.bytes)
        self._entries = Entries(*(in_place(file.bytes, found[name]) for name in _NAMES))
        self._key_sums, self._place_sums = (found[name].copy() for name in _SUMS)
        dtypes = tuple(array.dtype for array in self._entries)
        if dtypes != _DTYPES or {len(array) for array in self._entries} != {len(self)}:
            raise pa.ArrowInvalid("its columns are not those of an index")
        if not len(self._key_sums) == len(self._place_sums) == -(-len(self) // ENTRIES):
            raise pa.ArrowInvalid("it does not have a sum for every block")
        self._read_all()

    def _read_all(self) -> None:
        """Verify every block, and keep what is needed frequently."""
        first, last, blocks = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        for part in self.parts():
            first.append(part.first[::ENTRIES])
            last.append(part.last[_last_of_blocks(len(part))])
            blocks.append(part.blocks)
        self._fence_first, self._fence_last = np.concatenate(first), np.concatenate(last)
        self.typical_blocks = _typical(np.concatenate(blocks))
        self.largest_blocks = max(int(part.max(initial=1)) for part in blocks)

    def __len__(self) -> int:
        return len(self._entries.first)

    @property
    def nbytes(self) -> int:
        """Size of the whole index."""
        return sum(int(array.nbytes) for array in self._entries)

    @property
    def key_range(self) -> tuple[int, int]:
        """The least and the greatest encoded key."""
        return int(self._fence_first[0]), int(self._fence_last[-1])

    def parts(self) -> Iterator[PageIndex]:
        """All entries, verified, in parts of bounded size."""
        for begin in range(0, len(self), _ENTRIES_AT_A_TIME):
            yield self.take(np.arange(begin, min(begin + _ENTRIES_AT_A_TIME, len(self))))

    def take(self, pages: Places) -> PageIndex:
        """The entries of these pages, verified and copied.

        Raises:
            CorruptionError: One of their blocks is damaged.
        """
        self._file.check()
        taken = Entries(*(np.empty(len(pages), dtype) for dtype in _DTYPES))
        self._require(take_entries(self._entries, self._key_sums, self._place_sums, pages, taken))
        return PageIndex(*taken)

    def locate(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[Places, Places]:
        """Pages `start <= p < stop` that may hold keys in [low, high]; `low` is sorted ascending.

        Raises:
            CorruptionError: A block in which a key would lie is damaged.
        """
        self._file.check()
        start, stop = np.empty(len(low), np.int32), np.empty(len(low), np.int32)
        fences = self._fence_first, self._fence_last
        self._require(locate_in_blocks(self._entries, self._key_sums, *fences, low, high, start, stop))
        return start, stop

    def _require(self, block: int) -> None:
        if block != SOUND:
            last = min((block + 1) * ENTRIES, len(self)) - 1
            raise self._file.damage(f"block {block} (the entries of pages {block * ENTRIES} to {last})")


def _last_of_blocks(entries: int) -> Places:
    """The last entry of every block."""
    return np.minimum(np.arange(0, entries, ENTRIES) + ENTRIES, entries) - 1


def _typical(blocks: NDArray[np.int32]) -> int:
    if len(blocks) == 0:
        return 0
    place = int(np.ceil(_TYPICAL * (len(blocks) - 1)))
    return int(np.partition(blocks, place)[place])
