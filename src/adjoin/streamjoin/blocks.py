"""Tuples of one input that are on disk: sorted blocks, written once."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.errors import CorruptionError
from adjoin.kernels.types import Array
from adjoin.parts.rowslots import RowSlots
from adjoin.parts.spill import SpillFile
from adjoin.streamjoin.tuples import ARRIVED

_DIRECTORY = np.dtype(
    [
        ("begin", np.int64),
        ("bytes", np.int32),
        ("message_bytes", np.int32),
        ("rows", np.int32),
        ("left", np.int64),
        ("low", np.int64),
        ("reach", np.int64),
        ("checksum", np.uint64),
    ]
)
_CHUNK = 64
"""So many entries come into the directory at a time; it is never copied."""


@dataclass(frozen=True)
class Block:
    """A block in memory; its tuples are sorted by the lower ends of their intervals.

    Attributes:
        low: Lower ends.
        high: Upper ends; the same array where intervals are points.
        arrived: When each tuple arrived.
        left: When they left memory, all at once.
    """

    low: Array
    high: Array
    arrived: Array
    left: int


class Blocks:
    """The blocks of one input, numbered in the order in which they were written.

    Args:
        schema: The columns of a tuple as it is kept.
        are_points: Whether intervals are single keys.
        file: Where they are.
    """

    growth_bytes = _CHUNK * _DIRECTORY.itemsize
    """By which the directory grows."""

    def __init__(self, schema: pa.Schema, *, are_points: bool, file: SpillFile) -> None:
        self._schema = schema
        self._are_points = are_points
        self._file = file
        self._chunks: list[Array] = []
        self._count = 0
        self.rows = 0

    def __len__(self) -> int:
        return self._count

    @property
    def directory_bytes(self) -> int:
        """What the directory takes."""
        return len(self._chunks) * self.growth_bytes

    @property
    def key_bytes(self) -> int:
        """Bytes of the interval of a tuple in a block."""
        return 8 if self._are_points else 16

    def append(self, rows: pa.RecordBatch, low: Array, high: Array, left: int) -> None:
        """Write tuples, in the order of their lower ends, that left memory at this moment.

        Raises:
            StorageError: There is no room on the disk; nothing was written.
        """
        message = np.frombuffer(rows.serialize(), np.uint8)
        keys = [low] if self._are_points else [low, high]
        block = np.concatenate([message, *(key.view(np.uint8) for key in keys)])
        begin, checksum = self._file.append(block)
        facts = begin, len(block), len(message), len(low), left, low[0], high.max(), checksum
        self._note(np.array(facts, _DIRECTORY))

    def _note(self, entry: Array) -> None:
        if self._count == _CHUNK * len(self._chunks):
            self._chunks.append(np.empty(_CHUNK, _DIRECTORY))
        self._chunks[-1][self._count % _CHUNK] = entry
        self._count += 1
        self.rows += int(entry["rows"])

    def undo(self, count: int) -> None:
        """Forget all but the first so many blocks."""
        while self._count > count:
            self._count -= 1
            entry = self._entry(self._count)
            self._file.bytes = int(entry["begin"])
            self.rows -= int(entry["rows"])
            del self._chunks[-(-self._count // _CHUNK) :]

    def _entry(self, number: int) -> Array:
        entry: Array = self._chunks[number // _CHUNK][number % _CHUNK]
        return entry

    def reach_of(self, number: int) -> tuple[int, int]:
        """Least lower end and greatest upper end of a block."""
        entry = self._entry(number)
        return int(entry["low"]), int(entry["reach"])

    def bytes_of(self, number: int) -> int:
        """Length of a block."""
        return int(self._entry(number)["bytes"])

    def read_into(self, number: int, slots: RowSlots, slot: int) -> Block:
        """Read a block into a slot."""
        entry = self._entry(number)
        data = slots.bytes_of(slot, int(entry["bytes"]))
        self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        slots.note(slot)
        low, high = self._keys(entry, data)
        message = pa.py_buffer(data[: int(entry["message_bytes"])])
        return Block(low, high, self._arrived(message), int(entry["left"]))

    def read(self, number: int) -> tuple[Block, pa.RecordBatch]:
        """Read a block, with its rows."""
        entry = self._entry(number)
        data = np.empty(int(entry["bytes"]), np.uint8)
        self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        low, high = self._keys(entry, data)
        rows = pa.ipc.read_record_batch(pa.py_buffer(data[: int(entry["message_bytes"])]), self._schema)
        arrived = rows.column(ARRIVED).to_numpy()
        return Block(low, high, arrived, int(entry["left"])), rows

    def _arrived(self, message: pa.Buffer) -> Array:
        arrived: Array = pa.ipc.read_record_batch(message, self._schema).column(ARRIVED).to_numpy()
        return arrived

    def _keys(self, entry: Array, data: Array) -> tuple[Array, Array]:
        begin, rows = int(entry["message_bytes"]), int(entry["rows"])
        low = data[begin : begin + 8 * rows].view(np.int64)
        high = low if self._are_points else data[begin + 8 * rows :].view(np.int64)
        return low, high

    def dump(self, number: int) -> bytes:
        """A block with all that is known of it."""
        entry = self._entry(number)
        data = np.empty(int(entry["bytes"]), np.uint8)
        self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        return bytes(entry.tobytes() + data.tobytes())

    def load(self, dumped: bytes) -> None:
        """Take in the next block, of which `dump` made this."""
        entry = np.frombuffer(dumped[: _DIRECTORY.itemsize], _DIRECTORY)[0].copy()
        data = np.frombuffer(dumped, np.uint8, offset=_DIRECTORY.itemsize)
        entry["begin"], checksum = self._file.append(data)
        if checksum != entry["checksum"]:
            raise CorruptionError("a block of the snapshot is damaged; take an older one")
        self._note(entry)

    def check_invariants(self) -> None:
        """Raise AssertionError if the directory contradicts itself."""
        if not self._count:
            return
        entries = np.concatenate(self._chunks)[: self._count]
        assert self.rows == entries["rows"].sum()
        assert (np.diff(entries["begin"]) == entries["bytes"][:-1]).all()
        assert (np.diff(entries["left"]) > 0).all()
        assert (entries["low"] <= entries["reach"]).all()
