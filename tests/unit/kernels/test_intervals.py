"""Kernels over sorted intervals, compared with plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.intervals import merge_runs, overlap_ranges, sweep_clock

intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=25)


def ends_of(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends, sorted by the lower ones."""
    pairs = sorted(pairs)
    low = np.array([low for low, _ in pairs], np.int64)
    return low, low + np.array([length for _, length in pairs], np.int64)


@given(run=intervals, wanted=intervals)
def test_overlapping_intervals_are_in_the_range_that_is_found(run, wanted):
    (run_low, run_high), (low, high) = ends_of(run), ends_of(wanted)
    reach = np.maximum.accumulate(run_high) if len(run) else run_high
    begin, count = overlap_ranges(run_low, reach, low, high)
    for at in range(len(low)):
        found = range(begin[at], begin[at] + count[at])
        overlap = np.flatnonzero((run_low <= high[at]) & (run_high >= low[at]))
        assert set(overlap) <= set(found)
        assert all(run_low[each] <= high[at] and reach[each] >= low[at] for each in found)


@given(run=st.lists(st.integers(0, 20)), wanted=st.lists(st.integers(0, 20)))
def test_ranges_of_points_are_exact(run, wanted):
    points, keys = np.sort(np.array(run, np.int64)), np.sort(np.array(wanted, np.int64))
    begin, count = overlap_ranges(points, points, keys, keys)
    assert [points[at : at + n].tolist() for at, n in zip(begin, count, strict=True)] == [
        [point for point in points.tolist() if point == key] for key in keys
    ]


@st.composite
def runs(draw):
    """Lower and upper ends, places (some of them negative: the entry is gone) and join bits."""
    low, high = ends_of(draw(intervals))
    place = np.array(draw(st.lists(st.integers(-1, 99), min_size=len(low), max_size=len(low))), np.int64)
    joined = np.array(draw(st.lists(st.integers(0, 1), min_size=len(low), max_size=len(low))), np.uint8)
    return low, high, place, joined


@given(run=runs(), more=runs(), are_points=st.booleans())
def test_merging_runs_keeps_their_order_and_drops_what_is_gone(run, more, are_points):
    if are_points:
        nothing = np.empty(0, np.int64)
        run, more = (run[0], nothing, *run[2:]), (more[0], nothing, *more[2:])
    entries = [
        (int(one[0][at]), None if are_points else int(one[1][at]), int(one[2][at]), int(one[3][at]))
        for one in (run, more)
        for at in np.flatnonzero(one[2] >= 0)
    ]
    entries = sorted(entries, key=lambda entry: entry[0])  # stable: the first run comes first
    merged = [array.tolist() for array in merge_runs(*run, *more, len(entries))]
    low, high, place, joined = map(list, zip(*entries, strict=True)) if entries else ([], [], [], [])
    assert merged == [low, [] if are_points else high, place, joined]


def swept(run, more, first, last, hand, wanted):
    """The CLOCK algorithm over one list of all entries, step by step."""
    entries = [
        (int(key), number, at) for number, one in enumerate((run, more)) for at, key in enumerate(one[0])
    ]
    entries = sorted(entry for entry in entries if first <= entry[0] <= last)
    places, bits = [run[1].tolist(), more[1].tolist()], [run[2].tolist(), more[2].tolist()]
    chosen: list[list[int]] = [[], []]
    if not entries:
        return chosen, bits, hand
    at = 0
    if first <= hand <= last:
        at = next((number for number, entry in enumerate(entries) if entry[0] >= hand), len(entries))
    for _ in range(2 * len(entries)):
        if len(chosen[0]) + len(chosen[1]) == wanted:
            break
        at %= len(entries)
        _, number, place = entries[at]
        if places[number][place] >= 0 and place not in chosen[number]:
            if bits[number][place]:
                bits[number][place] = 0
            else:
                chosen[number].append(place)
        at += 1
    return chosen, bits, entries[at % len(entries)][0]


@given(
    run=runs(),
    more=runs(),
    first=st.integers(0, 30),
    length=st.integers(0, 30),
    hand=st.integers(-5, 60),
    wanted=st.integers(0, 60),
)
def test_the_clock_chooses_entries_without_a_join_bit(run, more, first, length, hand, wanted):
    arrays = [[one[0], one[2].copy(), one[3].copy()] for one in (run, more)]
    expected = swept(arrays[0], arrays[1], first, first + length, hand, wanted)
    chosen, more_chosen, stopped = sweep_clock(*arrays[0], *arrays[1], first, first + length, hand, wanted)
    assert [chosen.tolist(), more_chosen.tolist()] == expected[0]
    assert [arrays[0][2].tolist(), arrays[1][2].tolist()] == expected[1]
    assert stopped == expected[2]
    assert [arrays[0][1].tolist(), arrays[1][1].tolist()] == [run[2].tolist(), more[2].tolist()]
