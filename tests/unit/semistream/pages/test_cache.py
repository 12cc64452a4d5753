"""Arena and page cache under random actions, and the utility policy."""

import ctypes

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adjoin.memory.arena import Arena
from adjoin.memory.page_columns import PageColumns, columns_of
from adjoin.semistream.pages.cache import ABSENT, PageCache

SLOTS, PAGES, LANDING = 12, 40, 3
SCHEMA = pa.schema({"key": pa.int64(), "text": pa.string()})


def empty_cache(slots, pages, decay):
    arena = Arena(LANDING, slots, 4096, 8192, 4096)
    return arena, PageCache(arena, PageColumns(arena, columns_of(SCHEMA)), pages, decay)


class CacheMachine(RuleBasedStateMachine):
    """Whatever is done, the cache holds what was kept and not dropped, every byte as it was read."""

    def __init__(self):
        super().__init__()
        self.arena, self.cache = empty_cache(SLOTS, PAGES, 0.5)
        self.held = set()

    @rule(count=st.integers(0, SLOTS))
    def grow(self, count):
        before = self.arena.capacity
        self.arena.grow(count)
        assert self.arena.capacity == min(before + count, SLOTS)

    @rule(count=st.integers(0, SLOTS))
    def shrink(self, count):
        count = min(count, self.arena.capacity)
        before = self.arena.capacity
        self.cache.shrink(count)
        assert self.arena.capacity == before - count
        gone = self.held - set(self.cache.pages().tolist())
        assert len(gone) <= count
        self.held -= gone

    @precondition(lambda self: self.arena.free_slots)
    @rule(page=st.integers(0, PAGES - 1), landed=st.integers(0, LANDING - 1))
    def keep(self, page, landed):
        if page not in self.held:
            base = self.arena.slot_base[landed]
            self.arena.bytes[base : base + 4096] = page + 1
            self.cache._columns.rows[landed] = page + 1
            self.cache._columns.offsets[:, landed] = page + 2
            self.cache.keep(np.array([page]), np.array([landed], np.int32))
            self.held.add(page)

    @rule(page=st.integers(0, PAGES - 1), times=st.integers(1, 5))
    def credit(self, page, times):
        self.cache.credit(np.full(times, page))

    @rule()
    def fade(self):
        self.cache.fade()

    @rule(count=st.integers(0, SLOTS))
    def drop_least_useful(self, count):
        pages = np.array(sorted(self.held), np.int64)
        utility = self.cache.utility(pages)
        dropped = self.cache.drop_least_useful(count)
        gone = pages[self.cache.slot_of(pages) == ABSENT]
        kept = pages[self.cache.slot_of(pages) != ABSENT]
        assert len(gone) == dropped == min(count, len(pages))
        if len(gone) and len(kept):
            assert utility[np.isin(pages, gone)].max() <= utility[np.isin(pages, kept)].min()
        self.held -= set(gone.tolist())

    @invariant()
    def holds_together(self):
        self.arena.check_invariants()
        self.cache.check_invariants()
        assert set(self.cache.pages().tolist()) == self.held
        for page in self.held:
            slot = self.cache.slot_of(np.array([page]))[0]
            base = self.arena.slot_base[slot]
            assert (self.arena.bytes[base : base + 4096] == page + 1).all()
            assert self.cache._columns.rows[slot] == page + 1
            assert (self.cache._columns.offsets[:, slot] == page + 2).all()


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCache = CacheMachine.TestCase


def cache_with(pages, room, decay=0.5):
    arena, cache = empty_cache(room, 20, decay)
    arena.grow(room)
    cache.put(np.array(pages), arena.take(len(pages)))
    return cache


def test_rank_keeps_the_most_useful_of_cached_and_unread_pages():
    cache = cache_with([1, 2, 3], room=3)
    cache.credit(np.array([1, 1, 1, 2, 3, 3, 7, 7, 8, 8, 8, 8]))
    keep, remove = cache.rank(np.array([7, 8, 9]), room=3)
    assert keep.tolist() == [False, True, False] or keep.tolist() == [True, True, False]
    assert remove[0] == 2


def test_rank_keeps_everything_where_there_is_room():
    cache = cache_with([1, 2], room=10)
    keep, remove = cache.rank(np.array([5, 6]), room=10)
    assert keep.all()
    assert len(remove) == 0


def test_rank_with_no_room_keeps_nothing():
    cache = cache_with([1, 2], room=2)
    keep, remove = cache.rank(np.array([5]), room=0)
    assert not keep.any()
    assert sorted(remove.tolist()) == [1, 2]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_after_a_join_phase_the_last_phase_still_breaks_ties(decay):
    """Utilities cleared to zero would leave the order among pages to chance."""
    cache = cache_with([1, 2, 3], room=3, decay=decay)
    cache.credit(np.array([1, 3, 3, 2, 2, 2]))
    cache.fade()
    cache.drop_least_useful(1)
    assert sorted(cache.pages().tolist()) == [2, 3]


def test_decay_zero_forgets_against_new_use():
    cache = cache_with([1, 2], room=2, decay=0.0)
    cache.credit(np.full(1000, 1))
    cache.fade()
    cache.credit(np.array([2]))
    cache.drop_least_useful(1)
    assert cache.pages().tolist() == [2]


def test_utilities_stay_finite_over_many_phases():
    cache = cache_with([1, 2], room=2, decay=0.0)
    for _ in range(500):
        cache.credit(np.array([1, 1, 2]))
        cache.fade()
        cache.check_invariants()
    cache.drop_least_useful(1)
    assert cache.pages().tolist() == [1]


@pytest.mark.parametrize("slots", [1000, 8192])
def test_memory_given_back_is_not_resident(slots):
    """In small arenas slot by slot, in large ones by huge pages; pages that stay keep their bytes."""
    arena, cache = empty_cache(slots, slots, 0.5)
    arena.grow(slots)
    pages = np.arange(slots)
    cache.put(pages, arena.take(slots))
    numbers = arena.bytes[arena.slot_base[arena.landing] : arena.slot_base[arena.landing] + slots * 4096]
    numbers.reshape(slots, 4096)[cache.slot_of(pages) - arena.landing] = (pages % 251)[:, None]
    cache.credit(pages[: slots // 4].repeat(2))
    before = resident_bytes(arena)
    released = slots // 2 // arena.grain * arena.grain
    cache.shrink(released)
    assert before - resident_bytes(arena) == released * 4096
    stayed = cache.pages()
    assert set(range(slots // 4)) <= set(stayed.tolist())
    for page in stayed.tolist():
        base = arena.slot_base[cache.slot_of(np.array([page]))[0]]
        assert (arena.bytes[base : base + 4096] == page % 251).all()


def resident_bytes(arena):
    """Memory that the arena holds, asked page by page: the system joins neighbouring mappings into one."""
    pages = np.zeros(-(-arena.bytes.nbytes // 4096), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    asked = (ctypes.c_void_p(arena.bytes.ctypes.data), ctypes.c_size_t(arena.bytes.nbytes))
    assert libc.mincore(*asked, ctypes.c_void_p(pages.ctypes.data)) == 0
    return int((pages & 1).sum()) * 4096
