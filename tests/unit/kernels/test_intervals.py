"""Runs of intervals searched, merged and swept, against NumPy and a list of entries."""

from dataclasses import dataclass

import numpy as np
import pytest

from adjoin.kernels.intervals import (
    NOT_BEGUN,
    do_overlap,
    greatest_reach,
    key_ranges,
    length_classes,
    merge_runs,
    overlap_pairs,
    segment_reach,
    sweep_clock,
)

LEAST, GREATEST = -(2**63), 2**63 - 1
SEEDS = range(12)


def intervals(random, rows, keys=60, longest=8):
    """Random intervals in the order of their lower ends."""
    low = np.sort(random.integers(0, keys, rows))
    return low, low + random.integers(0, longest, rows)


def assert_ranges(keys, low, high):
    begin, count = key_ranges(keys, low, high)
    first = np.searchsorted(keys, low, "left")
    assert begin.tolist() == first.tolist()
    assert count.tolist() == (np.searchsorted(keys, high, "right") - first).tolist()


@pytest.mark.parametrize("longest", [1, 8, 100])
@pytest.mark.parametrize("seed", SEEDS)
def test_key_ranges_hold_the_keys_in_each_interval(seed, longest):
    random = np.random.default_rng(seed)
    keys, _ = intervals(random, int(random.integers(0, 50)))
    assert_ranges(keys, *intervals(random, int(random.integers(0, 50)), longest=longest))


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ([], ([5], [9])),
        ([5], ([], [])),
        ([5, 9], ([0, 9, 10], [4, 9, 20])),
        ([LEAST, GREATEST], ([LEAST, LEAST, GREATEST], [LEAST, GREATEST, GREATEST])),
    ],
)
def test_key_ranges_of_edge_cases(keys, asked):
    assert_ranges(np.array(keys, np.int64), *(np.array(ends, np.int64) for ends in asked))


def test_key_ranges_of_points_are_equal_keys():
    keys = np.array([1, 3, 3, 3, 8])
    asked = np.array([0, 1, 3, 3, 5, 8, 9])
    begin, count = key_ranges(keys, asked, asked)
    assert count.tolist() == [0, 1, 3, 3, 0, 1, 0]
    assert begin[count > 0].tolist() == [0, 1, 1, 4]


def run_of(random, rows, first_place, removed=0.3):
    """Lower and upper ends, places of which some are negative, as of entries that were removed; join bits."""
    low, high = intervals(random, rows)
    place = first_place + np.arange(rows)
    place = np.where(random.random(rows) < removed, -place - 1, place)
    return low, high, place, random.integers(0, 2, rows).astype(np.uint8)


def mixed_run(random, rows, removed=0.3):
    """Short intervals with some long ones among them, and places of which some are negative."""
    low, high, place, _ = run_of(random, rows, 0, removed)
    high = np.where(random.random(rows) < 0.1, high + random.integers(0, 100, rows), high)
    return low, high, place


def assert_reach(high, place):
    reach = segment_reach(high, place)
    for at in range(len(high)):
        segment = slice(at & (at + 1), at + 1)
        there = high[segment][place[segment] >= 0]
        assert reach[at] == (there.max() if len(there) else LEAST)
    assert greatest_reach(reach) == max([LEAST, *high[place >= 0].tolist()])
    return reach


def assert_pairs(run, asked, most):
    """All pairs come once, those of an interval together, and no more than `most` at a time."""
    low, high, place = run
    reach, row, at = assert_reach(high, place), 0, NOT_BEGUN
    found: list[tuple[int, int]] = []
    while row < len(asked[0]):
        owner, entry, row, at = overlap_pairs(low, high, place, reach, *asked, row, at, most)
        assert len(owner) == len(entry) <= most
        assert len(owner) == most or row == len(asked[0]), "it stops only when there are as many as wanted"
        found += zip(owner.tolist(), entry.tolist(), strict=True)
    wanted = [
        (number, entry)
        for number, (first, last) in enumerate(zip(*asked, strict=True))
        for entry in np.flatnonzero((low <= last) & (high >= first) & (place >= 0)).tolist()
    ]
    assert sorted(found) == wanted
    assert [number for number, _ in found] == [number for number, _ in wanted]
    overlapping = do_overlap(low, reach, *asked)
    assert np.flatnonzero(overlapping).tolist() == sorted({number for number, _ in wanted})


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
@pytest.mark.parametrize("longest", [1, 8, 100])
@pytest.mark.parametrize("seed", SEEDS)
def test_overlap_pairs_are_those_that_overlap(seed, longest, most):
    random = np.random.default_rng(seed)
    run = mixed_run(random, int(random.integers(0, 70)), random.choice([0.0, 0.3, 1.0]))
    assert_pairs(run, intervals(random, int(random.integers(0, 40)), longest=longest), most)


