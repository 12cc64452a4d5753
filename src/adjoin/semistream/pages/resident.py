"""What an operator holds of one master version in memory: the index, the filter, and some of the pages."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from adjoin.errors import CorruptionError
from adjoin.kernels.types import Array
from adjoin.master.device import Device
from adjoin.master.filter import CheckedFilter, KeyFilter
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES, Arena
from adjoin.memory.budget import MemoryBudget
from adjoin.memory.page_columns import Column, PageColumns, Places
from adjoin.memory.page_memory import PageMemory
from adjoin.memory.trust import Stored
from adjoin.operators.read_plan import ReadPlan
from adjoin.semistream.pages.cache import ABSENT, CachedPages, PageCache
from adjoin.semistream.pages.reader import PageReader, ReadCounts
from adjoin.semistream.pages.same_pages import find_pages
from adjoin.semistream.pages.split import (
    Demand,
    LandingRule,
    MemorySplit,
    index_bytes,
    two_waves,
)

LENT_ACCOUNT = "front"
"""The account of the budget for memory that is lent to the borrower."""
_ALIKE = 1.5
"""Sizes that differ by less than this factor count as the same."""


class Borrower(Protocol):
    """A holder of memory lent from the budget, which the operator can ask back."""

    def give_way(self, lacking_bytes: int) -> None:
        """Give this many bytes back, or everything if that is less."""


Observer = Callable[[Array, Array, Places], None]
"""Is told which rows were joined: encoded keys, stream rows, and master rows, which still are in memory."""


class _Slack:
    """Free memory that rows have not needed lately, so that the cache can take it and keep it.

    Args:
        total_bytes: The whole budget.
        before_bytes: The least that was free in the period before this one.
        lately_bytes: The least that was free in this period.
        spreads: How often the cache has been allowed to grow.
    """

    _PERIOD = 16

    def __init__(
        self,
        total_bytes: int,
        before_bytes: int | None = None,
        lately_bytes: int | None = None,
        spreads: int = 0,
    ) -> None:
        self._total_bytes = total_bytes
        self._before_bytes = total_bytes if before_bytes is None else before_bytes
        self._lately_bytes = total_bytes if lately_bytes is None else lately_bytes
        self._spreads = spreads

    @property
    def bytes(self) -> int:
        """What the cache can take."""
        return min(self._before_bytes, self._lately_bytes)

    def observe(self, free_bytes: int) -> None:
        """Rows have been given room, and this much is left."""
        self._lately_bytes = min(self._lately_bytes, free_bytes)

    def take(self, taken_bytes: int) -> None:
        """The cache has grown by this much, or by nothing."""
        self._before_bytes -= taken_bytes
        self._lately_bytes -= taken_bytes
        self._spreads += 1
        if self._spreads % self._PERIOD == 0:
            self._before_bytes, self._lately_bytes = self._lately_bytes, self._total_bytes

    def to_json(self) -> list[int]:
        """What the next user of the memory continues with."""
        return [self._before_bytes, self._lately_bytes, self._spreads]


class ResidentPages:
    """The index of a master version and those of its pages that are in memory, within a budget.

    Pages are read into the *landing*, slots that are reused by every wave of reads, and the most useful ones
    move into the *cache*. The cache takes all memory that nobody else needs, and gives it back on request,
    the least useful pages first.

    Args:
        master: The version.
        names: Master columns whose values are needed.
        budget: The operator's budget; this class keeps its accounts "index", "pages" and "work".
        device: What the master is stored on.
        decay: See `PageCache`.
        memory: Memory for pages. If it outlives its users, the pages that the last one left are there from
            the start, as far as this version has them.
        shared_index: Use the master's own index, which this operator does not account for, instead of a
            copy.
        landing: Chooses how many pages are read at a time.
        kind: The kind of operator; only operators of the same kind use each other's pages.

    Attributes:
        pinned_slots: Slots of the cache that are not given up for anything else.
        observer: Is told which rows are joined.
        borrower: Has been lent memory that can be asked back.
    """

    def __init__(
        self,
        master: Master,
        names: Collection[str],
        budget: MemoryBudget,
        device: Device,
        decay: float,
        memory: PageMemory | None = None,
        *,
        shared_index: bool = False,
        landing: LandingRule = two_waves,
        kind: str = "",
    ) -> None:
        self._budget = budget
        self._device = device
        self._decay = decay
        self._memory = memory or PageMemory()
        self._shared_index = shared_index
        self._landing = landing
        self._kind = kind
        self._names = tuple(names)
        self.pinned_slots = 0
        self._slack = _Slack(budget.total_bytes)
        self._columns_by_name: dict[str, Column] = {}
        self._is_frozen = False
        self._is_closed = False
        self.observer: Observer | None = None
        self.borrower: Borrower | None = None
        self._load(master)
        try:
            self._open_pages()
        except BaseException:
            self._memory.abandon()
            self.master.close()
            raise

    def column(self, name: str) -> Column:
        return self._columns_by_name[name]

    @property
    def encoded_key(self) -> Column:
        return self._columns_by_name[self.master.key_column]

    @property
    def counts(self) -> ReadCounts:
        return self.reader.counts

    def key_range(self, slots: Array) -> tuple[Array, Array]:
        """First and last encoded key of the pages in these slots."""
        offset = self.columns.offset(self.encoded_key.buffers[1])[slots].astype(np.int64)
        rows = self.columns.rows[slots].astype(np.int64)
        room = np.where(slots == self.arena.oversize_slot, *self.arena.rooms[::-1])
        is_outside = (rows <= 0) | (offset < 0) | (offset + 8 * rows > room)
        if is_outside.any():
            raise self._blame(int(slots[np.argmax(is_outside)]))
        word = (self.arena.slot_base[slots] + offset) >> 3
        keys = self.arena.words[word], self.arena.words[word + rows - 1]
        self.vouch(slots)
        return keys

    def start_reading(
        self, pages: Array, entries: PageIndex, slots: Array, plan: ReadPlan, begin: int, end: int
    ) -> Callable[[], None]:
        """See `PageReader.start`."""
        self._landed[self._landing_place(slots)] = pages
        self.cache.trust.doubt(slots)
        return self.reader.start(pages, entries, slots, plan, begin, end)

    def check_memory(self) -> None:
        """Raise an error if the memory of pages was truncated: touching it would kill the process."""
        self._memory.state()

    def vouch(self, slots: Array) -> None:
        """Verify that the pages in these slots were intact when they were used.

        Memory in a file can be written by other processes at any time. So this is called after pages were
        used and before results leave, and verifies a page again unless nobody has written to the file since
        the last time.

        Raises:
            CorruptionError: A page does not hold what the master stores.
        """
        damaged = self.cache.trust.find_damaged(slots, self._stored_in)
        if damaged is not None:
            raise self._blame(damaged)

    def _stored_in(self, slots: Array) -> Stored:
        """What the master stores of the pages in these slots."""
        entries = self.index.take(self._pages_in(slots))
        lengths = entries.blocks.astype(np.int64) * BLOCK_BYTES
        return Stored(lengths, entries.checksum, self.reader.layouts_of(entries))

    def _pages_in(self, slots: Array) -> Array:
        """The page in each slot, cached or just read."""
        cached = self.cache.page_of(slots)
        return np.where(cached != ABSENT, cached, self._landed[self._landing_place(slots)])

    def _landing_place(self, slots: Array) -> Array:
        """The number of each slot in the landing, or of the oversize region, which comes last."""
        return np.minimum(slots, self.arena.landing)

    def _blame(self, slot: int) -> CorruptionError:
        """The error that names the damaged page in this slot."""
        if self._memory.outlives:
            return self._memory.damage(f"the page in slot {slot}")
        page = self._pages_in(np.array([slot]))
        where = self.reader.place(int(page[0]), self.index.take(page), 0)
        return CorruptionError(f"{where} contradicts itself; restore the file or rebuild the master")

    def is_oversize(self, entries: PageIndex) -> Array:
        """Whether pages are longer than a slot."""
        return entries.blocks.astype(np.int64) * BLOCK_BYTES > self.split.slot_bytes

    def make_room(self, wanted_bytes: int, *, ask_borrower: bool = True) -> bool:
        """Free this many bytes of the budget, evicting pages if necessary; False if that is not possible."""
        if self._evict(wanted_bytes):
            self._slack.observe(self._budget.free_bytes - wanted_bytes)
            return True
        if self.borrower is None or not ask_borrower:
            return False
        self.borrower.give_way(wanted_bytes - self._budget.free_bytes)
        return self._evict(wanted_bytes)

    def _evict(self, wanted_bytes: int) -> bool:
        lacking = wanted_bytes - self._budget.free_bytes
        if lacking <= 0:
            return True
        arena = self.arena
        slots = -(-lacking // (self.split.slot_cost * arena.grain)) * arena.grain
        spare = max(arena.capacity - self.pinned_slots, 0)
        if self._is_frozen or min(slots, spare) * self.split.slot_cost < lacking:
            return False
        self.cache.shrink(min(slots, spare))
        self._account_pages()
        return True

    def spread(self) -> None:
        """Let the cache have all memory that is free now.

        Where memory is a file, it only gets what rows have not needed lately: taking the rest and giving it
        back with every batch would change the file each time, and then every page has to be verified again.
        """
        before_bytes = self._budget.free_bytes
        free_bytes = min(before_bytes, self._slack.bytes) if self._memory.outlives else before_bytes
        self.grow(max(free_bytes, 0) // self.split.slot_cost)
        self._slack.take(before_bytes - self._budget.free_bytes)

    def grow(self, slots: int) -> None:
        """Let the cache have this many slots more, as far as memory is free."""
        self.arena.grow(min(slots, self._budget.free_bytes // self.split.slot_cost))
        self._account_pages()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within this context, no page is moved or evicted."""
        self._is_frozen = True
        try:
            yield
        finally:
            self._is_frozen = False

    def has_room_for(self, master: Master) -> bool:
        """Whether there is room for the index of another version, and for rows to become pending."""
        spare_slots = max(self.arena.capacity - self.pinned_slots, 0)
        spare_bytes = self._budget.free_bytes + spare_slots * self.split.slot_cost
        return spare_bytes >= self._index_growth(master) + self.split.stream_bytes // 2

    def replace(self, master: Master) -> None:
        """Continue with another version: pages that both versions have stay in memory."""
        has_room = self.make_room(self._index_growth(master))
        cached = self.cache.snapshot()
        entries = self.index.take(cached.pages)
        first, checksum = entries.first, entries.checksum
        counts = self.reader.counts
        self.reader.close()
        self.master.close()
        self._drop_index()
        before = self.master.stored
        self._load(master)
        self._find_columns()
        if has_room and before == self.master.stored and self._pages_fit() and self._split_suits():
            self._carry_over(cached, first, checksum)
        else:
            self._settle()
        self._open_reader()
        self.reader.counts = counts

    def close(self, *, is_sound: bool) -> None:
        """Free memory and files; in memory that outlives its users, leave the pages if nothing went wrong."""
        if self._is_closed:
            return
        self._is_closed = True
        self.reader.close()
        if is_sound and self._memory.outlives:
            with suppress(CorruptionError):  # then nothing is left
                self._leave()
        self._memory.abandon()
        self.master.close()
        self.arena.close()
        if self._memory.outlives:
            self.columns.close()
            self.cache.close()

    def check_invariants(self) -> None:
        self._budget.check_invariants()
        self.arena.check_invariants()
        self.cache.check_invariants()

    def _load(self, master: Master) -> None:
        self.master = master.at(master.version)  # a pin of our own, whatever the caller does with theirs
        self.index: PageIndex | CheckedIndex
        self.filter: KeyFilter | CheckedFilter | None
        if self._shared_index:
            self.index, self.filter = self.master.checked_index, self.master.checked_filter
        else:
            self.index, self.filter = self.master.load_index(), self.master.load_filter()

    def _drop_index(self) -> None:
        self.index = PageIndex.empty()
        self.filter = None
        self.cache = PageCache(self.arena, self.columns, 0, self._decay)

    def _open_pages(self) -> None:
        """Continue with pages that were left here, or start with none."""
        self._find_columns()
        left = self._memory.recall(self._key)
        if left is None or not self._can_resume(left):
            self._settle()
        self._open_reader()

    def _can_resume(self, left: dict[str, Any]) -> bool:
        """Continue with the pages that the last user left; False if they do not fit or were changed."""
        try:
            return self._resume(left)
        except CorruptionError:
            return False

    def _find_columns(self) -> None:
        stored = self.master.stored
        laid_out = stored.laid_out()
        self._columns_by_name = dict(zip(stored.schema.names, laid_out.columns, strict=True))
        self._ordinals = laid_out.ordinals

    @property
    def _wanted(self) -> list[Column]:
        return [self._columns_by_name[name] for name in {*self._names, self.master.key_column}]

    def _settle(self) -> None:
        """Split the budget for this version and make an empty arena."""
        if self.borrower is not None:
            self.borrower.give_way(self._budget.total_bytes)
        if self._budget.account(LENT_ACCOUNT):
            self._budget.set(LENT_ACCOUNT, 0)
        self.split = self._best_split()
        self._budget.set("index", 0)
        self._budget.set("pages", 0)
        self._budget.set("work", self.split.work_bytes)
        self._budget.set("index", self._index_bytes)
        self._memory.empty()
        self._slack = _Slack(self._budget.total_bytes)
        self._make_arena()
        self.cache = PageCache(self.arena, self.columns, len(self.index), self._decay)
        self._account_pages()

    def _best_split(self) -> MemorySplit:
        return MemorySplit.of(self._budget.total_bytes, self._all_demand(), self._landing)

    def _all_demand(self) -> Demand:
        demand = Demand.of(self.index, self._index_bytes, self.master.page_bytes, self._wanted, self._memory)
        return replace(demand, cost=self._device.cost([file.path for file in self.master.files]))

    def enough_for(self, stream_bytes: int) -> int:
        """A budget in which rows can have this many bytes."""
        demand, total_bytes = self._all_demand(), self._budget.total_bytes
        while MemorySplit.of(total_bytes, demand, self._landing).stream_bytes < stream_bytes:
            total_bytes += max(total_bytes // 8, stream_bytes)
        return total_bytes

    def _split_suits(self) -> bool:
        """Whether the split made for the previous version is close to the best one for this version."""
        best = self._best_split()
        is_wide = best.wave_pages <= _ALIKE * self.split.wave_pages
        return is_wide and self.split.stream_bytes <= _ALIKE * best.stream_bytes

    def _make_arena(self) -> None:
        split = self.split
        self.arena = Arena(
            split.landing_slots,
            split.slots,
            split.slot_bytes,
            split.oversize_bytes,
            split.scratch_bytes,
            self._memory,
        )
        self.columns = PageColumns(self.arena, self._wanted, self._ordinals)
        self.columns.blame = self._blame
        self._landed: Array = np.zeros(self.arena.landing + 1, np.int32)
        if self._memory.outlives:
            self._identities()  # takes its memory now, so that leaving cannot fail for lack of it

    def _open_reader(self) -> None:
        self.reader = PageReader(self.master, self.arena, self.columns, self._device)

    def _account_pages(self) -> None:
        slots_bytes = (self.split.landing_slots + self.arena.capacity + 1) * self.split.slot_cost
        fixed_bytes = self._memory.fixed_bytes + self.split.oversize_bytes + self.split.scratch_bytes
        self._budget.set("pages", slots_bytes + fixed_bytes)

    def _pages_fit(self) -> bool:
        return self.index.largest_blocks * BLOCK_BYTES <= max(
            self.split.slot_bytes, self.split.oversize_bytes
        ) and self.cache.fits(len(self.index))

    def _carry_over(self, cached: CachedPages, first: Array, checksum: Array) -> None:
        """Keep the cached pages, with these first keys and checksums, that this version has too."""
        self._budget.set("index", self._index_bytes)
        pages = find_pages(self.index, first, checksum)
        here = pages != ABSENT
        self.cache = PageCache(self.arena, self.columns, len(self.index), self._decay)
        self.cache.adopt(CachedPages(pages[here], cached.slots[here], cached.utility[here]))
        self.arena.free(cached.slots[~here])

    # Pages that are left for the next operator.

    @property
    def _key(self) -> str:
        """Identifies operators that can use each other's pages."""
        master = self.master
        facts = (
            master.id,
            self._budget.total_bytes,
            self._decay,
            self._shared_index,
            sorted({*self._names, master.key_column}),
            master.page_bytes,
            self._kind,
            _name_of(self._landing),
        )
        layouts = (master.stored.ids, [layout.ids for layout in master.stored.layouts])
        schemas = [master.stored_schema, *(layout.schema for layout in master.stored.layouts)]
        digest = blake2b(repr((facts, layouts)).encode(), digest_size=16)
        for schema in schemas:
            digest.update(schema.serialize())
        return digest.hexdigest()

    def _resume(self, left: dict[str, Any]) -> bool:
        """Continue with the pages that the last user left; False if they do not fit this version."""
        self.split = MemorySplit(**left["split"])
        if left["guest_bytes"]:
            self._budget.set(LENT_ACCOUNT, left["guest_bytes"])
        self._budget.set("work", self.split.work_bytes)
        self._budget.set("index", left["index_bytes"])
        self._slack = _Slack(self._budget.total_bytes, *left.get("slack", ()))
        self._make_arena()
        self.arena.resume(left["capacity"], left["free_slots"])
        self.cache = PageCache(self.arena, self.columns, left["pages"], self._decay, left["unit"])
        self._account_pages()
        if left["index"] == self.master.index_name:
            return True
        if not self._pages_fit() or not self.make_room(self._index_bytes - left["index_bytes"]):
            return False
        cached = self.cache.snapshot()
        first, checksum = self._identities()
        self._carry_over(cached, first[cached.slots], checksum[cached.slots])
        return True

    def _leave(self) -> None:
        self.check_memory()
        first, checksum = self._identities()
        slots = self.cache.new_slots()
        entries = self.index.take(self.cache.page_of(slots))
        first[slots] = entries.first
        checksum[slots] = entries.checksum
        self._memory.leave(
            {
                "split": asdict(self.split),
                "index": self.master.index_name,
                "index_bytes": self._index_bytes,
                "guest_bytes": self._budget.account(LENT_ACCOUNT),
                "pages": len(self.index),
                "capacity": self.arena.capacity,
                "free_slots": self.arena.free_slots,
                "unit": self.cache.unit,
                "slack": self._slack.to_json(),
            }
        )

    def _identities(self) -> tuple[Array, Array]:
        """First key and checksum of the page in each slot, whichever number a version gives it."""
        slots = self.arena.all_slots
        return self._memory.array("first", slots, np.int64), self._memory.array("checksum", slots, np.uint64)

    # Sizes.

    @property
    def _index_bytes(self) -> int:
        return index_bytes(self.index, self.filter, is_shared=self._shared_index)

    def _index_growth(self, master: Master) -> int:
        """The most by which index, filter and counters grow with another version."""
        counters_bytes = master.pages * PageCache.bytes_per_page
        bound = counters_bytes if self._shared_index else master.index_file_bytes + counters_bytes
        return bound - self._budget.account("index")


def _name_of(landing: LandingRule) -> str:
    return getattr(landing, "__name__", repr(landing))
