"""How the memory of a join that spills is divided."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from adjoin.errors import BudgetError, OptionError
from adjoin.parts.budget import MemoryBudget
from adjoin.parts.rowslots import RowSlots
from adjoin.streamjoin.blocks import Blocks
from adjoin.streamjoin.diskjoin import OUTER_BYTES
from adjoin.streamjoin.tuples import stored_schema

LEAST_SLOTS = 4
"""Of each input, for its tuples."""
_PAGE_BYTES = 4096
_BLOCKS = 48
"""Of each input: a block is so small a part of the memory, unless the caller chose."""
_MOST_BLOCK_BYTES = 1 << 20
_WORK_SHARE, _OUTER_SHARE = 1 / 16, 1 / 12
_LEAST_WORK_BYTES = 128 << 10
_BYTES_PER_ROW = 256
"""What sorting, probing and noting one arriving row takes, at most, beside the row itself."""
_NOTES_BYTES = 20
"""On a slot, beside what it holds."""


@dataclass(frozen=True)
class Reading:
    """What a join keeps in memory of the blocks that it joins in a reactive phase.

    Attributes:
        copies: Of the outer blocks.
        row_bytes: What a tuple of theirs takes beside its block.
    """

    copies: int = 1
    row_bytes: int = OUTER_BYTES

    def bytes(self, max_outer: int, slot_bytes: int, block_rows: int) -> int:
        """In all, where a block has at most so many rows; and for the block that is read."""
        return (self.copies * max_outer + 1) * slot_bytes + max_outer * block_rows * self.row_bytes

    def notes_bytes(self, max_outer: int) -> int:  # noqa: ARG002
        """Notes on the slots of their own that they have."""
        return 0


@dataclass(frozen=True)
class ReadingMany(Reading):
    """The same of a join of many inputs: as many outer blocks as there is room for, and one of each other.

    Attributes:
        inner: Blocks that are kept beside the outer ones and the one that is read.
        slot_notes_bytes: Notes on a slot of every input.
    """

    inner: int = 0
    slot_notes_bytes: int = 0

    def bytes(self, max_outer: int, slot_bytes: int, block_rows: int) -> int:
        """In all: twice the size of the outer blocks, and what any one block can take."""
        return 2 * max_outer * slot_bytes + (self.inner + 1) * self.block_bytes(slot_bytes, block_rows)

    def notes_bytes(self, max_outer: int) -> int:
        """Notes on the slots of all inputs."""
        return self.slots(max_outer) * self.slot_notes_bytes

    def slots(self, max_outer: int) -> int:
        """Of each input, for the blocks that are kept."""
        return 2 * max_outer + 4

    def block_bytes(self, slot_bytes: int, rows: int) -> int:
        """What a block of so many rows takes when it is kept; its rows may need a slot more."""
        return 2 * slot_bytes + rows * self.row_bytes


@dataclass(frozen=True)
class Sizes:
    """The parts of a budget that do not change, and what follows from it.

    Attributes:
        slot_bytes: A slot, and the most that a block takes.
        slots: The most slots that there can be.
        notes_bytes: Notes on all slots.
        work_bytes: What one step may use for sorting, probing and building results.
        reading_bytes: Blocks that are joined in a reactive phase; set aside when the first one begins.
        max_outer: So many of them are outer ones.
        block_rows: No block has more.
    """

    slot_bytes: int
    slots: int
    notes_bytes: int
    work_bytes: int
    reading_bytes: int
    max_outer: int
    block_rows: int

    def reserve(self, budget: MemoryBudget) -> None:
        """Set aside what is never for tuples."""
        budget.set("notes", self.notes_bytes)
        budget.set("work", self.work_bytes)

    @property
    def piece_rows(self) -> int:
        """Rows, and pairs, handled at a time."""
        return max(1, self.work_bytes // 2 // _BYTES_PER_ROW)

    @classmethod
    def of(
        cls,
        total_bytes: int,
        plain: Sequence[pa.Schema],
        max_outer: int | None,
        block_bytes: int | None,
        reading: Reading,
    ) -> "Sizes":
        """For inputs with these schemas.

        Raises:
            BudgetError: That is too little; it names what would do.
        """
        wanted_bytes = block_bytes or min(total_bytes // (_BLOCKS * len(plain)), _MOST_BLOCK_BYTES)
        slot_bytes = max(1, -(-wanted_bytes // _PAGE_BYTES)) * _PAGE_BYTES
        slots = total_bytes // slot_bytes
        max_outer = max_outer or max(1, int(total_bytes * _OUTER_SHARE) // slot_bytes)
        notes_bytes = slots * sum(slot_notes_bytes(stored_schema(schema)) for schema in plain)
        notes_bytes += reading.notes_bytes(max_outer)
        work_bytes = max(_LEAST_WORK_BYTES, int(total_bytes * _WORK_SHARE), 4 * slot_bytes)
        block_rows = slot_bytes // min(map(_least_row_bytes, plain))
        reading_bytes = reading.bytes(max_outer, slot_bytes, block_rows)
        input_bytes = LEAST_SLOTS * slot_bytes + 2 * Blocks.growth_bytes
        least_bytes = notes_bytes + work_bytes + reading_bytes + len(plain) * input_bytes
        if total_bytes < least_bytes:
            raise BudgetError(
                f"memory={total_bytes} is too small for blocks of {slot_bytes} bytes and "
                f"max_outer={max_outer}; give memory={2 * least_bytes} or more, or smaller ones"
            )
        return cls(slot_bytes, slots, notes_bytes, work_bytes, reading_bytes, max_outer, block_rows)


def slot_notes_bytes(stored: pa.Schema) -> int:
    """What notes on a slot take whose rows have these columns."""
    return RowSlots.notes_bytes(stored) + _NOTES_BYTES


def _least_row_bytes(schema: pa.Schema) -> int:
    """A row in a block has at least so many: its key, its moment and its columns of a fixed width."""
    total = 16
    for field in schema:
        try:
            total += field.type.bit_width // 8
        except ValueError:
            total += 4
    return total


def check_options(max_outer: int | None, max_new: int, wait_seconds: float, block_bytes: int | None) -> None:
    """Raise an OptionError for what cannot be."""
    for name, value, least in (
        ("max_outer", max_outer, 1),
        ("max_new", max_new, 0),
        ("block_bytes", block_bytes, 1),
    ):
        if value is not None and (not isinstance(value, int) or value < least):
            raise OptionError(f"{name}={value!r} must be a whole number of at least {least}")
    if not wait_seconds >= 0:
        raise OptionError(f"wait_seconds={wait_seconds!r} must not be negative")
