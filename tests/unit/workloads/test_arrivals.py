from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from adjoin import OptionError
from tests.unit.workloads.measures import hurst
from workloads import Arrivals, BurstyArrivals, ConstantRate, ExponentialGaps, SelfSimilarBursts

Make = Callable[[float], Arrivals]
PROCESSES: list[Make] = [ConstantRate, ExponentialGaps, partial(SelfSimilarBursts, sources=5)]


def counts_per(seconds: float, times: np.ndarray) -> np.ndarray:
    """Rows of each stretch of time, without the last, which may be cut off."""
    return np.bincount((times // seconds).astype(np.int64))[:-1]


@pytest.mark.parametrize("make", PROCESSES)
def test_times_never_decrease_and_follow_the_rate(make: Make) -> None:
    times = make(6250.0).times(1_000_000)
    assert times[0] >= 0
    assert np.diff(times).min() >= 0
    assert times[-1] == pytest.approx(160, rel=0.03)


@pytest.mark.parametrize("make", PROCESSES)
def test_times_do_not_depend_on_the_batch_sizes(make: Make) -> None:
    whole, parts = make(100.0), make(100.0)
    asked = (0, 1, 9, 0, 2990, 1, 7000)
    np.testing.assert_array_equal(
        whole.times(sum(asked)), np.concatenate([parts.times(rows) for rows in asked])
    )


@pytest.mark.parametrize("make", [ExponentialGaps, SelfSimilarBursts])
def test_seeds_differ(make: Callable[..., Arrivals]) -> None:
    assert (make(1.0, seed=1).times(5000) != make(1.0, seed=2).times(5000)).any()


def test_a_constant_rate_has_equal_gaps_that_do_not_drift() -> None:
    rate = ConstantRate(7)
    rate.times(7_000_000)
    assert rate.times(7)[-1] == 1_000_001


def test_gaps_are_exponential_and_independent() -> None:
    gaps = np.diff(ExponentialGaps(10, seed=1).times(200_001))
    assert gaps.mean() == pytest.approx(0.1, rel=0.01)
    assert gaps.std() == pytest.approx(0.1, rel=0.02)
    assert (gaps > 0.3).mean() == pytest.approx(np.exp(-3), rel=0.05)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.01


def test_exponential_gaps_are_not_bursty() -> None:
    counts = counts_per(1.0, ExponentialGaps(50, seed=2).times(50 << 16))
    assert hurst(counts) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("seed", [1, 2])
def test_bursts_are_self_similar(seed: int) -> None:
    bursts = SelfSimilarBursts(1.0, seed=seed)
    stretches = [counts_per(bursts.step_seconds, bursts.times(1 << 20)) for _ in range(16)]
    counts = np.zeros(max(map(len, stretches)), np.int64)
    for stretch in stretches:
        counts[: len(stretch)] += stretch
    assert hurst(counts) > 0.8


def test_a_step_has_the_rows_of_the_bursts() -> None:
    bursts, settled = SelfSimilarBursts(1.0, sources=7, seed=4), BurstyArrivals(7, seed=4)
    settled.rows(4 << 7)
    counts = counts_per(bursts.step_seconds, bursts.times(200_000))
    np.testing.assert_array_equal(counts, settled.rows(len(counts)))


def test_bursts_have_their_mean_rate_from_the_start() -> None:
    all_on_rows = 62
    first_step = [
        (SelfSimilarBursts(31.0, sources=5, seed=seed).times(all_on_rows) < 1).sum() for seed in range(1000)
    ]
    assert np.mean(first_step) == pytest.approx(31, rel=0.07)


def test_rows_of_a_step_are_spread_over_it() -> None:
    bursts = SelfSimilarBursts(31.0, sources=5, seed=3)
    assert bursts.step_seconds == 1
    times = bursts.times(10_000)
    within = times % 1
    assert within.mean() == pytest.approx(0.5, abs=0.01)
    assert np.quantile(within, [0.1, 0.9]) == pytest.approx([0.1, 0.9], abs=0.02)


@pytest.mark.parametrize("make", PROCESSES)
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_rates_are_named(make: Make, rate: float) -> None:
    with pytest.raises(OptionError, match=f"rows_per_second={rate}"):
        make(rate)


@pytest.mark.parametrize("sources", [0, 17])
def test_invalid_sources_are_named(sources: int) -> None:
    with pytest.raises(OptionError, match=f"sources={sources}"):
        SelfSimilarBursts(1.0, sources)
