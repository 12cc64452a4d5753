"""Where the tuples of both inputs are: in memory as far as one budget allows, the others in sorted pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import message_overhead, row_bytes
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import Leaving
from adjoin.streamjoin.base.sizes import ReactiveMemory
from adjoin.streamjoin.base.storage import Storage, Written
from adjoin.streamjoin.complete.directory import ENTRY, FILTERED, PageDirectory
from adjoin.streamjoin.complete.landing import Landing
from adjoin.streamjoin.complete.match_log import MatchLog
from adjoin.streamjoin.complete.pages import Pages, page_schema
from adjoin.streamjoin.complete.space import Segments
from adjoin.streamjoin.complete.spec import CompleteInputs
from adjoin.streamjoin.complete.time_bound import GREATEST, LEAST
from adjoin.streamjoin.disk.spill_file import SpillFile
from adjoin.streamjoin.memory.tuples import TIME, tuple_schema

PAGE_BYTES = 8192
CHUNK_ROW_BYTES = 96
"""Of an arriving row: key interval, place, time, size, mark, and what sorting takes."""
_CHUNK_SHARES = 2
_LEAST_SEGMENT_BYTES = 128 << 10
_SEGMENT_SHARE = 1 / 64
_PAGES, _MATCHES = b"p", b"m"
"""Kinds of values in a snapshot."""


@dataclass(frozen=True)
class PageMemory(ReactiveMemory):
    """What a join keeps in memory to join arriving rows with pages.

    The size of outer blocks is that of the landing; rows that are joined together take twice as much, and the
    directories the same.

    Attributes:
        schemas: The columns of the pages of each side.
    """

    share: ClassVar[float] = 1 / 16

    schemas: tuple[pa.Schema, ...] = ()

    def bytes(self, max_outer: int, slot_bytes: int, block_rows: int) -> int:  # noqa: ARG002
        """In total."""
        part = max_outer * slot_bytes
        directories = max(part, 2 * PageDirectory.least_bytes())
        return Landing.bytes_of(self.schemas, part, slot_bytes) + _CHUNK_SHARES * part + directories


class PagedStorage(Storage):
    """The tuples of both inputs in one budget: in memory, indexed by key, and in sorted pages on disk.

    Args:
        spec: The join.
        options: How much memory there is, and where pages go.

    Attributes:
        pages: The pages of each input (Disk_i).
        landing: Where pages are read to.
        chunk_rows: How many arriving rows are joined together.
        matches: Of each side, the rows that had their first match.
        least_times: No tuple of an input that is in memory has a smaller time.
    """

    def __init__(self, spec: CompleteInputs, options: SpillOptions) -> None:
        are_points = [points[0] for points in spec.are_points]
        schemas = tuple(
            page_schema(tuple_schema(stored), are_points=points)
            for stored, points in zip(spec.stored, are_points, strict=True)
        )
        super().__init__(spec, options, PageMemory(schemas=schemas))
        sizes = self.sizes
        part = sizes.max_outer * sizes.slot_bytes
        self.landing = Landing(schemas, part, sizes.slot_bytes, options.disk, self.counters)
        self.chunk_rows = max(1, _CHUNK_SHARES * part // CHUNK_ROW_BYTES)
        segment_bytes = max(_LEAST_SEGMENT_BYTES, sizes.slot_bytes, int(sizes.total_bytes * _SEGMENT_SHARE))
        directory_bytes = max(part // 2, PageDirectory.least_bytes())
        entry = FILTERED if spec.condition.is_equality else ENTRY
        self.pages: Sequence[Pages] = [
            Pages(
                side,
                schema,
                min(max(PAGE_BYTES, 4 * message_overhead(schema)), sizes.slot_bytes),
                self.files[side],
                PageDirectory(directory_bytes, partial(SpillFile, options.folder), entry),
                Segments(segment_bytes // 4096 * 4096),
                self.landing,
            )
            for side, schema in enumerate(schemas)
        ]
        self.matches = tuple(
            MatchLog(sizes.task_bytes // 2, partial(SpillFile, options.folder)) for _ in self.pages
        )
        self.has_time = spec.bound is not None
        self.least_times = [GREATEST, GREATEST]
        self.notes.extend(self.pages)
        self.reserve_for_reactive_phases(has_flushed=False)

    @property
    def disk_bytes(self) -> int:
        """Size of all files."""
        return sum(pages.disk_bytes for pages in self.pages) + sum(log.file_bytes for log in self.matches)

    def write(self, leaving: Leaving) -> Written:
        """Move tuples from memory to disk, as pages.

        Raises:
            StorageError: The disk is full; nothing has changed.
        """
        side = leaving.side
        tuples, pages = self.inputs[side], self.pages[side]
        place, low, high, marks = tuples.index.states(leaving.entries)
        rows = tuples.rows_at(place)
        mark = pages.mark()
        try:
            for begin, end in self.page_portions(side, rows):
                part = slice(begin, end)
                pages.append(rows.slice(begin, end - begin), low[part], high[part], marks[part])
        except BaseException:
            pages.undo(mark)
            raise
        tuples.remove([leaving.entries])
        self.counters.blocks_flushed += 1
        while self._is_over() and self._move_together():
            continue
        self.account()
        return Written([low], range(0))

    def page_portions(self, side: int, rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
        """Ranges begin..end-1 of tuples that are written at a time."""
        return self.blockfuls(side, row_bytes(rows))

    # Snapshots.

    def dump_spilled(self, side: int) -> Iterator[bytes]:
        """What is on disk of a side, and which rows had their first match, as values of limited size."""
        for value in self.pages[side].dump(self.sizes.slot_bytes):
            yield _PAGES + value
        log = self.matches[side]
        if log.has_started:
            yield _MATCHES + log.numbers().tobytes()

    def load_spilled(self, side: int, value: bytes) -> None:
        """Restore what `dump_spilled` returned."""
        kind, rest = value[:1], value[1:]
        if kind == _PAGES:
            self.pages[side].load(rest)
        else:
            self.matches[side].start()
            self.matches[side].add(np.frombuffer(rest, np.int64))
        self.least_times = [LEAST, LEAST]

    def note_times(self, side: int, stored: pa.RecordBatch) -> None:
        """These tuples will be kept in memory."""
        if self.has_time and stored.num_rows:
            least = int(np.min(stored.column(TIME).to_numpy()))
            self.least_times[side] = min(self.least_times[side], least)

    def close(self) -> None:
        """Release files and memory."""
        for pages in self.pages:
            pages.close()
        for log in self.matches:
            log.close()
        self.landing.close()
        super().close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        super().check_invariants()
        for pages in self.pages:
            pages.check_invariants()
