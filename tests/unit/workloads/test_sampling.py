import numpy as np
import pytest

from workloads.sampling import build_alias, fill_alias, fill_sorted


def alias_shares(weights: np.ndarray) -> np.ndarray:
    """The shares that the table stands for, added up without a draw."""
    n = len(weights)
    stay, alias = np.empty(n), np.empty(n, np.int64)
    build_alias(weights, stay, alias)
    assert stay.min() >= 0
    assert stay.max() < 1 + 1e-6
    return (np.bincount(alias, 1 - np.minimum(stay, 1), n) + np.minimum(stay, 1)) / n


@pytest.mark.parametrize(
    "weights",
    [
        np.ones(7),
        np.array([5.0]),
        np.array([0.0, 0.0, 3.0]),
        1 / np.arange(1, 10_001),
        np.random.default_rng(1).lognormal(0, 3, 36_001),
    ],
)
def test_an_alias_table_represents_its_weights(weights: np.ndarray) -> None:
    np.testing.assert_allclose(alias_shares(weights), weights / weights.sum(), rtol=1e-6, atol=1e-12)


def test_draws_from_an_alias_table_follow_its_weights() -> None:
    weights = np.array([1.0, 0.0, 6.0, 3.0])
    stay, alias, out = np.empty(4), np.empty(4, np.int64), np.empty(100_000, np.int64)
    build_alias(weights, stay, alias)
    fill_alias(np.array([1], np.uint64), stay, alias, out)
    counts = np.bincount(out, minlength=4)
    assert counts[1] == 0
    assert counts / 100_000 == pytest.approx([0.1, 0, 0.6, 0.3], abs=0.01)


def test_sorted_draws_fill_the_domain_evenly() -> None:
    keys = np.empty(1_000_000, np.int64)
    fill_sorted(np.array([1], np.uint64), np.zeros(1), len(keys), 1 << 40, keys)
    assert np.diff(keys).min() >= 0
    assert 0 <= keys[0] <= keys[-1] < 1 << 40
    ideal = (np.arange(1, len(keys) + 1) - 0.5) / len(keys)
    assert np.abs(keys / 2.0**40 - ideal).max() < 2 / np.sqrt(len(keys))  # Kolmogorov and Smirnov


def test_the_minimum_of_a_sorted_sample_has_the_right_distribution() -> None:
    first = np.empty(1, np.int64)
    smallest = []
    for seed in range(2000):
        fill_sorted(np.array([seed * 7919], np.uint64), np.zeros(1), 9, 1 << 40, first)
        smallest.append(first[0] / 2.0**40)
    assert np.mean(smallest) == pytest.approx(0.1, rel=0.05)
