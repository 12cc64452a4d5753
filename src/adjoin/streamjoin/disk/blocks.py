"""Disk_i: the tuples of one input that are on disk, in sorted blocks, each written once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import message_of
from adjoin.errors import CorruptionError
from adjoin.kernels.types import Array
from adjoin.memory.row_slots import RowSlots
from adjoin.streamjoin.disk.spill_file import ENTRY, Directory, SpillFile
from adjoin.streamjoin.memory.tuples import ARRIVED

MOMENT_BYTES = 8
"""Of a tuple besides its keys, in a block whose tuples left at different moments."""
_DIFFERENT = -1
"""In place of a moment: every tuple has its own, stored after the keys."""


@dataclass(frozen=True)
class Block:
    """A block in memory; its tuples are sorted by the lower ends of their intervals.

    Attributes:
        low: Lower ends.
        high: Upper ends; the same array where intervals are points.
        arrived: When each tuple arrived (ATS).
        left: When each left memory (DTS).
    """

    low: Array
    high: Array
    arrived: Array
    left: Array

    def __len__(self) -> int:
        return len(self.low)


@dataclass(frozen=True)
class BlockSpans:
    """The key ranges of blocks, in the order of their least lower ends.

    Attributes:
        numbers: Which blocks.
        low: The least lower end of each.
        reach: The greatest upper end of each.
    """

    numbers: Array
    low: Array
    reach: Array

    @classmethod
    def none(cls) -> "BlockSpans":
        """No block."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing)

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, chosen: Array | slice) -> "BlockSpans":
        """Some of them."""
        return BlockSpans(self.numbers[chosen], self.low[chosen], self.reach[chosen])

    def after(self, others: "BlockSpans") -> "BlockSpans":
        """Those that come after the last of the others."""
        low, number = others.low[-1], others.numbers[-1]
        return self.at((self.low > low) | ((self.low == low) & (self.numbers > number)))

    def with_more(self, others: "BlockSpans") -> "BlockSpans":
        """All of both, in order."""
        pairs = zip(vars(self).values(), vars(others).values(), strict=True)
        both = BlockSpans(*(np.concatenate(pair) for pair in pairs))
        return both.at(np.lexsort((both.numbers, both.low)))

    def first(self, count: int) -> "BlockSpans":
        """At most `count` of them."""
        return self.at(slice(count))


class BlocksInOrder:
    """Iterates over the blocks of an input in the order of their least lower ends.

    Args:
        blocks: The blocks; none may be added meanwhile.
        window: About how many are looked up at a time.
    """

    def __init__(self, blocks: "Blocks", window: int = 256) -> None:
        self._blocks = blocks
        self._window = window
        self._begin = self._places = blocks.in_order(window)
        self._is_last = len(self._places) < window

    def next(self, count: int = 1) -> BlockSpans:
        """The next blocks, at most `count`; empty at the end."""
        self._know(count)
        return self._places.first(count)

    def advance(self, count: int = 1) -> None:
        """Skip these blocks."""
        self._know(count + 1)
        self._places = self._places.at(slice(count, None))

    def _know(self, count: int) -> None:
        """Look up more blocks until `count` are known; one always is, unless none is left."""
        if len(self._places) < count and not self._is_last:
            wanted = max(self._window, count)
            more = self._blocks.in_order(wanted, self._places)
            self._is_last = len(more) < wanted
            self._places = self._places.with_more(more)

    def rewind(self) -> None:
        """Start again with the first block."""
        self._places = self._begin
        self._is_last = len(self._places) < self._window


