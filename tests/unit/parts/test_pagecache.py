"""Arena and page cache under random actions, and the utility policy."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adjoin.parts.arena import Arena
from adjoin.parts.pagecache import ABSENT, PageCache

SLOTS, PAGES = 12, 40


class CacheMachine(RuleBasedStateMachine):
    """Whatever is done, the cache holds what was put and not dropped, and every byte where it was put."""

    def __init__(self):
        super().__init__()
        self.arena = Arena(SLOTS, 4096, 0, 4096)
        self.cache = PageCache(self.arena, PAGES, 0.5)
        self.held = {}

    @rule(count=st.integers(0, SLOTS))
    def grow(self, count):
        before = self.arena.capacity
        assert self.arena.grow(count) == min(count, SLOTS - before)

    @rule(count=st.integers(0, SLOTS))
    def shrink(self, count):
        count = min(count, self.arena.free_slots)
        before = self.arena.capacity
        self.arena.shrink(count)
        assert self.arena.capacity == before - count

    @precondition(lambda self: self.arena.free_slots)
    @rule(page=st.integers(0, PAGES - 1))
    def put(self, page):
        if page not in self.held:
            slot = self.arena.take(1)
            self.cache.put(np.array([page]), slot)
            base = self.arena.slot_base[slot[0]]
            self.arena.bytes[base : base + 4096] = page + 1
            self.held[page] = True

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
        gone = pages[self.cache.slot_of_page[pages] == ABSENT]
        kept = pages[self.cache.slot_of_page[pages] != ABSENT]
        assert len(gone) == dropped == min(count, len(pages))
        if len(gone) and len(kept):
            assert utility[np.isin(pages, gone)].max() <= utility[np.isin(pages, kept)].min()
        for page in gone.tolist():
            del self.held[page]

    @invariant()
    def holds_together(self):
        self.arena.check_invariants()
        self.cache.check_invariants()
        assert sorted(self.cache.pages().tolist()) == sorted(self.held)
        for page in self.held:
            base = self.arena.slot_base[self.cache.slot_of_page[page]]
            assert (self.arena.bytes[base : base + 4096] == page + 1).all()


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCache = CacheMachine.TestCase


def cache_with(pages, room, decay=0.5):
    arena = Arena(room, 4096, 0, 4096)
    arena.grow(room)
    cache = PageCache(arena, 20, decay)
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


def test_memory_given_back_is_not_resident():
    arena = Arena(4096, 8192, 0, 4096)
    arena.grow(4096)
    slots = arena.take(4096)
    arena.bytes[: 4096 * 8192] = 7
    arena.free(slots)
    before = resident_bytes()
    arena.shrink(4000)
    assert before - resident_bytes() > 3900 * 8192


def resident_bytes():
    with open("/proc/self/smaps_rollup") as memory:
        line = next(line for line in memory if line.startswith("Rss:"))
    return int(line.split()[1]) * 1024
