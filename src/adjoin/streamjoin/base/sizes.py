"""How the memory of a join that spills is divided."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from adjoin.arrow.row_sizes import message_overhead
from adjoin.errors import BudgetError
from adjoin.memory.budget import MemoryBudget
from adjoin.memory.row_slots import RowSlots
from adjoin.streamjoin.disk.spill_file import CHUNK_BYTES
from adjoin.streamjoin.memory.ordered_index import INTERVAL_BYTES, POINT_BYTES
from adjoin.streamjoin.memory.row_store import HOLE_BYTES
from adjoin.streamjoin.memory.tuples import TIME, tuple_schema

OUTER_BYTES = 84
"""Of a tuple of an outer block besides its slot: interval, place, block, moments; twice while sorted."""
LEAST_SLOTS = 4
"""The minimum number of slots of each input."""
_PAGE_BYTES = 4096
_BLOCKS = 48
"""By default, this many blocks per input would fill the memory."""
_MOST_BLOCK_BYTES = 1 << 20
_WORK_SHARE, _OUTER_SHARE = 1 / 16, 1 / 12
_SMALL_WORK_SHARE, _LITTLE_WORK_BYTES = 1 / 4, 128 << 10
"""In a small memory the work share is larger, up to this many bytes: every step has a fixed cost."""
_BYTES_PER_ROW = 256
"""The most that sorting, probing and recording an arriving row takes, besides the row itself."""
_NOTES_BYTES = 20
"""What is recorded about a slot, besides its contents."""
INPUT_SHARE = 1 / 10
"""Of the memory, for rows that arrive while the operator works, once there are such rows."""
_DIRECTORY_SHARE, _LEAST_CHUNKS, _DIRECTORY_COPIES = 1 / 128, 2, 2
"""The directories of blocks in memory; two copies while they are scanned."""
_TASK_SHARE, _LEAST_TASK_BYTES = 1 / 64, 8 << 10
_RELOADED_BYTES = 160
"""How much larger a row may be when it comes back from disk, with two more columns."""
STAMP_BYTES = 8
"""Of a stored tuple: its moment of arrival."""


@dataclass(frozen=True)
class ReactiveMemory:
    """What a join keeps in memory of the blocks that a reactive phase joins.

    Attributes:
        copies: The number of copies of each outer block.
        row_bytes: What one of its tuples takes besides the block.
    """

    copies: int = 1
    row_bytes: int = OUTER_BYTES
    share: ClassVar[float] = _OUTER_SHARE
    """Of the memory, for outer blocks."""

    def bytes(self, max_outer: int, slot_bytes: int, block_rows: int) -> int:
        """In total, including the inner block, if a block has at most `block_rows` rows."""
        return (self.copies * max_outer + 1) * slot_bytes + max_outer * block_rows * self.row_bytes

    def notes_bytes(self, max_outer: int) -> int:  # noqa: ARG002
        """What is recorded about slots of its own."""
        return 0


@dataclass(frozen=True)
class ManyReactiveMemory(ReactiveMemory):
    """What a join of many inputs keeps: as many outer blocks as fit, and a block of each other input.

    Attributes:
        inner: The number of blocks kept besides the outer ones and the one being read.
        slot_notes_bytes: What is recorded about one slot of every input.
    """

    inner: int = 0
    slot_notes_bytes: int = 0

    def bytes(self, max_outer: int, slot_bytes: int, block_rows: int) -> int:
        """In total: twice the size of the outer blocks, and the maximum for each other block."""
        return 2 * max_outer * slot_bytes + (self.inner + 1) * self.block_bytes(slot_bytes, block_rows)

    def notes_bytes(self, max_outer: int) -> int:
        """What is recorded about the slots of all inputs."""
        return self.slots(max_outer) * self.slot_notes_bytes

    def slots(self, max_outer: int) -> int:
        """The number of slots of each input for blocks that are kept."""
        return 2 * max_outer + 4

    def block_bytes(self, slot_bytes: int, rows: int) -> int:
        """What a block of this many rows takes when it is kept; its rows may need an extra slot."""
        return 2 * slot_bytes + rows * self.row_bytes


@dataclass(frozen=True)
class Sizes:
    """How a budget is divided: the parts that do not change.

    Attributes:
        total_bytes: The budget.
        slot_bytes: Size of a slot, and the maximum size of a block.
        slots: The maximum number of slots.
        notes_bytes: What is recorded about slots.
        work_bytes: What one step may use for sorting, probing and building results.
        reactive_bytes: For blocks that are joined in reactive phases; set aside when the first one begins.
        task_bytes: What is recorded about completed reactive work.
        directory_chunks: The number of chunks of each directory in memory.
        max_outer: The maximum number of outer blocks in a reactive phase.
        block_rows: The maximum number of rows of a block.
        row_bytes: The largest row of each input that fits, as `row_bytes` counts a stored tuple.
    """

    total_bytes: int
    slot_bytes: int
    slots: int
    notes_bytes: int
    work_bytes: int
    reactive_bytes: int
    task_bytes: int
    directory_chunks: int
    max_outer: int
    block_rows: int
    row_bytes: tuple[int, ...]

    def reserve(self, budget: MemoryBudget) -> None:
        """Set aside what is never used for tuples."""
        budget.set("notes", self.all_notes_bytes)
        budget.set("work", self.work_bytes)

    @property
    def all_notes_bytes(self) -> int:
        """What is recorded about slots, blocks and completed reactive work."""
        directories = _DIRECTORY_COPIES * self.directory_chunks * CHUNK_BYTES * len(self.row_bytes)
        return self.notes_bytes + self.task_bytes + directories

    @property
    def piece_rows(self) -> int:
        """The number of rows, or pairs, handled at a time."""
        return max(1, self.work_bytes // 2 // _BYTES_PER_ROW)

    @property
    def largest_row_bytes(self) -> int:
        """A row of any input fits if it is not larger; see `SpillingJoin`."""
        return min(self.row_bytes) - STAMP_BYTES


@dataclass(frozen=True)
class MemoryPlan:
    """How a join divides any amount of memory.

    Unless the caller chose their size, blocks are a small fraction of the memory; they are reduced, down to a
    page, where memory is short, and after that the number of outer blocks is reduced.

    Attributes:
        plain: The schemas of the inputs.
        are_points: For each join attribute of each input, whether a tuple has one key there or an interval.
        reactive: What is in memory in a reactive phase.
        outer: The most and the fewest outer blocks; None: as many as fit in a share of the memory.
        block_bytes: Size of a block, if the caller chose it.
    """

    plain: Sequence[pa.Schema]
    are_points: Sequence[Sequence[bool]]
    reactive: ReactiveMemory
    outer: tuple[int, int] | None
    block_bytes: int | None

    def of(self, total_bytes: int) -> Sizes:
        """How this much memory is divided.

        Raises:
            BudgetError: It is too little; the error says how much is enough.
        """
        sizes = self._sizes(total_bytes)
        if sizes is None:
            least = self.least_bytes()
            blocks = "" if self.block_bytes is None else f" with blocks of {self._least_slot_bytes} bytes"
            outer = "" if self.outer is None else f" and {self.outer[1]} of them in memory to be joined"
            raise BudgetError(
                f"memory={total_bytes} is too small for this join{blocks}{outer}; give memory={least} or more"
            )
        return sizes

    def least_bytes(self) -> int:
        """The least memory that is enough."""
        return _least(lambda total: self._sizes(total) is not None)

    def enough_for(self, row_bytes: int) -> str:
        """The options with which a row fits that takes this much, as `row_bytes` counts a stored tuple."""
        slot_bytes = _whole_pages(row_bytes + max(map(self._not_for_rows, range(len(self.plain)))))
        if self.block_bytes is None and slot_bytes <= _MOST_BLOCK_BYTES:
            return f"memory={_least(lambda total: self._fits(total, row_bytes))} or more"
        larger = replace(self, block_bytes=slot_bytes)
        return f"block_bytes={slot_bytes} and memory={larger.least_bytes()}, or more"

    def _fits(self, total_bytes: int, row_bytes: int) -> bool:
        sizes = self._sizes(total_bytes)
        return sizes is not None and min(sizes.row_bytes) >= row_bytes

    def _sizes(self, total_bytes: int) -> Sizes | None:
        """The largest blocks for which there is memory, and of those the most outer ones."""
        least = self._least_slot_bytes
        wanted_bytes = self.block_bytes or min(total_bytes // (_BLOCKS * len(self.plain)), _MOST_BLOCK_BYTES)
        for slot_bytes in range(max(_whole_pages(wanted_bytes), least), least - 1, -_PAGE_BYTES):
            most, fewest = self.outer or (max(1, int(total_bytes * self.reactive.share) // slot_bytes), 1)
            if self.outer is not None and slot_bytes > least:
                fewest = most
            for max_outer in range(min(most, total_bytes // slot_bytes), fewest - 1, -1):
                if self._needed(total_bytes, slot_bytes, max_outer) <= total_bytes:
                    return self._divided(total_bytes, slot_bytes, max_outer)
        return None

    @property
    def _least_slot_bytes(self) -> int:
        """A slot must hold the smallest row of every input."""
        needed = (
            self._not_for_rows(side) + _least_row_bytes(schema) for side, schema in enumerate(self.plain)
        )
        return _whole_pages(max(self.block_bytes or 1, *needed))

    def _needed(self, total_bytes: int, slot_bytes: int, max_outer: int) -> float:
        """What all parts and a block of rows take; it grows more slowly than the memory."""
        inputs, block_rows = len(self.plain), self._block_rows(slot_bytes)
        notes = total_bytes / slot_bytes * self._slot_notes_bytes + self.reactive.notes_bytes(max_outer)
        work = _work_bytes(total_bytes, slot_bytes)
        task = max(_LEAST_TASK_BYTES, total_bytes * _TASK_SHARE)
        directories = _DIRECTORY_COPIES * max(
            inputs * _LEAST_CHUNKS * CHUNK_BYTES, total_bytes * _DIRECTORY_SHARE
        )
        tuples = inputs * LEAST_SLOTS * slot_bytes + block_rows * self._index_bytes
        reading = self.reactive.bytes(max_outer, slot_bytes, block_rows)
        return notes + work + task + directories + tuples + reading + total_bytes * INPUT_SHARE

    def _divided(self, total_bytes: int, slot_bytes: int, max_outer: int) -> Sizes:
        inputs, slots = len(self.plain), total_bytes // slot_bytes
        block_rows = self._block_rows(slot_bytes)
        chunks = int(total_bytes * _DIRECTORY_SHARE) // (inputs * CHUNK_BYTES)
        return Sizes(
            total_bytes=total_bytes,
            slot_bytes=slot_bytes,
            slots=slots,
            notes_bytes=slots * self._slot_notes_bytes + self.reactive.notes_bytes(max_outer),
            work_bytes=int(_work_bytes(total_bytes, slot_bytes)),
            reactive_bytes=self.reactive.bytes(max_outer, slot_bytes, block_rows),
            task_bytes=max(_LEAST_TASK_BYTES, int(total_bytes * _TASK_SHARE)),
            directory_chunks=max(_LEAST_CHUNKS, chunks),
            max_outer=max_outer,
            block_rows=block_rows,
            row_bytes=tuple(slot_bytes - self._not_for_rows(side) for side in range(inputs)),
        )

    def _block_rows(self, slot_bytes: int) -> int:
        return slot_bytes // min(map(_least_row_bytes, self.plain))

    def _not_for_rows(self, side: int) -> int:
        """The part of a slot that is not for rows: metadata, the keys of a row, and how much it may grow."""
        schema = self.plain[side]
        key_bytes = 8 if self.are_points[side][0] else 16
        time_bytes = 8 * (TIME in schema.names)
        return message_overhead(tuple_schema(schema)) + key_bytes + time_bytes + _RELOADED_BYTES

    @cached_property
    def _slot_notes_bytes(self) -> int:
        return sum(slot_notes_bytes(tuple_schema(schema)) for schema in self.plain)

    @cached_property
    def _index_bytes(self) -> int:
        """Of a tuple: its entries in all indexes, room to merge one of them, and the record of its hole."""
        sizes = [[POINT_BYTES if points else INTERVAL_BYTES for points in each] for each in self.are_points]
        return HOLE_BYTES + max(
            sum(entry for entry, _ in each) + max(merge for _, merge in each) for each in sizes
        )


def _work_bytes(total_bytes: int, slot_bytes: int) -> float:
    little = min(total_bytes * _SMALL_WORK_SHARE, _LITTLE_WORK_BYTES)
    return max(little, total_bytes * _WORK_SHARE, 4 * slot_bytes)


def _whole_pages(size: int) -> int:
    return max(1, -(-size // _PAGE_BYTES)) * _PAGE_BYTES


def _least(does: Callable[[int], bool]) -> int:
    """The least number of bytes that is enough, given that all greater ones are."""
    too_few, enough = 0, _PAGE_BYTES
    while not does(enough):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if does(middle) else (middle, enough)
    return enough


def slot_notes_bytes(stored: pa.Schema) -> int:
    """What is recorded about a slot whose rows have these columns."""
    return RowSlots.notes_bytes(stored) + _NOTES_BYTES


def _least_row_bytes(schema: pa.Schema) -> int:
    """The least that a row in a block takes: its key, its moment and its columns of fixed width."""
    total = 16
    for field in schema:
        try:
            total += field.type.bit_width // 8
        except ValueError:
            total += 4
    return total
