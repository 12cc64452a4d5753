import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.kernels.bloom import add_keys, has_keys

_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def _contains(words: np.ndarray, keys: np.ndarray) -> np.ndarray:
    found = np.empty(len(keys), np.bool_)
    has_keys(words, keys, found)
    return found


@given(st.lists(_INT64), st.integers(1, 9))
def test_a_key_that_was_added_is_found(keys: list[int], blocks: int) -> None:
    words = np.zeros(8 * blocks, np.uint32)
    add_keys(words, np.array(keys, np.int64))
    assert _contains(words, np.array(keys, np.int64)).all()


@given(st.lists(_INT64))
def test_an_empty_filter_contains_no_key(keys: list[int]) -> None:
    assert not _contains(np.zeros(16, np.uint32), np.array(keys, np.int64)).any()


@pytest.mark.parametrize(("bits", "most"), [(8, 0.05), (16, 0.002)])
def test_false_positives_are_rare(bits: int, most: float) -> None:
    keys = 50_000
    words = np.zeros(8 * (keys * bits // 256), np.uint32)
    add_keys(words, np.arange(keys))
    assert _contains(words, np.arange(keys, 3 * keys)).mean() < most


def test_each_key_sets_one_bit_in_each_word_of_one_block() -> None:
    for key in (-5, 0, 1 << 62):
        words = np.zeros(8 * 7, np.uint32)
        add_keys(words, np.array([key]))
        per_word = np.bitwise_count(words).reshape(7, 8)
        assert sorted(per_word.sum(axis=1).tolist()) == [0] * 6 + [8]
        assert per_word.max() == 1