class Blocks:
    """The blocks of one input, numbered in the order in which they were written.

    Baselines merge blocks into others, which leaves them empty, and mark blocks of both sides that have been
    joined with each other as a group.

    Args:
        schema: The columns of a stored tuple.
        are_points: Whether intervals are single keys.
        most_bytes: The maximum size of a block.
        file: Holds the blocks.
        directory: Where each of them is, and its key range.
    """

    def __init__(
        self, schema: pa.Schema, *, are_points: bool, most_bytes: int, file: SpillFile, directory: Directory
    ) -> None:
        self.schema = schema
        self._most_bytes = most_bytes
        self._are_points = are_points
        self._file = file
        self._directory = directory
        self.rows = 0

    def __len__(self) -> int:
        return len(self._directory)

    @property
    def key_bytes(self) -> int:
        """Bytes of the key interval of a tuple in a block."""
        return 8 if self._are_points else 16

    def reaching(self, least: int, greatest: int, first: int = 0) -> Iterator[int]:
        """The blocks, from number `first` on, that may have tuples with keys from `least` to `greatest`."""
        for number, entries in self._directory.scan(first):
            wanted = (entries["low"] <= greatest) & (entries["reach"] >= least) & (entries["rows"] > 0)
            yield from (np.flatnonzero(wanted) + number).tolist()

    def lows(self) -> Iterator[Array]:
        """The least lower ends of all blocks that are not empty, in several arrays."""
        for _, entries in self._directory.scan():
            yield entries["low"][entries["rows"] > 0]

    def in_order(self, count: int, after: "BlockSpans | None" = None) -> "BlockSpans":
        """The first blocks by their least lower ends, except empty ones.

        Args:
            count: How many at most.
            after: If given, only blocks that come after the last of these.
        """
        found = BlockSpans.none()
        for number, entries in self._directory.scan():
            some = np.flatnonzero(entries["rows"])
            places = BlockSpans(some + number, entries["low"][some], entries["reach"][some])
            if after is not None:
                places = places.after(after)
            found = found.with_more(places).first(count)
        return found

    def append(
        self, rows: pa.RecordBatch, low: Array, high: Array, left: int | Array, group: int = -1
    ) -> None:
        """Write tuples, in the order of their lower ends, as a block.

        Args:
            rows: The tuples.
            low: Their lower ends.
            high: Their upper ends.
            left: The moment at which all of them left memory, or the moment of each.
            group: The group of the block; -1: none.

        Raises:
            StorageError: The disk is full; nothing was written.
        """
        states = [low] if self._are_points else [low, high]
        if isinstance(left, np.ndarray):
            states.append(left)
            left = _DIFFERENT
        room = self._most_bytes - sum(state.nbytes for state in states)
        message = np.frombuffer(message_of(rows, room), np.uint8)
        block = np.concatenate([message, *(state.view(np.uint8) for state in states)])
        self._directory.make_room()
        begin, checksum = self._file.append(block)
        facts = begin, len(block), len(message), len(low), group, left, low[0], high.max(), checksum
        self._note(np.array(facts, ENTRY))

    def _note(self, entry: Array) -> None:
        self._directory.append(entry)
        self.rows += int(entry["rows"])

    def mark(self) -> tuple[int, int, int]:
        """The state to which `undo` returns."""
        return len(self), self.rows, self._file.bytes

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Forget all blocks that were written after this mark."""
        count, self.rows, self._file.bytes = mark
        self._directory.cut(count)

    def set_group(self, numbers: range, group: int) -> None:
        """Put these blocks in a group."""
        for number in numbers:
            self._directory.change(number, "group", group)

    def drop(self, numbers: range) -> None:
        """Empty these blocks, whose tuples have been merged into others."""
        for number in numbers:
            rows = int(self._directory.entry(number)["rows"])
            self._directory.change(number, "rows", 0)
            self.rows -= rows

    def groups(self, numbers: Iterable[int]) -> Array:
        """The group of each block; -1: none."""
        return np.array([self.group_of(number) for number in numbers], np.int32)

    def group_of(self, number: int) -> int:
        """The group of a block; -1: none."""
        return int(self._directory.entry(number)["group"])

    def rows_of(self, number: int) -> int:
        """How many tuples a block has."""
        return int(self._directory.entry(number)["rows"])

    def reach_of(self, number: int) -> tuple[int, int]:
        """Least lower end and greatest upper end of a block."""
        entry = self._directory.entry(number)
        return int(entry["low"]), int(entry["reach"])

    def bytes_of(self, number: int) -> int:
        """Length of a block."""
        return int(self._directory.entry(number)["bytes"])

    def read_into(self, number: int, slots: RowSlots, slot: int) -> Block:
        """Read a block into a slot."""
        entry = self._directory.entry(number)
        data = slots.bytes_of(slot, int(entry["bytes"]))
        self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        slots.note(slot)
        return self._block(entry, data, self._rows(entry, data))

    def read(self, number: int) -> tuple[Block, pa.RecordBatch]:
        """Read a block and its rows."""
        entry = self._directory.entry(number)
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
        """A block and its directory entry."""
        entry = self._directory.entry(number)
        data = np.empty(int(entry["bytes"]) if entry["rows"] else 0, np.uint8)
        if len(data):
            self._file.read(int(entry["begin"]), data, int(entry["checksum"]))
        return bytes(entry.tobytes() + data.tobytes())

    def load(self, dumped: bytes) -> None:
        """Append a block that `dump` returned."""
        entry = np.frombuffer(dumped[: ENTRY.itemsize], ENTRY)[0].copy()
        data = np.frombuffer(dumped, np.uint8, offset=ENTRY.itemsize)
        self._directory.make_room()
        if entry["rows"]:
            entry["begin"], checksum = self._file.append(data)
            if checksum != entry["checksum"]:
                raise CorruptionError("a block of the snapshot is damaged; take an older one")
        self._note(entry)

    def close(self) -> None:
        """Release the disk space of the directory."""
        self._directory.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if the directory contradicts itself."""
        self._directory.check_invariants()
        entries = np.concatenate([np.empty(0, ENTRY), *(some for _, some in self._directory.scan())])
        assert len(entries) == len(self)
        assert self.rows == entries["rows"].sum()
        there = entries[entries["rows"] > 0]
        assert (np.diff(there["begin"]) >= there["bytes"][:-1]).all()
        moments = there["left"][there["left"] != _DIFFERENT]
        assert (np.diff(moments) > 0).all()
        assert (there["low"] <= there["reach"]).all()
