"""The index of tuples in memory against plain lists."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.streamjoin.memory.ordered_index import OrderedIndex

keys = st.integers(-20, 20)
widths = st.one_of(st.integers(0, 3), st.integers(0, 3), st.integers(0, 40))
intervals = st.lists(st.tuples(keys, widths), max_size=30)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), intervals),
        st.tuples(st.just("lowest"), st.integers(1, 9)),
        st.tuples(st.just("highest"), st.integers(1, 9)),
        st.tuples(st.just("coldest"), st.integers(1, 9)),
        st.tuples(st.just("find"), intervals),
    ),
    max_size=20,
)


def sorted_arrays(some: list[tuple[int, int]], are_points: bool) -> tuple[Any, Any]:
    pairs = sorted((low, low if are_points else low + width) for low, width in some)
    low = np.array([low for low, _ in pairs], np.int64)
    return low, low if are_points else np.array([high for _, high in pairs], np.int64)


@pytest.mark.parametrize("are_points", [True, False])
@given(actions=actions)
def test_it_finds_and_removes_what_a_list_does(actions, are_points):
    index = OrderedIndex(are_points=are_points)
    model: dict[int, tuple[int, int]] = {}
    number = 0
    for action, argument in actions:
        if action == "add":
            low, high = sorted_arrays(argument, are_points)
            place = np.arange(number, number + len(low))
            number += len(low)
            index.add(low, high, place)
            model.update((int(p), (int(a), int(b))) for p, a, b in zip(place, low, high, strict=True))
        elif action == "find":
            low, high = sorted_arrays(argument, are_points)
            found = [
                (int(owner), int(place))
                for some in index.matches(low, high, limit=7)
                for owner, place in zip(some.owner, some.place, strict=True)
            ]
            wanted = [
                (owner, place)
                for owner in range(len(low))
                for place, (a, b) in model.items()
                if a <= high[owner] and b >= low[owner]
            ]
            assert sorted(found) == sorted(wanted)
            assert set(np.flatnonzero(index.may_match(low, high))) >= {owner for owner, _ in wanted}
        else:
            _take(index, model, action, argument)
        index.check_invariants()
        assert len(index) == len(model)
        if model:
            first, last = index.span
            assert first <= min(low for low, _ in model.values())
            assert last == max(high for _, high in model.values()) or are_points


def _take(index: OrderedIndex, model: dict[int, tuple[int, int]], action: str, count: int) -> None:
    lows = sorted(low for low, _ in model.values())
    entries = index.coldest(count, -99, 99) if action == "coldest" else getattr(index, action)(count)
    place, low, _ = index.places(entries)
    assert entries.size == len(place) == min(count, len(model))
    assert low.tolist() == sorted(low.tolist())
    if action == "lowest":
        assert low.tolist() == lows[:count]
    if action == "highest":
        assert low.tolist() == lows[max(len(lows) - count, 0) :]
    index.remove(entries)
    for one in place.tolist():
        del model[one]


def test_the_clock_spares_a_joined_tuple_once():
    index = OrderedIndex(are_points=True)
    low = np.arange(10)
    index.add(low, low, low)
    for _ in index.matches(np.array([0, 1, 2, 3, 4]), np.array([0, 1, 2, 3, 4]), limit=99):
        pass
    entries = index.coldest(5, -1, 99)
    first, _, _ = index.places(entries)
    assert first.tolist() == [5, 6, 7, 8, 9]
    index.remove(entries)
    second, _, _ = index.places(index.coldest(5, -1, 99))
    assert second.tolist() == [0, 1, 2, 3, 4]


def test_a_long_interval_that_has_left_leaves_no_trace():
    index = OrderedIndex(are_points=False)
    low = np.arange(0, 1000, 10)
    high = low + 5
    high[3] = 5000
    index.add(low, high, np.arange(100))
    beyond = np.array([7, 2000])
    assert index.span == (0, 5000)
    assert index.may_match(beyond, beyond).tolist() == [False, True]
    index.remove(index.at(np.array([3])))
    assert index.span == (0, 995)
    assert index.may_match(beyond, beyond).tolist() == [False, False]
    index.check_invariants()


def test_the_clock_ignores_tuples_outside_its_range():
    index = OrderedIndex(are_points=True)
    low = np.arange(10)
    index.add(low, low, low)
    place, _, _ = index.places(index.coldest(99, 3, 6))
    assert place.tolist() == [3, 4, 5, 6]
    index.remove(index.all())
    assert index.coldest(9, -1, 99).size == 0


@given(
    first=st.sets(st.integers(0, 50), min_size=1, max_size=20), later=st.sets(st.integers(0, 50), max_size=9)
)
def test_tuples_of_a_slot_can_be_moved(first, later):
    index = OrderedIndex(are_points=True)
    for keys in (first, later):
        low = np.array(sorted(keys), np.int64)
        index.add(low, low, (low % 3 << 32) + low)
    before = index.in_slot(1)
    assert set((before & 0xFFFF).tolist()) == {key for key in first | later if key % 3 == 1}
    if len(before):
        index.move(before, before + (7 << 32))
    place, low, _ = index.places(index.all())
    assert (place >> 32 == np.where(low % 3 == 1, 8, low % 3)).all()
    assert (place & 0xFFFF == low).all()
