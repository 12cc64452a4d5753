"""The hash table, compared with a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.key_table import (
    EMPTY,
    MOST_SEEN,
    count_seen,
    find_keys,
    heat_entries,
    insert_keys,
    remove_keys,
    times_seen,
)

LENGTH = 23
KEYS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 30)


class Table:
    def __init__(self):
        self.key = np.zeros(LENGTH, np.int64)
        self.slot = np.full(LENGTH, EMPTY, np.int32)
        self.row, self.rows = np.zeros(LENGTH, np.int32), np.zeros(LENGTH, np.int32)
        self.heat = np.zeros(LENGTH, np.uint8)
        self.known: dict[int, int] = {}

    def insert(self, key, slot):
        entries = insert_keys(np.array([key], np.int64), self.key, self.slot, slot)
        self.row[entries], self.rows[entries], self.heat[entries] = slot + 1, slot + 2, slot + 3
        self.known[key] = slot

    def remove(self, key):
        keys = np.array([key, key], np.int64)
        removed = remove_keys(keys, self.key, self.slot, self.row, self.rows, self.heat)
        assert removed == (self.known.pop(key, None) is not None)

    def check(self, key):
        (entry,) = find_keys(np.array([key], np.int64), self.key, self.slot)
        if key not in self.known:
            assert entry == EMPTY
            return
        slot = self.known[key]
        assert (self.key[entry], self.slot[entry]) == (key, slot)
        assert (self.row[entry], self.rows[entry], self.heat[entry]) == (slot + 1, slot + 2, slot + 3)


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=200))
def test_an_inserted_key_is_found_until_it_is_removed(actions):
    table, ever = Table(), set()
    for number, (key, is_new) in enumerate(actions):
        if is_new and key not in table.known and len(table.known) < LENGTH - 1:
            table.insert(key, number)
        else:
            table.remove(key)
        ever.add(key)
        for one in ever:
            table.check(one)
        assert np.count_nonzero(table.slot != EMPTY) == len(table.known)


def test_heat_is_capped():
    heat = np.zeros(3, np.uint8)
    heat_entries(heat, np.array([1, 1, 2, 1, 1], np.int32), 3)
    assert heat.tolist() == [0, 3, 1]


def test_times_add_up():
    seen = np.zeros(1 << 10, np.uint8)
    keys = np.array([5, -7], np.int64)
    assert count_seen(keys, np.array([1, 2]), seen).tolist() == [1, 2]
    assert count_seen(keys, np.array([3, 1_000]), seen).tolist() == [4, MOST_SEEN]
    assert seen.sum() == 2 * (4 + MOST_SEEN)
    assert times_seen(np.array([5, 6, -7]), seen).tolist() == [4, 0, MOST_SEEN]


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 3)), min_size=1, max_size=80))
def test_the_frequency_of_a_key_is_never_underestimated(pairs):
    seen = np.zeros(32, np.uint8)
    truth: dict[int, int] = {}
    for key, times in pairs:
        truth[key] = truth.get(key, 0) + times
        (counted,) = count_seen(np.array([key]), np.array([times]), seen)
        assert counted >= truth[key]
    assert (times_seen(np.array(list(truth)), seen) >= np.array(list(truth.values()))).all()
