from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin import OptionError
from tests.unit.workloads.measures import chi_square_excess, discrete_shares
from workloads.zipf import Form, Placement, Zipf

ROWS = 400_000


def continuous_shares(n: int, exponent: float) -> np.ndarray:
    edges = np.arange(1, n + 2, dtype=float)
    area = np.log(edges) if exponent == 1 else (edges ** (1 - exponent) - 1) / (1 - exponent)
    return np.diff(area / area[-1])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9999999, 1.0, 1.2, 2.0, 5.0])
@pytest.mark.parametrize("n", [1, 2, 3, 100, 20_000])
@pytest.mark.parametrize(
    ("form", "shares"), [("discrete", discrete_shares), ("continuous", continuous_shares)]
)
def test_frequencies_follow_zipfs_law(
    form: Form, shares: Callable[[int, float], np.ndarray], n: int, exponent: float
) -> None:
    keys = Zipf(n, exponent, form=form, seed=11).draw(ROWS)
    assert chi_square_excess(np.bincount(keys, minlength=n), shares(n, exponent)) < 5


def test_the_two_forms_differ() -> None:
    keys = Zipf(100_000, 1.0, form="continuous", seed=1).draw(ROWS)
    assert (keys == 0).mean() == pytest.approx(0.060, abs=0.002)
    assert chi_square_excess(np.bincount(keys, minlength=100_000), discrete_shares(100_000, 1.0)) > 20


def test_a_domain_too_large_for_any_table() -> None:
    keys = Zipf(1 << 40, 1.0, placement="noperm", seed=2).draw(ROWS)
    harmonic = np.log(2.0**40) + np.euler_gamma
    assert (keys == 0).mean() == pytest.approx(1 / harmonic, rel=0.05)
    assert (keys < 1000).mean() == pytest.approx((np.log(1000) + np.euler_gamma) / harmonic, rel=0.02)
    assert keys.min() >= 0
    assert keys.max() < 1 << 40


@pytest.mark.parametrize("placement", ["noperm", "random"])
@pytest.mark.parametrize("form", ["discrete", "continuous"])
def test_a_seed_determines_the_keys_whatever_the_batch_sizes(form: Form, placement: Placement) -> None:
    def make(seed: int) -> Zipf:
        return Zipf(1000, 1.1, form=form, placement=placement, seed=seed)

    whole, parts, other = make(5), make(5), make(6)
    keys = whole.draw(1000)
    np.testing.assert_array_equal(keys, np.concatenate([parts.draw(rows) for rows in (0, 1, 9, 990)]))
    assert (keys != other.draw(1000)).any()


def test_a_seed_gives_the_same_keys_in_every_release() -> None:
    assert Zipf(1_000_000, 1.0, placement="random", seed=42).draw(4).tolist() == [
        383798,
        939879,
        844646,
        97351,
    ]


@given(n=st.integers(1, 5000), seed=st.integers(-(2**63), 2**64))
def test_random_placement_is_a_bijection(n: int, seed: int) -> None:
    keys = Zipf(n, placement="random", seed=seed).key_of(np.arange(n))
    np.testing.assert_array_equal(np.sort(keys), np.arange(n))


def test_random_placement_scatters_the_frequent_keys() -> None:
    n = 1_000_000
    keys = Zipf(n, placement="random", seed=9).key_of(np.arange(n))
    assert abs(np.corrcoef(np.arange(n), keys)[0, 1]) < 0.01
    hottest_by_segment = np.bincount(keys[: n // 100] // (n // 50), minlength=50)
    assert chi_square_excess(hottest_by_segment, np.full(50, 1 / 50)) < 5
    assert (np.abs(np.diff(keys)) == 1).mean() < 1e-4


def test_placement_differs_between_seeds() -> None:
    ranks = np.arange(1000)
    one, two = (Zipf(1000, placement="random", seed=seed).key_of(ranks) for seed in (1, 2))
    assert (one == two).mean() < 0.02


def test_random_placement_keeps_the_frequencies() -> None:
    zipf = Zipf(500, 1.0, placement="random", seed=3)
    counts = np.bincount(zipf.draw(ROWS), minlength=500)
    assert chi_square_excess(counts[zipf.key_of(np.arange(500))], discrete_shares(500, 1.0)) < 5


def test_key_of_does_not_modify_its_argument() -> None:
    ranks = np.arange(10)
    Zipf(10, placement="random", seed=1).key_of(ranks)
    np.testing.assert_array_equal(ranks, np.arange(10))


@pytest.mark.parametrize(
    "options",
    [
        {"n": 0},
        {"n": 2**40 + 1},
        {"n": 9, "exponent": -0.1},
        {"n": 9, "exponent": float("nan")},
        {"n": 9, "form": "exact"},
        {"n": 9, "placement": "sorted"},
    ],
)
def test_invalid_options_are_named(options: dict[str, Any]) -> None:
    name = list(options)[-1]
    with pytest.raises(OptionError, match=f"{name}="):
        Zipf(**options)


@pytest.mark.parametrize("rank", [-1, 10])
def test_ranks_outside_the_domain_are_rejected(rank: int) -> None:
    with pytest.raises(OptionError, match=r"\[0, 10\)"):
        Zipf(10).key_of(np.array([rank]))
