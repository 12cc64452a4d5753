"""Temporary files until a version is committed: keys for its filter, and records of latest changes."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.master import files
from adjoin.master.filter import KeyFilter

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class SpooledKeys:
    """Distinct keys in a temporary file, which another process may have written."""

    path: str
    keys: int

    def chunks(self) -> Iterator[NDArray[np.int64]]:
        if not self.keys:
            return
        descriptor = files.open_to_read(self.path)
        try:
            for start in range(0, 8 * self.keys, _CHUNK_BYTES):
                length = min(_CHUNK_BYTES, 8 * self.keys - start)
                yield np.frombuffer(files.read_at(descriptor, self.path, start, length), np.int64)
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        if self.keys:
            files.discard(self.path)


class _Spool:
    """A temporary file that is created by the first write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: files.NewFile | None = None

    def _write(self, data: files.Bytes) -> None:
        if self._file is None:
            self._file = files.NewFile(self._path)
        self._file.write(data)

    def _end(self) -> None:
        """Keep what was written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Remove what was written, unless it is finished."""
        if self._file is not None:
            self._end()
            files.discard(self._path)


class KeySpool(_Spool):
    """Writes the distinct keys of sorted rows to a temporary file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._keys = 0
        self._last: int | None = None

    def add(self, keys: NDArray[np.int64]) -> None:
        """Add the next keys, in ascending order."""
        if not len(keys):
            return
        fresh = np.empty(len(keys), np.bool_)
        fresh[0] = self._last is None or int(keys[0]) != self._last
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        distinct = keys[fresh]
        self._last = int(keys[-1])
        self._write(distinct.view(np.uint8))
        self._keys += len(distinct)

    def finish(self) -> SpooledKeys:
        """The keys that were written; the caller discards them."""
        self._end()
        return SpooledKeys(self._path, self._keys)


def filter_of(parts: Sequence[SpooledKeys], bits: int) -> KeyFilter:
    """A filter with `bits` bits per key; the parts have no keys in common."""
    made = KeyFilter.for_keys(sum(part.keys for part in parts), bits)
    for part in parts:
        for keys in part.chunks():
            made.add(keys)
    return made


@dataclass(frozen=True)
class SpooledRecords:
    """Records of latest changes in a temporary file, which another process may have written.

    Attributes:
        path: The file.
        offsets: Where each batch of records begins, and where the last one ends.
        sequence: The type of the sequence values.
    """

    path: str
    offsets: tuple[int, ...]
    sequence: pa.DataType

    @property
    def bytes(self) -> int:
        return self.offsets[-1]

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        descriptor = files.open_to_read(self.path)
        try:
            for start, stop in pairwise(self.offsets):
                data = files.read_at(descriptor, self.path, start, stop - start)
                yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        files.discard(self.path)


class RecordSpool(_Spool):
    """Writes records of latest changes to a temporary file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._offsets = [0]

    def add(self, records: pa.RecordBatch) -> None:
        message = records.serialize()
        self._write(message)
        self._offsets.append(self._offsets[-1] + message.size)

    def finish(self, sequence: pa.DataType) -> SpooledRecords | None:
        """The records that were written, if any; the caller discards them."""
        self._end()
        if len(self._offsets) == 1:
            return None
        return SpooledRecords(self._path, tuple(self._offsets), sequence)
