import numpy as np
import pytest

from adjoin import OptionError
from tests.unit.workloads.measures import hurst
from workloads.bursty import BurstyArrivals


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bursts_are_self_similar(seed: int) -> None:
    assert hurst(BurstyArrivals(seed=seed).rows(1 << 17)) > 0.8


def test_the_measure_of_burstiness_finds_none_in_poisson_arrivals() -> None:
    assert hurst(np.random.default_rng(1).poisson(1023, 1 << 17)) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("sources", [1, 2, 5, 10])
def test_totals_stay_within_bounds_and_reach_them(sources: int) -> None:
    arrivals = BurstyArrivals(sources, seed=4)
    rows = arrivals.rows(1 << 17)
    assert arrivals.max_rows == 2 ** (sources + 1) - 2
    assert (rows.min(), rows.max()) == (0, arrivals.max_rows)
    assert rows.mean() == pytest.approx(arrivals.mean_rows, rel=0.05)
    assert (rows % 2 == 0).all()


def test_every_step_keeps_the_invariants() -> None:
    arrivals = BurstyArrivals(sources=6, seed=5)
    for _ in range(2000):
        arrivals.rows(1)
        arrivals.check_invariants()


def test_strong_sources_rarely_change() -> None:
    rows = BurstyArrivals(sources=10, seed=6).rows(1 << 15)
    changes = [np.count_nonzero(np.diff(rows & (1 << i))) for i in (4, 7, 10)]
    assert changes == sorted(changes, reverse=True)


def test_a_seed_determines_the_arrivals_whatever_the_batch_sizes() -> None:
    whole, parts, other = (BurstyArrivals(seed=seed) for seed in (7, 7, 8))
    rows = whole.rows(1000)
    np.testing.assert_array_equal(rows, np.concatenate([parts.rows(steps) for steps in (0, 1, 9, 990)]))
    assert (rows != other.rows(1000)).any()


@pytest.mark.parametrize("sources", [0, 41])
def test_invalid_options_are_named(sources: int) -> None:
    with pytest.raises(OptionError, match=f"sources={sources}"):
        BurstyArrivals(sources)
