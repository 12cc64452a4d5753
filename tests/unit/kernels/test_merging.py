"""Merging and cutting of sorted arrays, compared with plain NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.merging import cut_ranges, merge_keyed, merge_sorted

numbers = st.lists(st.integers(-20, 20), max_size=40).map(lambda values: np.sort(np.array(values, np.int64)))


@given(values=numbers, more=numbers)
def test_two_sorted_arrays_become_one(values, more):
    assert merge_sorted(values, more).tolist() == np.sort(np.concatenate([values, more])).tolist()


@given(keys=numbers, more_keys=numbers)
def test_rows_are_merged_by_key_and_the_first_list_comes_first(keys, more_keys):
    rows, more_rows = np.arange(len(keys)), 1000 + np.arange(len(more_keys))
    merged, merged_rows = merge_keyed(keys, rows, more_keys, more_rows)
    order = np.argsort(np.concatenate([keys, more_keys]), kind="stable")
    assert merged.tolist() == np.concatenate([keys, more_keys])[order].tolist()
    assert merged_rows.tolist() == np.concatenate([rows, more_rows])[order].tolist()


@given(values=numbers, bounds=st.lists(st.integers(0, 40), max_size=12))
def test_values_in_the_ranges_are_removed(values, bounds):
    bounds = sorted(min(bound, len(values)) for bound in bounds)[: len(bounds) // 2 * 2]
    begin, end = np.array(bounds[::2], np.int64), np.array(bounds[1::2], np.int64)
    removed = np.zeros(len(values), bool)
    for start, stop in zip(begin, end, strict=True):
        removed[start:stop] = True
    assert cut_ranges(values, begin, end).tolist() == values[~removed].tolist()