@pytest.mark.parametrize(
    ("run", "asked"),
    [
        (([], []), ([5], [9])),
        (([5], [9]), ([], [])),
        (([5], [9]), ([0, 10], [4, 20])),
        (([5], [9]), ([0, 9], [5, 9])),
        (([0, 1, 2], [100, 1, 2]), ([50], [60])),
        (([LEAST, GREATEST], [LEAST, GREATEST]), ([LEAST, LEAST, GREATEST], [LEAST, GREATEST, GREATEST])),
    ],
)
def test_overlap_pairs_of_edge_cases(run, asked):
    low, high = (np.array(ends, np.int64) for ends in run)
    asked = tuple(np.array(ends, np.int64) for ends in asked)
    assert_pairs((low, high, np.arange(len(low))), asked, 100)


class Counted:
    """An array that counts the entries that are read."""

    def __init__(self, array):
        self.array = array
        self.reads = 0

    def __getitem__(self, at):
        self.reads += 1
        return self.array[at]


def steps_and_pairs(low, high, asked):
    """How many segments a search looks at, and how many pairs it finds."""
    place = np.arange(len(low))
    reach = Counted(segment_reach(high, place))
    search = overlap_pairs.py_func
    owner, *_ = search(low, high, place, reach, asked, asked, 0, NOT_BEGUN, 10**6)
    return reach.reads, len(owner)


