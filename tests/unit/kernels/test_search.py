"""The search kernels, compared with plain NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.gather import SOUND
from adjoin.kernels.search import count_pages, expand, locate_pages, probe_pages

keys = st.integers(-40, 40)


@st.composite
def pages(draw):
    rows = sorted(draw(st.lists(keys, min_size=0, max_size=60)))
    cuts = (
        sorted(set(draw(st.lists(st.integers(1, max(1, len(rows) - 1)), max_size=12))))
        if len(rows) > 1
        else []
    )
    return [part for part in np.split(np.array(rows, np.int64), cuts) if len(part)]


@given(parts=pages(), ranges=st.lists(st.tuples(keys, st.integers(-2, 10)), max_size=30))
def test_locate_finds_exactly_the_pages_that_overlap_the_range(parts, ranges):
    first = np.array([part[0] for part in parts], np.int64)
    last = np.array([part[-1] for part in parts], np.int64)
    ranges = sorted(ranges)
    low = np.array([low for low, _ in ranges], np.int64)
    high = np.array([low + width for low, width in ranges], np.int64)
    start, stop = locate_pages(low, high, first, last)
    for row in range(len(ranges)):
        expected = [
            p
            for p in range(len(parts))
            if low[row] <= high[row] and last[p] >= low[row] and first[p] <= high[row]
        ]
        assert list(range(start[row], stop[row])) == expected


@given(parts=pages(), ranges=st.lists(st.tuples(keys, st.integers(0, 10)), min_size=1, max_size=10))
def test_probe_finds_exactly_the_rows_in_the_range(parts, ranges):
    words = np.concatenate([np.full(3, 99, np.int64), *parts]) if parts else np.full(3, 99, np.int64)
    base = np.zeros(len(parts), np.int64)
    offset = np.cumsum([24, *(8 * len(part) for part in parts)])[: len(parts)].astype(np.int32)
    rows = np.array([len(part) for part in parts], np.int32)
    low = np.array([low for low, _ in ranges], np.int64)
    high = low + np.array([width for _, width in ranges], np.int64)
    need_row, need_slot = (
        grid.ravel().astype(np.int32) for grid in np.meshgrid(np.arange(len(ranges)), np.arange(len(parts)))
    )
    rooms = np.array([words.nbytes, words.nbytes])
    begin, count, bad = probe_pages(low, high, need_row, need_slot, words, base, rooms, offset, rows)
    assert bad == SOUND
    for need in range(len(need_row)):
        part = parts[need_slot[need]]
        inside = np.flatnonzero((part >= low[need_row[need]]) & (part <= high[need_row[need]]))
        assert count[need] == len(inside)
        assert len(inside) == 0 or begin[need] == inside[0]


@given(spans=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5)), max_size=20))
def test_expand_is_repeat_and_arange(spans):
    start = np.array([start for start, _ in spans], np.int32)
    count = np.array([count for _, count in spans], np.int32)
    owner, value = expand(start, count, int(count.sum()))
    assert owner.tolist() == np.repeat(np.arange(len(spans)), count).tolist()
    assert value.tolist() == [s + k for s, c in spans for k in range(c)]


spans = st.tuples(st.integers(0, 9), st.integers(0, 9))


@given(spans=st.lists(spans, max_size=20))
def test_pages_are_counted_for_a_bounded_number_of_spans(spans):
    counts = np.zeros(9, np.float32)
    count_pages(
        np.array([start for start, _ in spans], int), np.array([stop for _, stop in spans], int), counts
    )
    wanted = np.zeros(9)
    for start, stop in spans:
        if wanted.sum() < 9:
            wanted[start:stop] += 1
    assert counts.tolist() == wanted.tolist()
