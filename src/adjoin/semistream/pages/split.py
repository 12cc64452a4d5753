"""How a budget is split: what is fixed, what a step may use, what pages and rows share."""

from collections.abc import Callable
from dataclasses import dataclass

from adjoin.errors import BudgetError
from adjoin.master.device import SSD, Cost
from adjoin.master.filter import CheckedFilter, KeyFilter
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES, Arena
from adjoin.memory.page_columns import Column, PageColumns
from adjoin.memory.page_memory import PageMemory
from adjoin.semistream.pages.cache import PageCache

_SCRATCH_BYTES = 16 * BLOCK_BYTES
_LEAST_WORK_BYTES = 64 << 10
_MOST_WORK_BYTES = 64 << 20
_LEAST_STREAM_BYTES = 64 << 10
_LEAST_WAVE_PAGES = 8
_MOST_WAVE_PAGES = 512
_LEAST_LANDING_SLOTS = 16
_BYTES_PER_INPUT_ROW = 128
"""The most that sorting, locating and probing one stream row takes, in addition to the row itself."""


@dataclass(frozen=True)
class Landing:
    """The slots that pages are read into: how many pages a wave has, and how many waves there are."""

    wave_pages: int
    waves: int = 1


@dataclass(frozen=True)
class LandingRoom:
    """What a landing rule decides by.

    Attributes:
        bytes: Memory that rows, pages and work share.
        slot_cost: Bytes of it that a page takes.
        pages: Pages of the master.
        cost: What reading costs.
    """

    bytes: int
    slot_cost: int
    pages: int
    cost: Cost


LandingRule = Callable[[LandingRoom], Landing]


