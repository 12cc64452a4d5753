"""The memory into which pages of spilled tuples are read, where they are joined undecoded."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from adjoin.arrow.row_sizes import metadata_bytes
from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.gather import SOUND
from adjoin.kernels.pages import READ, Reads, read_scans
from adjoin.kernels.spilled import Loaded, find_damaged_page
from adjoin.kernels.types import Array
from adjoin.master.device import Cost
from adjoin.memory.arena import BLOCK_BYTES, Arena
from adjoin.memory.mapped_file import whole_blocks
from adjoin.memory.page_columns import PageColumns, columns_of
from adjoin.operators.read_plan import make_plan
from adjoin.streamjoin.base.contract import Counters
from adjoin.streamjoin.disk.spill_file import SpillFile
from adjoin.streamjoin.memory.tuples import TIME

LOW, HIGH = "_adjoin_low", "_adjoin_high"
"""The columns of a page with the ends of key intervals; `HIGH` is left out where they are single keys."""
SCRATCH_BYTES = 1 << 14
"""For bytes between two wanted pages of a scan."""
_CACHED = Cost(positioning_seconds=2e-6, block_seconds=0.5e-6)
"""What it costs to read blocks from the system's page cache."""
_MOST_SCAN_PAGES = 1 << 20


class PageRows:
    """The tuples of one side in the pages that have been read.

    Args:
        schema: The columns of a page.
        arena: Where pages are read to.

    Attributes:
        schema: The columns of a page.
        layout: Their buffers.
        columns: Where the buffers are in each slot.
    """

    def __init__(self, schema: pa.Schema, arena: Arena) -> None:
        self.schema = schema
        self.layout = columns_of(schema)
        self.columns = PageColumns(arena, self.layout)

    def offset(self, name: str) -> Array:
        """Where a column of fixed width begins in each slot; empty if pages lack it."""
        if name not in self.schema.names:
            return np.empty(0, np.int32)
        return self.columns.offset(self.layout[self.schema.names.index(name)].buffers[1])


class Landing:
    """Memory for pages that are read together, one after the other, whatever their lengths.

    Args:
        schemas: The columns of the pages of each side.
        most_bytes: How many bytes of pages are read at a time.
        room_bytes: Size of the largest page.
        disk: What reading costs; None: what the page cache costs.
        counters: Count the reads.

    Attributes:
        most_bytes: How many bytes of pages are read at a time.
        room_bytes: Size of the largest page.
        is_simulated: Whether reading and writing take their time on a simulated clock.
        sides: The tuples in the pages that have been read last, by side.
    """

    def __init__(
        self,
        schemas: Sequence[pa.Schema],
        most_bytes: int,
        room_bytes: int,
        disk: Cost | None,
        counters: Counters,
    ) -> None:
        assert most_bytes >= room_bytes
        self.most_bytes = most_bytes
        self.room_bytes = room_bytes
        # Behind the last page there is room for a whole one, so that no kernel leaves the arena.
        slots = self._slots_of(schemas, most_bytes + room_bytes)
        self._arena = Arena(slots, 0, self._least_page_bytes(schemas), 0, SCRATCH_BYTES)
        self._arena.rooms[:] = room_bytes
        self.sides = tuple(PageRows(schema, self._arena) for schema in schemas)
        self.is_simulated = disk is not None
        self._cost = disk or _CACHED
        self._counters = counters

    @staticmethod
    def _least_page_bytes(schemas: Sequence[pa.Schema]) -> int:
        return min(whole_blocks(metadata_bytes(schema)) for schema in schemas)

    @staticmethod
    def _slots_of(schemas: Sequence[pa.Schema], size: int) -> int:
        """The most pages that take this many bytes."""
        return -(-size // Landing._least_page_bytes(schemas))

    @staticmethod
    def bytes_of(schemas: Sequence[pa.Schema], most_bytes: int, room_bytes: int) -> int:
        """The memory that it takes, with its notes."""
        slots = Landing._slots_of(schemas, most_bytes + room_bytes) + 1
        notes = Arena.bookkeeping_bytes + sum(
            PageColumns.bytes_per_slot(columns_of(schema)) for schema in schemas
        )
        return most_bytes + SCRATCH_BYTES + slots * notes

    @property
    def arena_bytes(self) -> Array:
        """All bytes of the memory."""
        return self._arena.bytes

    def read(self, side: int, file: SpillFile, entries: Array) -> Loaded:
        """Read pages, given by their entries in the order of their places, into the first slots.

        Raises:
            StorageError: The disk cannot be read.
            CorruptionError: A page is not the one that was written.
        """
        count, arena, columns = len(entries), self._arena, self.sides[side].columns
        lengths = entries["length"].astype(np.int64)
        base = SCRATCH_BYTES + np.cumsum(lengths) - lengths
        arena.slot_base[:count] = base
        reads = Reads(
            descriptor=np.full(count, file.descriptor, np.int32),
            offset=np.ascontiguousarray(entries["place"]),
            length=lengths,
            checksum=np.empty(0, np.uint64),
            slot=np.arange(count, dtype=np.int32),
            slot_base=arena.slot_base,
            arena=arena.bytes,
            words=arena.words,
            scratch_bytes=arena.scratch_bytes,
            layout=np.zeros(count, np.int64),
            wanted=columns.wanted,
            offsets=columns.offsets,
            rows=columns.rows,
        )
        self._read_along_plan(file, reads)
        loaded = self._loaded(side, entries, base + lengths)
        messages, checksums, rows = (
            np.ascontiguousarray(entries[name]) for name in ("message", "checksum", "rows")
        )
        damaged = find_damaged_page(
            loaded, messages, checksums, self.room_bytes, columns.wanted[0], columns.offsets, rows
        )
        if damaged != SOUND:
            place = int(entries["place"][damaged])
            raise CorruptionError(f"a spilled page at byte {place} is damaged; join the inputs again")
        return loaded

    def _read_along_plan(self, file: SpillFile, reads: Reads) -> None:
        start, blocks = reads.offset // BLOCK_BYTES, reads.length // BLOCK_BYTES
        cost = self._cost
        plan = make_plan(
            start, blocks, cost.positioning_seconds, cost.block_seconds, 1 << 40, _MOST_SCAN_PAGES
        )
        status, page = read_scans(plan.first, plan.last, 0, len(plan), reads)
        if status != READ:
            place = int(reads.offset[page])
            if int(reads.offset[-1] + reads.length[-1]) > file.actual_bytes:
                raise CorruptionError(
                    f"a spilled page at byte {place} or a later one was cut off; join the inputs again"
                )
            raise StorageError(f"cannot read a spilled page at byte {place}: the device failed")
        if self.is_simulated:
            for first, length in zip(plan.first.tolist(), plan.blocks.tolist(), strict=True):
                begin = int(reads.offset[first])
                file.spend(begin, begin + int(length) * BLOCK_BYTES)
        self._counters.pages_read += len(reads.offset)
        self._counters.seeks += len(plan)
        self._counters.bytes_read += int(plan.blocks.sum()) * BLOCK_BYTES

    def _loaded(self, side: int, entries: Array, ends: Array) -> Loaded:
        rows, arena = self.sides[side], self._arena
        return Loaded(
            arena=arena.bytes,
            words=arena.words,
            base=arena.slot_base,
            low=rows.offset(LOW),
            high=rows.offset(HIGH),
            time=rows.offset(TIME),
            rows=rows.columns.rows,
            least=np.ascontiguousarray(entries["least"]),
            marks=ends - entries["rows"],
        )

    def close(self) -> None:
        """Release the memory."""
        self._arena.close()
        for side in self.sides:
            side.columns.close()
