"""The index: for each page its keys, its place, and its checksum, as flat arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_TYPICAL = 0.99


@dataclass(frozen=True)
class PageIndex:
    """One entry per page, in the order of keys.

    Attributes:
        first: Encoded key of the page's first row.
        last: Encoded key of its last row; pages that share a key group meet here.
        file: Ordinal of the data file in the version's list.
        block: Where the page begins in the file, in blocks of 4096 bytes.
        blocks: Its length in blocks.
        rows: Its rows.
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
        """Nearly all pages are no longer than this."""
        if len(self) == 0:
            return 0
        place = int(np.ceil(_TYPICAL * (len(self) - 1)))
        return int(np.partition(self.blocks, place)[place])

    @cached_property
    def largest_blocks(self) -> int:
        """The length of the longest page."""
        return int(self.blocks.max(initial=1))

    def to_bytes(self) -> pa.Buffer:
        """A plain Arrow IPC file with one column per array."""
        batch = pa.record_batch([pa.array(getattr(self, name)) for name in _NAMES], names=list(_NAMES))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> "PageIndex":
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        return cls(*(_owned(table[name], dtype) for name, dtype in zip(_NAMES, _DTYPES, strict=True)))

    @classmethod
    def over(cls, data: NDArray[np.uint8]) -> "PageIndex":
        """The index whose file lies in this memory, in place."""
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        return cls(*(in_place(data, table[name], dtype) for name, dtype in zip(_NAMES, _DTYPES, strict=True)))

    def check_invariants(self) -> None:
        """Entries are whole, no page is empty or ends before it begins, and none overlaps the next."""
        assert all(len(getattr(self, name)) == len(self) for name in _NAMES)
        assert (self.first <= self.last).all(), "a page ends before it begins"
        assert (self.last[:-1] <= self.first[1:]).all(), "pages are not in the order of keys"
        assert (self.rows > 0).all(), "a page has no rows"
        assert (self.blocks > 0).all(), "a page has no bytes"
        assert (self.block > 0).all(), "a page lies in the header of its file"
        assert (self.file >= 0).all(), "a page lies in no file"


_NAMES = tuple(field.name for field in fields(PageIndex))
_DTYPES: tuple[Any, ...] = (np.int64, np.int64, np.int32, np.int32, np.int32, np.int32, np.uint64)


def _owned(column: pa.ChunkedArray, dtype: Any) -> NDArray[Any]:
    # A copy, so that the bytes of the file are not kept alive beside what is counted as `nbytes`.
    return np.concatenate([np.empty(0, dtype), *(chunk.to_numpy() for chunk in column.chunks)], dtype=dtype)


def in_place(data: NDArray[np.uint8], column: pa.ChunkedArray, dtype: Any) -> NDArray[Any]:
    """Values of a column without nulls where they lie in `data`, writable as `data` is."""
    # Not by `to_numpy`, whose arrays are read-only: kernels would be compiled once more for these.
    if column.num_chunks != 1:
        return _owned(column, dtype)
    (chunk,) = column.chunks
    begin = chunk.buffers()[1].address - data.ctypes.data
    return data[begin : begin + len(chunk) * np.dtype(dtype).itemsize].view(dtype)
