"""The kernels of the inverted index, compared with plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.grouping import collect_needs, group_pairs, make_pairs

pair_sets = st.sets(st.tuples(st.integers(0, 12), st.integers(0, 2**31 - 1)), min_size=1, max_size=60)


def packed(pairs):
    return np.array(sorted(page << 32 | row for page, row in pairs), np.int64)


@given(pairs=pair_sets, most=st.integers(1, 14))
def test_groups_are_the_rows_of_each_page(pairs, most):
    sorted_pairs = packed(pairs)
    pages, begin = group_pairs(sorted_pairs, most)
    first = sorted({page for page, _ in pairs})[:most]
    grouped = {
        int(page): [int(pair & 0xFFFFFFFF) for pair in sorted_pairs[begin[i] : begin[i + 1]]]
        for i, page in enumerate(pages)
    }
    assert grouped == {page: sorted(row for p, row in pairs if p == page) for page in first}


@given(pairs=pair_sets, data=st.data())
def test_needs_of_chosen_groups_can_be_collected_in_portions(pairs, data):
    sorted_pairs = packed(pairs)
    pages, begin = group_pairs(sorted_pairs, len(sorted_pairs))
    groups = np.array(data.draw(st.permutations(range(len(pages)))), np.int64)
    slots = (groups * 7).astype(np.int32)
    ends = np.cumsum(begin[groups + 1] - begin[groups])
    step = data.draw(st.integers(1, 20))
    needs: list[tuple[int, int]] = []
    for start in range(0, len(sorted_pairs), step):
        row, slot = collect_needs(
            sorted_pairs, begin, groups, slots, ends, start, min(start + step, len(sorted_pairs))
        )
        needs += zip(slot.tolist(), row.tolist(), strict=True)
    expected = [
        (int(slots[i]), int(pair & 0xFFFFFFFF))
        for i, group in enumerate(groups)
        for pair in sorted_pairs[begin[group] : begin[group + 1]]
    ]
    assert needs == expected


def test_pairs_hold_the_page_and_the_renumbered_row():
    row = np.array([4, 4, 2], np.int32)
    page = np.array([7, 8, 9], np.int32)
    number = np.array([0, 0, 0, 1, 1], np.int32)
    pairs = make_pairs(row, page, np.array([0, 2]), number)
    assert pairs.tolist() == [7 << 32 | 1, 9 << 32 | 0]
