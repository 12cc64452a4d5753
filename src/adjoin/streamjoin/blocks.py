"""Tuples of one input that are on disk: sorted blocks, written once."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.errors import CorruptionError
from adjoin.kernels.types import Array
from adjoin.parts.rows import message_of
from adjoin.parts.rowslots import RowSlots
from adjoin.parts.spill import SpillFile
from adjoin.streamjoin.tuples import ARRIVED

_DIRECTORY = np.dtype(
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
MOMENT_BYTES = 8
"""Of a tuple in a block with tuples that left at different moments, beside its keys."""
_DIFFERENT = -1
"""Instead of a moment: every tuple has its own, behind the keys."""
_CHUNK = 64
"""So many entries come into the directory at a time; it is never copied."""


@dataclass(frozen=True)
class Block:
    """A block in memory; its tuples are sorted by the lower ends of their intervals.

    Attributes:
        low: Lower ends.
        high: Upper ends; the same array where intervals are points.
        arrived: When each tuple arrived.
        left: When each left memory.
    """

    low: Array
    high: Array
    arrived: Array
    left: Array

    def __len__(self) -> int:
        return len(self.low)


class Blocks:
    """The blocks of one input, numbered in the order in which they were written.

    Blocks may become larger ones together, and are empty then. Those of a group, on both sides, have been
    joined with each other.

    Args:
        schema: The columns of a tuple as it is kept.
        are_points: Whether intervals are single keys.
        most_bytes: The most that a block takes.
        file: Where they are.
    """

    growth_bytes = _CHUNK * _DIRECTORY.itemsize
    """By which the directory grows."""

    def __init__(self, schema: pa.Schema, *, are_points: bool, most_bytes: int, file: SpillFile) -> None:
        self.schema = schema
        self._most_bytes = most_bytes
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

    @classmethod
    def directory_growth(cls, blocks: int) -> int:
        """The most by which the directories of two inputs grow when so many blocks are written."""
        return (blocks // _CHUNK + 2) * cls.growth_bytes

    @property
    def key_bytes(self) -> int:
        """Bytes of the interval of a tuple in a block."""
        return 8 if self._are_points else 16

    @property
    def numbers(self) -> Array:
        """The blocks that are not empty, by the least lower ends of their tuples."""
        entries = self._all()
        there = np.flatnonzero(entries["rows"])
        numbers: Array = there[np.argsort(entries["low"][there], kind="stable")]
        return numbers

    def append(
        self, rows: pa.RecordBatch, low: Array, high: Array, left: int | Array, group: int = -1
    ) -> None:
        """Write tuples, in the order of their lower ends, that left memory at this moment, or at these.

        Raises:
            StorageError: There is no room on the disk; nothing was written.
        """
        states = [low] if self._are_points else [low, high]
        if isinstance(left, np.ndarray):
            states.append(left)
            left = _DIFFERENT
        room = self._most_bytes - sum(state.nbytes for state in states)
        message = np.frombuffer(message_of(rows, room), np.uint8)
        block = np.concatenate([message, *(state.view(np.uint8) for state in states)])
        begin, checksum = self._file.append(block)
        facts = begin, len(block), len(message), len(low), group, left, low[0], high.max(), checksum
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

    def set_group(self, numbers: range, group: int) -> None:
        """These blocks belong to the group."""
        for number in numbers:
            self._entry(number)["group"] = group

    def drop(self, numbers: range) -> None:
        """These blocks are empty now: their tuples are in others."""
        for number in numbers:
            entry = self._entry(number)
            self.rows -= int(entry["rows"])
            entry["rows"] = 0

    def groups(self, numbers: Array) -> Array:
        """The group of each block; -1: of none."""
        return np.array([self.group_of(number) for number in numbers], np.int32)

    def group_of(self, number: int) -> int:
        """The group of a block; -1: of none."""
        return int(self._entry(number)["group"])

    def reaches(self, numbers: Array) -> tuple[Array, Array]:
        """Least lower end and greatest upper end of each block."""
        entries = self._all()[numbers]
        return entries["low"], entries["reach"]

    def rows_in(self, numbers: range) -> int:
        """How many tuples these blocks have."""
        return sum(int(self._entry(number)["rows"]) for number in numbers)

    def _all(self) -> Array:
        if not self._chunks:
            return np.empty(0, _DIRECTORY)
        return np.concatenate(self._chunks)[: self._count]

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
        return self._block(entry, data, self._rows(entry, data))

    def read(self, number: int) -> tuple[Block, pa.RecordBatch]:
        """Read a block, with its rows."""
        entry = self._entry(number)
        data = np.empty(int(entry["bytes"]), np.uint8)
        self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        rows = self._rows(entry, data)
        return self._block(entry, data, rows), rows

    def _rows(self, entry: Array, data: Array) -> pa.RecordBatch:
        message = pa.py_buffer(data[: int(entry["message_bytes"])])
        return pa.ipc.read_record_batch(message, self.schema)

    def _block(self, entry: Array, data: Array, rows: pa.RecordBatch) -> Block:
        count, states = int(entry["rows"]), data[int(entry["message_bytes"]) :].view(np.int64)
        low, states = states[:count], states[count:]
        high, states = (low, states) if self._are_points else (states[:count], states[count:])
        left = states if entry["left"] == _DIFFERENT else np.full(count, entry["left"])
        return Block(low, high, rows.column(ARRIVED).to_numpy(), left)

    def dump(self, number: int) -> bytes:
        """A block with all that is known of it."""
        entry = self._entry(number)
        data = np.empty(int(entry["bytes"]) if entry["rows"] else 0, np.uint8)
        if len(data):
            self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        return bytes(entry.tobytes() + data.tobytes())

    def load(self, dumped: bytes) -> None:
        """Take in the next block, of which `dump` made this."""
        entry = np.frombuffer(dumped[: _DIRECTORY.itemsize], _DIRECTORY)[0].copy()
        data = np.frombuffer(dumped, np.uint8, offset=_DIRECTORY.itemsize)
        if entry["rows"]:
            entry["begin"], checksum = self._file.append(data)
            if checksum != entry["checksum"]:
                raise CorruptionError("a block of the snapshot is damaged; take an older one")
        self._note(entry)

    def check_invariants(self) -> None:
        """Raise AssertionError if the directory contradicts itself."""
        entries = self._all()
        assert len(entries) == self._count
        assert self.rows == entries["rows"].sum()
        there = entries[entries["rows"] > 0]
        assert (np.diff(there["begin"]) >= there["bytes"][:-1]).all()
        moments = there["left"][there["left"] != _DIFFERENT]
        assert (np.diff(moments) > 0).all()
        assert (there["low"] <= there["reach"]).all()
