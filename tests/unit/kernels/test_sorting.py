import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adjoin.kernels.page_utility import credit_pages
from adjoin.kernels.sorting import argsort_keys

extremes = st.sampled_from([np.iinfo(np.int64).min, -1, 0, 1, np.iinfo(np.int64).max])


@given(keys=hnp.arrays(np.int64, st.integers(0, 300), elements=st.integers(-(2**63), 2**63 - 1) | extremes))
def test_the_order_is_that_of_a_stable_sort(keys):
    assert argsort_keys(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@given(keys=hnp.arrays(np.int64, st.integers(0, 3000), elements=st.integers(0, 50)))
def test_equal_keys_keep_their_order(keys):
    assert argsort_keys(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@given(pages=hnp.arrays(np.int32, st.integers(0, 100), elements=st.integers(0, 9)))
def test_pages_listed_repeatedly_are_credited_repeatedly(pages):
    utility = np.zeros(10, np.float32)
    credit_pages(utility, pages, 0.5)
    assert utility.tolist() == (0.5 * np.bincount(pages, minlength=10)).tolist()
