"""The cache of master rows under random actions, and what stays when room is short."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adjoin.kernels.key_table import EMPTY
from adjoin.memory.page_memory import BLOCK_BYTES, PageFile
from adjoin.semistream.frontstage.rows_by_key import RowsByKey
from adjoin.semistream.frontstage.tuple_cache import CacheSizes, TupleCache

SCHEMA = pa.schema(
    [
        pa.field("_adjoin_key", pa.int64(), False),
        pa.field("text", pa.string()),
        pa.field("numbers", pa.list_(pa.int32())),
    ]
)
MEMORY_BYTES = 56 << 10
KEYS = st.integers(0, 400)


def row_of(key, number):
    """What the master says in row `number` of a key; the same whenever it is asked."""
    text = None if key % 5 == 0 else "x" * (key % 50) + str(number)
    return text, None if key % 7 == 0 else list(range(key % 4))


def groups_of(keys):
    rows = [1 + key % 3 for key in keys]
    owners = [(key, number) for key, count in zip(keys, rows, strict=True) for number in range(count)]
    values = [row_of(*owner) for owner in owners]
    columns = [
        pa.array([key for key, _ in owners], pa.int64()),
        pa.array([text for text, _ in values], pa.string()),
        pa.array([numbers for _, numbers in values], pa.list_(pa.int32())),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return RowsByKey(np.array(keys, np.int64), np.array(rows, np.int32), batch, np.zeros(len(keys), np.uint8))


def make_cache(ask=lambda _: True, memory=None, most_bytes=MEMORY_BYTES):
    sizes = CacheSizes.of(SCHEMA, most_bytes, 60)
    assert sizes is not None
    return TupleCache(SCHEMA, sizes, ask, memory)


class CacheMachine(RuleBasedStateMachine):
    """Whatever is found is what was put in."""

    def __init__(self):
        super().__init__()
        self.generous = True
        self.cache = make_cache(lambda _: self.generous)

    @rule(generous=st.booleans())
    def change_mood(self, generous):
        self.generous = generous

    @rule(wanted_bytes=st.integers(0, MEMORY_BYTES))
    def give_back(self, wanted_bytes):
        before = self.cache.bytes
        assert self.cache.give_back(wanted_bytes) == before - self.cache.bytes

    @rule(keys=st.sets(KEYS, min_size=1, max_size=200))
    def put(self, keys):
        asked = np.array(sorted(keys), np.int64)
        self.cache.put(groups_of(asked[~self.cache.knows(asked)].tolist()))

    @rule(keys=st.lists(KEYS, min_size=1, max_size=50))
    def look_up(self, keys):
        asked = np.array(keys, np.int64)
        entries = self.cache.find(asked)
        found = asked[entries != EMPTY]
        there = self.cache.places(entries[entries != EMPTY], found)
        owner, places = there.all()
        values = [
            self.cache.columns.take(column, places).to_pylist()
            for column in self.cache.layout_of(self.cache.schema.names)
        ]
        wanted = [(at, key, *row_of(key, n)) for at, key in enumerate(found) for n in range(1 + key % 3)]
        self.cache.vouch(there)
        assert list(zip(owner.tolist(), *values, strict=True)) == wanted

    @rule(keys=st.sets(KEYS, max_size=30))
    def drop(self, keys):
        asked = np.array(sorted(keys), np.int64)
        self.cache.drop(asked)
        assert not self.cache.knows(asked).any()

    @rule(least_heat=st.integers(0, 3))
    def forget(self, least_heat):
        self.cache.forget(lambda rows: np.full(len(rows), least_heat))

    @rule()
    def clear(self):
        self.cache.clear()
        assert len(self.cache) == 0

    @invariant()
    def sound(self):
        self.cache.check_invariants()
        assert self.cache.bytes <= MEMORY_BYTES


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class WarmCacheMachine(CacheMachine):
    """The same in a part of a file, which one user after the other goes on with."""

    def __init__(self):
        super().__init__()
        self.place = TemporaryDirectory()
        self.open()
        assert self.part.recall("key") is None
        self.cache = make_cache(lambda _: self.generous, self.part)

    def open(self):
        self.file = PageFile(Path(self.place.name) / "pages", 2 * MEMORY_BYTES)
        self.part = self.file.part("rows")
        self.file.recall("file")

    @rule()
    def leave(self):
        left = self.cache.leave()
        self.part.leave(left)
        keys = np.sort(self.cache.keys())
        self.cache.close()
        self.file.leave({})
        self.file.close()
        self.open()
        assert self.part.recall("key") == left
        self.cache = TupleCache.resume(SCHEMA, left, lambda _: self.generous, self.part)
        assert (np.sort(self.cache.keys()) == keys).all()
        assert (self.cache.find(keys) != EMPTY).all()

    @invariant()
    def stays_within_its_bytes(self):
        occupied = os.stat(self.file.path).st_blocks * 512
        assert occupied <= BLOCK_BYTES + self.part.fixed_bytes + self.cache.bytes

    def teardown(self):
        self.file.close()
        self.place.cleanup()


TestWarmCacheMachine = WarmCacheMachine.TestCase
TestWarmCacheMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_what_is_wanted_stays():
    cache = make_cache()
    hot = np.arange(20, dtype=np.int64)
    for first in range(0, 4_000, 100):
        keys = np.concatenate([hot, np.arange(first, first + 100) + 1_000])
        cache.count(keys, np.ones(len(keys), np.int64))
        cache.put(groups_of(keys[~cache.knows(keys)].tolist()))
        entries = cache.find(hot)
        cache.places(entries[entries != EMPTY], hot[entries != EMPTY])
    assert (cache.find(hot) != EMPTY).all()
    assert not cache.knows(np.arange(1_000, 1_100)).any()


def test_when_memory_goes_back_what_is_wanted_stays():
    cache = make_cache(most_bytes=1 << 20)
    keys = np.arange(0, 4_000, dtype=np.int64)
    cache.put(groups_of(keys.tolist()))
    known = keys[cache.find(keys) != EMPTY]
    hot = known[::7]
    for _ in range(5):
        cache.places(cache.find(hot), hot)
    assert cache.give_back(cache.bytes // 4) > 0
    assert len(hot) < len(cache) < len(known)
    assert (cache.find(hot) != EMPTY).all()


def test_new_keys_must_be_wanted_as_often_as_those_that_stay():
    cache = make_cache(most_bytes=1 << 20)
    keys = np.arange(20_000, dtype=np.int64)
    for first in range(0, 20_000, 50):
        cache.count(keys[first : first + 50], np.full(50, 3))
        cache.put(groups_of(keys[first : first + 50].tolist()))
    assert cache.least_seen >= 3
    cache.leave()
    cached = cache.keys()
    seldom = np.arange(30_000, 30_200, dtype=np.int64)
    cache.count(seldom, np.ones(200, np.int64))
    cache.put(groups_of(seldom.tolist()))
    cache.leave()
    assert np.isin(cached, cache.keys()).mean() > 0.99
    assert np.isin(seldom, cache.keys()).mean() < 0.1


def test_times_fade():
    cache = make_cache()
    key = np.array([7], np.int64)
    assert cache.count(key, np.array([100])).tolist() == [100]
    for _ in range(40):
        others = np.random.default_rng(1).integers(1 << 20, 1 << 40, 200)
        cache.count(others, np.ones(200, np.int64))
    assert cache.count(key, np.array([1]))[0] < 100


@pytest.mark.parametrize("memory_bytes", [0, 100, 4_000, 9_000])
def test_too_little_memory_is_said(memory_bytes):
    assert CacheSizes.of(SCHEMA, memory_bytes, 60) is None