@pytest.mark.parametrize(("share", "times"), [(0.01, 50), (0.01, 1000), (0.0001, 10_000_000)])
def test_long_intervals_among_short_ones_cost_what_they_match(share, times):
    random = np.random.default_rng(1)
    rows, probes = 50_000, 500
    low = np.sort(random.integers(0, 1 << 40, rows))
    high = low + random.integers(0, (4 << 40) // rows, rows)
    asked = np.sort(random.integers(0, 1 << 40, probes))
    steps, pairs = steps_and_pairs(low, high, asked)
    assert steps < 2 * probes * np.log2(rows)
    long = random.choice(rows, int(share * rows), replace=False)
    high[long] = low[long] + times * ((2 << 40) // rows)
    more_steps, more_pairs = steps_and_pairs(low, high, asked)
    added = more_pairs - pairs
    assert added > probes / 4
    assert more_steps < 2 * steps + 4 * np.log2(rows) * added


def test_a_search_is_short_even_among_nested_intervals():
    low, asked = np.arange(2_000), np.arange(3_800, 4_001, 10)
    steps, pairs = steps_and_pairs(low, 4_000 - low, asked)
    assert pairs == np.minimum(4_000 - asked + 1, 2_000).sum()
    assert steps <= 2 * pairs + len(asked) * np.log2(2_000) ** 2 / 2


@pytest.mark.parametrize("has_high", [True, False])
@pytest.mark.parametrize("removed", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_merged_run_has_the_entries_of_both_that_were_not_removed(seed, removed, has_high):
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 40, 2)
    runs = [run_of(random, int(rows), start, removed) for rows, start in zip(sizes, (0, 2), strict=True)]
    wanted = [np.concatenate(columns) for columns in zip(*runs, strict=True)]
    order = np.argsort(wanted[0], kind="stable")
    order = order[wanted[2][order] >= 0]
    given = [(low, high if has_high else high[:0], place, joined) for low, high, place, joined in runs]
    found = merge_runs(*given[0], *given[1], len(order))
    assert found[0].tolist() == wanted[0][order].tolist()
    # Ends that were left out stay left out; with no entries to be merged there is nothing to leave out.
    if has_high:
        assert found[1].tolist() == wanted[1][order].tolist()
    elif sizes.any():
        assert len(found[1]) == 0
    assert found[2].tolist() == wanted[2][order].tolist()
    assert found[3].tolist() == wanted[3][order].tolist()


def test_entries_with_equal_keys_stay_in_the_order_of_their_runs():
    one = np.array([5, 5]), np.array([6, 7]), np.array([0, 1]), np.array([1, 0], np.uint8)
    other = np.array([5]), np.array([9]), np.array([2]), np.array([1], np.uint8)
    low, high, place, joined = merge_runs(*one, *other, 3)
    assert (low.tolist(), high.tolist()) == ([5, 5, 5], [6, 7, 9])
    assert (place.tolist(), joined.tolist()) == ([0, 1, 2], [1, 0, 1])


@dataclass
class Entry:
    """One entry of a run as the clock sees it."""

    key: int
    run: int
    at: int
    is_there: bool
    joined: bool
    is_chosen: bool = False


def swept(entries, hand, first, last, wanted):
    """Chosen entries and the new hand: the clock goes around the keys of the range, twice at most."""
    ring = [entry for entry in entries if first <= entry.key <= last]
    chosen: list[Entry] = []
    if not ring:
        return chosen, hand
    at = 0
    if first <= hand <= last:
        at = sum(entry.key < hand for entry in ring)
    for _ in range(2 * len(ring)):
        if len(chosen) == wanted:
            break
        entry = ring[at % len(ring)]
        at += 1
        if not entry.is_there or entry.is_chosen:
            continue
        if entry.joined:
            entry.joined = False
        else:
            entry.is_chosen = True
            chosen.append(entry)
    return chosen, ring[at % len(ring)].key


def assert_swept(runs, first, last, hand, wanted):
    """`runs` are pairs of (keys, places, join bits); what the kernel does to them is what the list says."""
    entries = [
        Entry(int(key), run, at, bool(places[at] >= 0), bool(joined[at]))
        for run, (keys, places, joined) in enumerate(runs)
        for at, key in enumerate(keys)
    ]
    entries.sort(key=lambda entry: entry.key)  # stable: of equal keys those of the first run come first
    before = [places.copy() for _, places, _ in runs]
    chosen, next_hand = swept(entries, hand, first, last, wanted)
    *found, found_hand = sweep_clock(*runs[0], *runs[1], first, last, hand, wanted)
    for run, (_, places, joined) in enumerate(runs):
        assert found[run].tolist() == [entry.at for entry in chosen if entry.run == run]
        assert places.tolist() == before[run].tolist(), "places are as they were"
        wanted_bits = sorted((entry.at, entry.joined) for entry in entries if entry.run == run)
        assert joined.tolist() == [bit for _, bit in wanted_bits]
    assert found_hand == next_hand


@pytest.mark.parametrize("share_joined", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_clock_chooses_entries_without_join_bits_from_the_hand_on(seed, share_joined):
    random = np.random.default_rng(seed)
    for _ in range(20):
        runs = []
        for start in (0, 100):
            keys, _, places, _ = run_of(random, int(random.integers(0, 25)), start)
            runs.append((keys, places, (random.random(len(keys)) < share_joined).astype(np.uint8)))
        first, last = np.sort(random.integers(-5, 65, 2))
        hand, wanted = int(random.integers(-5, 65)), int(random.integers(0, 40))
        assert_swept(runs, int(first), int(last), hand, wanted)


def test_the_clock_chooses_no_entry_twice_and_stops_after_two_rounds():
    runs = [
        (np.array([1, 2, 3]), np.array([0, 1, 2]), np.array([1, 0, 1], np.uint8)),
        (np.array([2]), np.array([3]), np.array([1], np.uint8)),
    ]
    assert_swept(runs, 0, 9, 2, 100)


def test_the_clock_stays_where_no_entry_has_such_a_key():
    runs = [(np.array([1, 9]), np.array([0, 1]), np.zeros(2, np.uint8))] * 2
    chosen, more, hand = sweep_clock(*runs[0], *runs[1], 3, 5, 4, 10)
    assert (len(chosen), len(more), hand) == (0, 0, 4)


def test_the_clock_takes_extreme_keys():
    keys = np.array([LEAST, 0, GREATEST])
    runs = [(keys, np.arange(3), np.zeros(3, np.uint8)), (keys, np.arange(3), np.ones(3, np.uint8))]
    assert_swept(runs, LEAST, GREATEST, GREATEST, 4)


def test_length_classes_are_factors_of_four():
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    intervals = [(5, 5), (0, 1), (0, 3), (0, 4), (-7, 8), (0, 16), (-1, greatest), (least, greatest)]
    low, high = np.array(intervals).T
    expected = [-(-(end - begin).bit_length() // 2) for begin, end in intervals]
    assert length_classes(low, high).tolist() == expected == [0, 1, 1, 2, 2, 3, 32, 32]
