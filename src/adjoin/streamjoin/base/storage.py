"""Where the tuples of all inputs are: in memory as far as one budget allows, the others on disk."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import compact
from adjoin.arrow.row_sizes import row_bytes
from adjoin.kernels.types import Array
from adjoin.memory.budget import MemoryBudget
from adjoin.memory.row_slots import RowSlots
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.contract import Counters, SpillOptions
from adjoin.streamjoin.base.parts import JoinSpec, Leaving, Shortage
from adjoin.streamjoin.base.sizes import INPUT_SHARE, MemoryPlan, ReactiveMemory
from adjoin.streamjoin.disk.blocks import Block, Blocks
from adjoin.streamjoin.disk.spill_file import Directory, DiskTime, SpillFile
from adjoin.streamjoin.memory.tuples import MemoryTuples, tuple_schema


class Moments:
    """Timestamps (ATS and DTS): numbers that only grow, so that no two events share one.

    Attributes:
        now: The next moment.
    """

    def __init__(self) -> None:
        self.now = 0

    def next(self) -> int:
        """A moment after all others."""
        return self.many(1)

    def many(self, count: int) -> int:
        """The first of `count` consecutive moments."""
        first = self.now
        self.now += count
        return first


class BlockReader:
    """Reads blocks of all inputs, and counts what it reads.

    Args:
        blocks: The blocks of each input.
        counters: Count the reads.
    """

    def __init__(self, blocks: Sequence[Blocks], counters: Counters) -> None:
        self.blocks = blocks
        self._counters = counters
        self._read_last = 0, -1

    def read(self, side: int, number: int) -> tuple[Block, pa.RecordBatch]:
        """A block and its rows."""
        block = self.blocks[side].read(number)
        self._count(side, number)
        return block

    def read_into(self, side: int, number: int, slots: RowSlots, slot: int) -> Block:
        """Read a block into a slot."""
        block = self.blocks[side].read_into(number, slots, slot)
        self._count(side, number)
        return block

    def _count(self, side: int, number: int) -> None:
        """A read seeks unless it follows the one before."""
        self._counters.pages_read += 1
        self._counters.seeks += self._read_last != (side, number - 1)
        self._counters.bytes_read += self.blocks[side].bytes_of(number)
        self._read_last = side, number


class Written(NamedTuple):
    """Tuples that have gone to disk: their keys of each join attribute, and their blocks."""

    keys: Sequence[Array]
    blocks: range


class Notes(Protocol):
    """Something that takes the memory of tuples."""

    @property
    def held_bytes(self) -> int:
        """How much it takes now."""


class Storage:
    """The tuples of all inputs in one budget: in memory, indexed by key, and in sorted blocks on disk.

    Args:
        spec: The join.
        options: How much memory there is, and where blocks go.
        reactive_memory: What a reactive phase keeps in memory.

    Attributes:
        options: The options.
        budget: The memory of the operator; the account "tuples" is kept here.
        plan: How any amount of memory is divided.
        sizes: How this budget is divided.
        inputs: The tuples of each input that are in memory (Index_i).
        blocks: Those that are on disk (Disk_i).
        files: The files of the blocks.
        reader: Reads blocks.
        moments: Timestamps.
        counters: What has happened so far.
        input_bytes: Memory reserved for rows that arrive while the operator works; 0 until there are any.
        notes: What else takes the memory of tuples.
    """

    def __init__(
        self, spec: JoinSpec, options: SpillOptions, reactive_memory: ReactiveMemory | None = None
    ) -> None:
        self.options = options
        self.budget = MemoryBudget(options.memory_bytes)
        schemas = spec.stored
        self.plan = MemoryPlan(
            schemas,
            spec.are_points,
            reactive_memory or ReactiveMemory(),
            options.outer_blocks,
            options.block_bytes,
        )
        self.sizes = sizes = self.plan.of(self.budget.total_bytes)
        sizes.reserve(self.budget)
        self.inputs = tuple(
            MemoryTuples(
                tuple_schema(schema), are_points=points, slots=sizes.slots, slot_bytes=sizes.slot_bytes
            )
            for schema, points in zip(schemas, spec.are_points, strict=True)
        )
        disk_time = DiskTime(options.clock, options.disk)
        self.files = tuple(
            SpillFile(options.folder, partial(disk_time.spend, side)) for side in range(len(schemas))
        )
        self.blocks = tuple(
            Blocks(
                tuples.schema,
                are_points=points[0],
                most_bytes=sizes.slot_bytes,
                file=file,
                directory=Directory(
                    sizes.directory_chunks,
                    partial(SpillFile, options.folder, partial(disk_time.spend, -1 - side)),
                ),
            )
            for side, (tuples, points, file) in enumerate(
                zip(self.inputs, spec.are_points, self.files, strict=True)
            )
        )
        self.counters = Counters()
        self.reader = BlockReader(self.blocks, self.counters)
        self.moments = Moments()
        self.input_bytes = 0
        self.notes: list[Notes] = []
        self._reloaded: list[MemoryTuples] = []
        self.account()

    def reloaded_tuples(self, schema: pa.Schema, *, are_points: Sequence[bool], slots: int) -> MemoryTuples:
        """Room for tuples that come back from disk; it is released with the storage."""
        tuples = MemoryTuples(schema, are_points=are_points, slots=slots, slot_bytes=self.sizes.slot_bytes)
        self._reloaded.append(tuples)
        return tuples

    # Tuples and blocks.

    @property
    def has_tuples(self) -> bool:
        """Whether any tuple is in memory."""
        return any(map(len, self.inputs))

    @property
    def has_blocks(self) -> bool:
        """Whether any block has been written."""
        return any(map(len, self.blocks))

    def stamped(self, side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as tuples, each with the moment of its arrival."""
        arrived = self.moments.many(rows.num_rows) + np.arange(rows.num_rows)
        return self.inputs[side].stored(rows, arrived)

    def blockfuls(self, side: int, sizes: Array) -> Iterator[tuple[int, int]]:
        """Ranges begin..end-1 of tuples of these sizes, each of which fits in a block."""
        return portions(sizes + self.blocks[side].key_bytes, self.inputs[side].slots.room_bytes)

    def block_rows(self, side: int) -> int:
        """About how many tuples of a side make a block."""
        return self.inputs[side].rows_of_a_slot(self.blocks[side].key_bytes)

    def shortage(self, has_ended: Sequence[bool]) -> Shortage:
        """What a flush policy chooses from.

        Args:
            has_ended: Whether each input has. Once a single one is left, no arrival will probe its tuples.
        """
        rows = [self.block_rows(side) for side in range(len(self.inputs))]
        coming = [side for side, ended in enumerate(has_ended) if not ended]
        is_unprobed = len(coming) == 1 and len(self.inputs[coming[0]]) > 0
        return Shortage(self.inputs, rows, coming[0] if is_unprobed else None)

    def write(self, leaving: Leaving) -> Written:
        """Move tuples from memory to disk, in as many blocks as they need.

        Raises:
            StorageError: The disk is full; nothing has changed.
        """
        side = leaving.side
        tuples, blocks = self.inputs[side], self.blocks[side]
        entries = tuples.everywhere(leaving.attribute, leaving.entries)
        place, low, high = tuples.index.places(entries[0])
        keys = [low, *(index.keys(some) for index, some in zip(tuples.indexes[1:], entries[1:], strict=True))]
        rows = tuples.rows_at(place)
        before, mark = len(blocks), blocks.mark()
        try:
            for begin, end in self.blockfuls(side, row_bytes(rows)):
                part = compact(rows.slice(begin, end - begin))
                blocks.append(part, low[begin:end], high[begin:end], self.moments.next())
        except BaseException:
            blocks.undo(mark)
            raise
        tuples.remove(entries)
        self.counters.blocks_flushed += len(blocks) - before
        while self._is_over() and self._move_together():
            continue
        self.account()
        return Written(keys, range(before, len(blocks)))

    def close_up(self) -> bool:
        """Whether a slot was freed by moving its tuples to where others have left."""
        done = self._move_together()
        self.account()
        return done

    def _move_together(self) -> bool:
        return any(tuples.close_up() for tuples in sorted(self.inputs, key=len, reverse=True))

    def dump_spilled(self, side: int) -> Iterator[bytes]:
        """What is on disk of an input, as values none of which is much larger than a block."""
        blocks = self.blocks[side]
        return (blocks.dump(number) for number in range(len(blocks)))

    def load_spilled(self, side: int, value: bytes) -> None:
        """Restore what `dump_spilled` returned."""
        self.blocks[side].load(value)

    # The account.

    def account(self) -> None:
        """Tell the budget what is held now."""
        self.budget.set("tuples", self._held_bytes())

    def _held_bytes(self) -> int:
        held = sum(tuples.held_bytes for tuples in self.inputs)
        held += sum(notes.held_bytes for notes in self.notes)
        return held + max(tuples.merge_bytes for tuples in self.inputs)

    def _is_over(self) -> bool:
        """Whether the record of holes needs more memory than there is, until slots are emptied."""
        return self._held_bytes() - self.budget.account("tuples") > self.budget.free_bytes

    def has_room(self, side: int, sizes: Array) -> bool:
        """Whether tuples of these sizes can be added to memory without flushing others."""
        return not self.lacks(self.inputs[side].new_bytes(sizes))

    def lacks(self, more_bytes: int) -> bool:
        """Whether there is not that much memory left for tuples."""
        return more_bytes + self._spare_bytes + self._unused_input_bytes > self.budget.free_bytes

    @property
    def _spare_bytes(self) -> int:
        """Always kept free: a slot, without which tuples cannot be moved together."""
        return self.sizes.slot_bytes

    @property
    def _unused_input_bytes(self) -> int:
        """The rest of the memory reserved for rows that arrive while the operator works."""
        return max(0, self.input_bytes - self.budget.account("input"))

    def reserve_for_input(self) -> None:
        """From now on a share of the memory is for rows that arrive while the operator works."""
        self.input_bytes = int(self.budget.total_bytes * INPUT_SHARE)

    def takes_input(self, new_bytes: int) -> bool:
        """Whether rows of this size fit in the input buffer; if so, they are accounted."""
        room_bytes = min(self._unused_input_bytes, self.budget.free_bytes - self._spare_bytes)
        if new_bytes <= room_bytes:
            self.budget.add("input", new_bytes)
        return new_bytes <= room_bytes

    @property
    def missing_reactive_bytes(self) -> int:
        """What has yet to be set aside for reactive phases; nothing once there was one."""
        return self.sizes.reactive_bytes - self.budget.account("reactive")

    def reserve_for_reactive_phases(self, *, has_flushed: bool) -> None:
        """Set memory aside for reactive phases: all of it, or after a flush as much as there is."""
        more_bytes = self.missing_reactive_bytes
        if has_flushed:
            spare_bytes = self.budget.free_bytes - self._spare_bytes - self._unused_input_bytes
            more_bytes = min(more_bytes, max(spare_bytes, 0))
        self.budget.add("reactive", more_bytes)

    def close(self) -> None:
        """Release files and memory."""
        for file, blocks in zip(self.files, self.blocks, strict=True):
            file.close()
            blocks.close()
        for tuples in (*self.inputs, *self._reloaded):
            tuples.slots.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self.budget.check_invariants()
        for tuples, blocks in zip(self.inputs, self.blocks, strict=True):
            tuples.check_invariants()
            blocks.check_invariants()
        assert self.budget.account("tuples") >= self._held_bytes()
