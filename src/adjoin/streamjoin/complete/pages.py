"""Disk_i: the tuples of one input that are on disk, in sorted pages that are joined undecoded."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import message_of, message_overhead, row_bytes
from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.cutting import cut_groups
from adjoin.kernels.hashing import hash_ranges
from adjoin.kernels.intervals import length_classes
from adjoin.kernels.spilled import FILTER_WORDS, Loaded, fill_filters, page_times, write_pieces
from adjoin.kernels.types import Array
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.operators.portions import portions
from adjoin.streamjoin.complete.directory import FILTERED, PageDirectory
from adjoin.streamjoin.complete.landing import HIGH, LOW, Landing
from adjoin.streamjoin.complete.space import Segments
from adjoin.streamjoin.complete.time_bound import GREATEST, LEAST
from adjoin.streamjoin.disk.spill_file import SpillFile
from adjoin.streamjoin.memory.tuples import TIME

NO_MARK, MATCHED, KEYLESS = np.uint8(0), np.uint8(2), np.uint8(4)
"""Marks of a tuple: it had a match; it has no key, or for another reason matches nothing."""
_KEYLESS_CLASS = np.uint8(255)


def page_schema(stored: pa.Schema, *, are_points: bool) -> pa.Schema:
    """The columns of a page: the ends of key intervals, then those of a stored tuple."""
    ends = [LOW] if are_points else [LOW, HIGH]
    return pa.schema([*(pa.field(name, pa.int64(), False) for name in ends), *stored])


class Pages:
    """The pages of one input. A page is an Arrow record batch; behind it is a byte of marks for each tuple.

    Args:
        side: The number of the input.
        schema: The columns of a page.
        page_bytes: The size of a page, unless it is a single larger tuple.
        file: Holds the pages.
        directory: Where they are.
        segments: Which parts of the file are in use.
        landing: Where they are read to.

    Attributes:
        directory: Where the pages are.
        has_filters: Whether the directory has a filter of the keys of each page.
        rows: How many tuples are in them, including those that have expired in pages that are still there.
        unmatched: How many of them had no match, and have not been returned.
        least_time: None of them has a smaller time.
    """

    def __init__(
        self,
        side: int,
        schema: pa.Schema,
        page_bytes: int,
        file: SpillFile,
        directory: PageDirectory,
        segments: Segments,
        landing: Landing,
    ) -> None:
        self.side = side
        self.schema = schema
        self._are_points = HIGH not in schema.names
        self._overhead = message_overhead(schema)
        self._rows_bytes = page_bytes - self._overhead
        self._file = file
        self.directory = directory
        self.has_filters = directory.entry == FILTERED
        self.segments = segments
        self.landing = landing
        self.rows = 0
        self.unmatched = 0
        self.least_time = GREATEST

    @property
    def key_columns(self) -> int:
        """How many of the columns are ends of key intervals."""
        return 1 if self._are_points else 2

    @property
    def disk_bytes(self) -> int:
        """Size of the files."""
        return self._file.bytes + self.directory.file_bytes

    @property
    def held_bytes(self) -> int:
        """Memory besides what was set aside."""
        return self.segments.held_bytes

    # Writing.

    def append(self, stored: pa.RecordBatch, low: Array, high: Array, marks: Array) -> None:
        """Write tuples, in the order of their lower ends, as pages.

        Raises:
            StorageError: The disk is full; nothing has changed.
        """
        order, classes = self._order(low, high, marks)
        if order is not None:
            stored, low, high, marks = stored.take(pa.array(order)), low[order], high[order], marks[order]
        rows = self._with_ends(stored, low, high)
        sizes = row_bytes(rows) + 1
        starts = np.empty(len(low) + 1, np.int64)
        pages = cut_groups(sizes, classes, self._rows_bytes, self._rows_bytes, starts)
        starts[pages] = len(low)
        bounds = starts[: pages + 1]
        data, entries = self._sealed(rows, bounds, np.add.reduceat(sizes, bounds[:-1]), marks)
        self._note_keys(entries, bounds, low, high, classes)
        entries["unmatched"] = np.add.reduceat((marks & MATCHED) == 0, bounds[:-1], dtype=np.int32)
        if TIME in self.schema.names:
            times = page_times(bounds, stored.column(TIME).to_numpy())
            entries["least"], entries["most"], entries["median"] = times
        self._write(data, entries)

    def _order(self, low: Array, high: Array, marks: Array) -> tuple[Array | None, Array]:
        """In which order tuples are written, unless it is that of their lower ends; and their classes.

        Pages hold tuples of one class: with intervals of about the same length, their keys reach no further
        than need be.
        """
        keyless = (marks & KEYLESS) > 0
        classes = np.zeros(len(low), np.uint8) if self._are_points else length_classes(low, high)
        classes[keyless] = _KEYLESS_CLASS
        if (classes == classes[0]).all():
            return None, classes
        order = np.argsort(classes, kind="stable")
        return order, classes[order]

    def _with_ends(self, stored: pa.RecordBatch, low: Array, high: Array) -> pa.RecordBatch:
        ends = [low] if self._are_points else [low, high]
        return pa.RecordBatch.from_arrays([*map(pa.array, ends), *stored.columns], schema=self.schema)

    def _sealed(self, rows: pa.RecordBatch, bounds: Array, sizes: Array, marks: Array) -> tuple[Array, Array]:
        """The bytes of pages, and their entries without places and keys."""
        begins, counts = bounds[:-1], np.diff(bounds)
        limits = _whole_blocks(sizes + self._overhead)
        messages = [
            message_of(rows.slice(begin, count), limit)
            for begin, count, limit in zip(begins.tolist(), counts.tolist(), limits.tolist(), strict=True)
        ]
        used = np.array([message.size for message in messages], np.int64)
        lengths = _whole_blocks(used + counts)
        ends = np.cumsum(lengths)
        data = np.zeros(int(ends[-1]), np.uint8)
        target = data.data.cast("b")  # the format of Arrow buffers
        for message, begin in zip(messages, (ends - lengths).tolist(), strict=True):
            target[begin : begin + message.size] = message
        at = np.repeat(ends - np.cumsum(counts), counts) + np.arange(len(marks))
        data[at] = marks
        entries = np.zeros(len(messages), self.directory.entry)
        entries["length"], entries["message"], entries["rows"] = lengths, used, counts
        entries["checksum"] = hash_ranges(data, ends - lengths, ends - lengths + used)
        return data, entries

    def _note_keys(self, entries: Array, bounds: Array, low: Array, high: Array, classes: Array) -> None:
        entries["low"] = low[bounds[:-1]]
        entries["reach"] = np.maximum.reduceat(high, bounds[:-1])
        keyless = classes[bounds[:-1]] == _KEYLESS_CLASS
        entries["low"][keyless], entries["reach"][keyless] = GREATEST, LEAST
        if self.has_filters:
            filters = np.zeros((len(entries), FILTER_WORDS), np.uint64)
            fill_filters(bounds, low, filters)
            entries["filter"] = filters

    def mark(self) -> "Mark":
        """The state to which `undo` returns."""
        return Mark(len(self.directory), self.rows, self.unmatched, self.segments.mark())

    def undo(self, mark: "Mark") -> None:
        """Forget all pages that were written after this mark; none may have been dropped since."""
        self.directory.cut(mark.entries)
        self.rows, self.unmatched = mark.rows, mark.unmatched
        self.segments.undo(mark.segments)

    def _write(self, data: Array, entries: Array) -> None:
        """Write pages where there is room, and note them in the directory."""
        mark, most = self.mark(), self.directory.chunk_entries
        try:
            entries["place"] = self.segments.take(entries["length"])
            self._write_pages(data, entries)
            for begin in range(0, len(entries), most):
                self.directory.make_room(len(entries[begin : begin + most]))
                self.directory.append(entries[begin : begin + most])
        except BaseException:
            self.undo(mark)
            raise
        self.rows += int(entries["rows"].sum())
        self.unmatched += int(entries["unmatched"].sum())
        self.least_time = min(self.least_time, int(entries["least"].min()))

    def _write_pages(self, data: Array, entries: Array) -> None:
        ends = entries["place"] + entries["length"]
        first = np.flatnonzero(np.append(True, entries["place"][1:] != ends[:-1]))
        sizes = np.add.reduceat(entries["length"].astype(np.int64), first)
        begin = 0
        for place, size in zip(entries["place"][first].tolist(), sizes.tolist(), strict=True):
            self._file.write(place, data[begin : begin + size])
            begin += size

    # Reading.

    def waves(self, entries: Array, wanted: Array) -> Iterator[Array]:
        """The wanted entries, by number, in the order of their places, as many at a time as can be read."""
        order = wanted[np.argsort(entries["place"][wanted], kind="stable")]
        ends = np.cumsum(entries["length"][order], dtype=np.int64)
        begin = 0
        while begin < len(order):
            before = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, before + self.landing.most_bytes, "right"))
            yield order[begin:end]
            begin = end

    def read(self, entries: Array) -> Loaded:
        """Read the pages of a wave."""
        return self.landing.read(self.side, self._file, entries)

    def write_marks(self, entries: Array, loaded: Loaded, slots: Array) -> None:
        """Write the marks of the pages in these slots back; their entries are those of the wave.

        Raises:
            StorageError: The disk cannot be written; the call can be repeated.
        """
        some = entries[slots]
        rows = some["rows"].astype(np.int64)
        places = some["place"] + some["length"] - rows
        done = write_pieces(self._file.descriptor, loaded.arena, loaded.marks[slots], places, rows)
        if done < len(slots):
            raise StorageError("cannot write to the file of spilled pages: the device failed, or is full")
        if self.landing.is_simulated:
            for place, count in zip(places.tolist(), rows.tolist(), strict=True):
                self._file.spend(place, place + count)

    # Snapshots.

    def dump(self, most_bytes: int) -> Iterator[bytes]:
        """All pages with their entries, about `most_bytes` at a time."""
        for _, entries in self.directory.scan():
            there = entries[entries["rows"] > 0]
            for begin, end in portions(there["length"], most_bytes):
                some = there[begin:end]
                yield len(some).to_bytes(8, "little") + some.tobytes() + self._bytes_of(some)

    def _bytes_of(self, entries: Array) -> bytes:
        ends = np.cumsum(entries["length"], dtype=np.int64)
        data = np.empty(int(ends[-1]), np.uint8)
        for end, entry in zip(ends.tolist(), entries, strict=True):
            self._file.fill(int(entry["place"]), data[end - int(entry["length"]) : end])
        return data.tobytes()

    def load(self, dumped: bytes) -> None:
        """Append pages that `dump` returned.

        Raises:
            CorruptionError: They are not the ones that were written.
        """
        count = int.from_bytes(dumped[:8], "little")
        entries = np.frombuffer(dumped, self.directory.entry, count, 8).copy()
        data = np.frombuffer(dumped, np.uint8, offset=8 + entries.nbytes)
        begins = np.cumsum(entries["length"], dtype=np.int64) - entries["length"]
        checksums = hash_ranges(data, begins, begins + entries["message"])
        if not (checksums == entries["checksum"]).all():
            raise CorruptionError("a page of the snapshot is damaged; take an older one")
        self._write(data, entries)

    # Pages that are gone.

    def drop(self, entries: Array, chosen: Array) -> None:
        """These pages, given by the numbers of their entries in a chunk, are gone."""
        self.rows -= int(entries["rows"][chosen].sum())
        self.unmatched -= int(entries["unmatched"][chosen].sum())
        self.segments.release(entries["place"][chosen], entries["length"][chosen])
        entries["rows"][chosen] = entries["unmatched"][chosen] = 0

    def note_matches(self, entries: Array, chosen: Array, counts: Array) -> None:
        """Tuples of these pages had their first match, or have been returned without one."""
        entries["unmatched"][chosen] -= counts.astype(np.int32)
        self.unmatched -= int(counts.sum())

    def cut(self) -> None:
        """Release the disk space behind the last page."""
        self._file.cut(self.segments.end)

    def close(self) -> None:
        """Release the disk space of the directory."""
        self.directory.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if directory and file contradict each other."""
        self.directory.check_invariants()
        entries = [entries[entries["rows"] > 0] for _, entries in self.directory.scan()]
        there = np.concatenate([np.empty(0, self.directory.entry), *entries])
        assert self.rows == there["rows"].sum()
        assert self.unmatched == there["unmatched"].sum()
        assert (there["unmatched"] <= there["rows"]).all()
        assert (there["unmatched"] >= 0).all()
        self.segments.check_invariants(there["place"], there["length"].astype(np.int64))


class Mark(NamedTuple):
    """The state of pages before some were written."""

    entries: int
    rows: int
    unmatched: int
    segments: tuple[Array, int, int]


def _whole_blocks(sizes: Array) -> Array:
    return -(-sizes // BLOCK_BYTES) * BLOCK_BYTES
