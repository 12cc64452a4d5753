"""Reads pages along a plan into an arena, each one verified."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.pages import PAGE_DAMAGED, READ_FAILED, Reads
from adjoin.kernels.types import Array
from adjoin.master.device import Cost, Device, ReadJob
from adjoin.master.index import PageIndex
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES, Arena
from adjoin.memory.page_columns import PageColumns
from adjoin.operators.read_plan import ReadPlan

_FILE_GAP_BLOCKS = 1 << 33
"""Longer than any scan, so that no plan reaches from one file into the next."""

_MOST_OPEN_FILES = 200


@dataclass
class ReadCounts:
    pages_read: int = 0
    seeks: int = 0
    bytes_read: int = 0


class _OpenFiles:
    """Open files by number; closed once neither the reader nor a read in flight refers to this object."""

    def __init__(self) -> None:
        self.descriptors: dict[int, int] = {}
        weakref.finalize(self, _close, self.descriptors, frozenset())

    def close_all_but(self, files: frozenset[int]) -> None:
        _close(self.descriptors, files)


def _close(descriptors: dict[int, int], files: frozenset[int]) -> None:
    for file in descriptors.keys() - files:
        os.close(descriptors.pop(file))


class PageReader:
    """Reads pages of a master version into slots.

    Args:
        master: The version.
        arena: Where pages go.
        columns: Where the buffers of each page are.
        device: What the files are stored on.
    """

    def __init__(self, master: Master, arena: Arena, columns: PageColumns, device: Device) -> None:
        self._files = master.files
        self._layouts = np.array([file.layout for file in master.files], np.int64)
        self._arena = arena
        self._columns = columns
        self._device = device
        self._open = _OpenFiles()
        self._unfinished: list[Callable[[], object]] = []
        self._in_flight: frozenset[int] = frozenset()
        self.counts = ReadCounts()
        self.cost: Cost = device.cost([file.path for file in self._files])

    @staticmethod
    def position(entries: PageIndex) -> Array:
        """Where pages begin, in blocks; pages of one file have the same distances as on disk."""
        return entries.file.astype(np.int64) * _FILE_GAP_BLOCKS + entries.block

    def layouts_of(self, entries: PageIndex) -> Array:
        """The layout of each page."""
        return self._layouts[entries.file]

    def start(
        self, pages: Array, entries: PageIndex, slots: Array, plan: ReadPlan, begin: int, end: int
    ) -> Callable[[], None]:
        """Start to read the scans begin..end-1 of a plan; the returned function waits for them.

        Args:
            pages: The pages of these scans, in disk order.
            entries: Their entries in the index.
            slots: The slot that each is read into.
            plan: The plan; its positions are relative to its own first page, not to `pages`.
            begin: The first scan.
            end: The last scan + 1.
        """
        offset = plan.first[begin]
        first = plan.first[begin:end] - offset
        last = plan.last[begin:end] - offset
        blocks = int(plan.blocks[begin:end].sum())
        positionings = end - begin - int(np.count_nonzero(plan.goes_on[begin:end]))
        reads = Reads(
            descriptor=self._descriptors_of(entries.file),
            offset=entries.block.astype(np.int64) * BLOCK_BYTES,
            length=entries.blocks.astype(np.int64) * BLOCK_BYTES,
            checksum=entries.checksum,
            slot=slots,
            slot_base=self._arena.slot_base,
            arena=self._arena.bytes,
            words=self._arena.words,
            scratch_bytes=self._arena.scratch_bytes,
            layout=self.layouts_of(entries),
            wanted=self._columns.wanted,
            offsets=self._columns.offsets,
            rows=self._columns.rows,
        )
        wait = self._device.start(ReadJob(first, last, reads, end - begin, positionings, blocks, self._open))
        self._unfinished.append(wait)

        def finish() -> None:
            statuses = wait()
            self._unfinished.remove(wait)
            for status, page in statuses:
                if status == READ_FAILED:
                    self._raise_read_failure(int(pages[page]), entries, page)
                if status == PAGE_DAMAGED:
                    self._raise_damage(int(pages[page]), entries, page)
            self.counts.pages_read += len(pages)
            self.counts.seeks += positionings
            self.counts.bytes_read += blocks * BLOCK_BYTES

        return finish

    def close(self) -> None:
        """Wait for reads in flight, then close the files."""
        for wait in self._unfinished:
            wait()
        self._open.close_all_but(frozenset())

    def _descriptors_of(self, files: Array) -> Array:
        """The open file of each page; closes files that no read in flight needs when too many are open."""
        needed = frozenset(np.unique(files).tolist())
        descriptors = self._open.descriptors
        if len(descriptors) > _MOST_OPEN_FILES:
            self._open.close_all_but(needed | self._in_flight)
        table = np.full(len(self._files), -1, np.int32)
        for file in needed:
            if file not in descriptors:
                descriptors[file] = self._device.open(self._files[file].path)
            table[file] = descriptors[file]
        self._in_flight = needed
        return table[files]

    def place(self, page: int, entries: PageIndex, at: int) -> str:
        """Where the page is, whose entry is `entries[at]`."""
        file = self._files[entries.file[at]]
        return f"{file.path}, page {page} at byte {int(entries.block[at]) * BLOCK_BYTES}"

    def _raise_read_failure(self, page: int, entries: PageIndex, at: int) -> None:
        file = self._files[entries.file[at]]
        size = os.path.getsize(file.path)
        if size < file.bytes:
            raise CorruptionError(
                f"{self.place(page, entries, at)} or a page after it is cut off: {size} of {file.bytes} "
                "bytes are left; restore the file or rebuild the master"
            )
        raise StorageError(f"cannot read {self.place(page, entries, at)}: the device failed")

    def _raise_damage(self, page: int, entries: PageIndex, at: int) -> None:
        raise CorruptionError(
            f"{self.place(page, entries, at)} is damaged (its checksum differs); restore the file or "
            "rebuild the master"
        )