def two_waves(room: LandingRoom) -> Landing:
    """One wave is read while the other is joined; together they take an eighth of the memory."""
    wave_pages = max(_LEAST_WAVE_PAGES, room.bytes // 16 // room.slot_cost)
    return Landing(min(_MOST_WAVE_PAGES, wave_pages), 2)


@dataclass(frozen=True)
class Demand:
    """The memory that a master version needs.

    Attributes:
        index_bytes: Index, filter and the counters of pages.
        slot_bytes: A slot that holds nearly every page.
        largest_page_bytes: The largest page.
        bookkeeping_bytes: What a slot costs in addition to its bytes and the arena's own notes.
        memory_bytes: What the page memory costs in addition to pages and notes.
        pages: Its pages.
        cost: What reading them costs.
    """

    index_bytes: int
    slot_bytes: int
    largest_page_bytes: int
    bookkeeping_bytes: int
    memory_bytes: int
    pages: int
    cost: Cost = SSD

    @classmethod
    def of(
        cls,
        index: PageIndex | CheckedIndex,
        index_bytes: int,
        page_bytes: int,
        columns: list[Column],
        memory: PageMemory | type[PageMemory],
    ) -> "Demand":
        """The demand of a version with this index, of which these columns are needed."""
        notes_bytes = PageColumns.bytes_per_slot(columns) + PageCache.bytes_per_slot + memory.bytes_per_slot
        return cls(
            index_bytes=index_bytes,
            slot_bytes=index.typical_blocks * BLOCK_BYTES or page_bytes,
            largest_page_bytes=index.largest_blocks * BLOCK_BYTES,
            bookkeeping_bytes=notes_bytes,
            memory_bytes=memory.fixed_bytes,
            pages=len(index),
        )

    @property
    def slot_cost(self) -> int:
        return self.slot_bytes + Arena.bookkeeping_bytes + self.bookkeeping_bytes

    @property
    def oversize_bytes(self) -> int:
        return self.largest_page_bytes if self.largest_page_bytes > self.slot_bytes else 0

    @property
    def fixed_bytes(self) -> int:
        return self.index_bytes + self.memory_bytes + self.oversize_bytes + _SCRATCH_BYTES + self.slot_cost

    @property
    def least_work_bytes(self) -> int:
        return _LEAST_WORK_BYTES + 4 * self.largest_page_bytes

    @property
    def least_bytes(self) -> int:
        """The least budget that works."""
        slots_bytes = (_LEAST_LANDING_SLOTS + 1) * self.slot_cost
        return self.fixed_bytes + self.least_work_bytes + _LEAST_STREAM_BYTES + slots_bytes


def index_bytes(
    index: PageIndex | CheckedIndex, filter_: KeyFilter | CheckedFilter | None, *, is_shared: bool
) -> int:
    """Index and filter, unless they are shared and accounted for elsewhere, and the counters of pages."""
    own_bytes = 0 if is_shared else index.nbytes + (filter_.nbytes if filter_ else 0)
    return own_bytes + len(index) * PageCache.bytes_per_page


def least_memory(master: Master, *, shared_index: bool = False, pages: type[PageMemory] = PageMemory) -> int:
    """The least budget that works for an operator that needs all columns of the master."""
    index = master.checked_index
    held_bytes = index_bytes(index, master.checked_filter, is_shared=shared_index)
    columns = master.stored.laid_out().columns
    return Demand.of(index, held_bytes, master.page_bytes, columns, pages).least_bytes


@dataclass(frozen=True)
class MemorySplit:
    """The split of a budget over the parts of a semi-stream operator.

    Attributes:
        slot_bytes: A page slot.
        slot_cost: A slot with its bookkeeping.
        slots: The most slots that can hold cached pages.
        oversize_bytes: Region for the largest page, if one is larger than a slot.
        scratch_bytes: Region for the unwanted bytes of a scan.
        wave_pages: Pages of one wave of reads.
        waves: Waves in flight at a time.
        work_bytes: What one step may use for sorting, probing and building results.
        stream_bytes: The memory that rows and cached pages share; rows can have all of it.
    """

    slot_bytes: int
    slot_cost: int
    slots: int
    oversize_bytes: int
    scratch_bytes: int
    wave_pages: int
    waves: int
    work_bytes: int
    stream_bytes: int

    @classmethod
    def of(cls, total_bytes: int, demand: Demand, landing_rule: LandingRule = two_waves) -> "MemorySplit":
        """Split a budget, or raise a BudgetError that names the least that works."""
        least = demand.least_bytes
        if total_bytes < least:
            raise BudgetError(
                f"memory={total_bytes} is too small for this master: the least that works is {least} bytes "
                f"({demand.index_bytes:,} of them for its index); give memory={least} or more"
            )
        flexible = total_bytes - demand.fixed_bytes
        work_bytes = max(demand.least_work_bytes, min(flexible // 16, _MOST_WORK_BYTES))
        landing = landing_rule(LandingRoom(flexible, demand.slot_cost, demand.pages, demand.cost))
        reading_bytes = landing.waves * landing.wave_pages * demand.slot_cost
        lacking = reading_bytes + work_bytes + _LEAST_STREAM_BYTES - flexible
        if lacking > 0:
            raise BudgetError(
                f"memory={total_bytes} is too small to read {landing.wave_pages} pages at a time; "
                f"give memory={total_bytes + 2 * lacking} or more, or read fewer pages"
            )
        return cls(
            slot_bytes=demand.slot_bytes,
            slot_cost=demand.slot_cost,
            slots=(flexible - work_bytes - reading_bytes) // demand.slot_cost,
            oversize_bytes=demand.oversize_bytes,
            scratch_bytes=_SCRATCH_BYTES,
            wave_pages=landing.wave_pages,
            waves=landing.waves,
            work_bytes=work_bytes,
            stream_bytes=flexible - work_bytes - reading_bytes,
        )

    @property
    def landing_slots(self) -> int:
        """Slots that pages are read into; they are never given away."""
        return self.waves * self.wave_pages

    @property
    def step_rows(self) -> int:
        """Stream rows handled at a time."""
        return max(1, self.work_bytes // 2 // _BYTES_PER_INPUT_ROW)

    @property
    def output_bytes(self) -> int:
        return self.work_bytes // 2
