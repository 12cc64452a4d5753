"""Sorted lists merged and cut, against NumPy."""

import numpy as np
import pytest

from adjoin.kernels.merging import merge_keyed

LEAST, GREATEST = -(2**63), 2**63 - 1


def merged_by_numpy(keys, rows, more_keys, more_rows):
    both, both_rows = np.concatenate([keys, more_keys]), np.concatenate([rows, more_rows])
    order = np.argsort(both, kind="stable")
    return both[order], both_rows[order]


def assert_merged(keys, more_keys):
    """Row numbers tell equal keys of the two lists apart, and equal keys of one list."""
    rows = np.arange(len(keys), dtype=np.int32)
    more_rows = 1_000 + np.arange(len(more_keys), dtype=np.int32)
    found, found_rows = merge_keyed(keys, rows, more_keys, more_rows)
    wanted, wanted_rows = merged_by_numpy(keys, rows, more_keys, more_rows)
    assert found.tolist() == wanted.tolist()
    assert found_rows.tolist() == wanted_rows.tolist()
    assert (found.dtype, found_rows.dtype) == (keys.dtype, rows.dtype)


@pytest.mark.parametrize("distinct", [1, 5, 1_000])
@pytest.mark.parametrize("seed", range(10))
def test_merged_keys_are_sorted_and_equal_keys_keep_their_order(seed, distinct):
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 60, 2)
    assert_merged(*(np.sort(random.integers(0, distinct, size)) for size in sizes))


@pytest.mark.parametrize(
    ("keys", "more_keys"),
    [
        ([], []),
        ([1, 2], []),
        ([], [1, 2]),
        ([3, 4], [1, 2]),
        ([1, 2], [3, 4]),
        ([7, 7], [7]),
        ([LEAST, 0, GREATEST], [LEAST, GREATEST, GREATEST]),
    ],
)
def test_merging_of_empty_separate_and_extreme_lists(keys, more_keys):
    assert_merged(np.array(keys, np.int64), np.array(more_keys, np.int64))
