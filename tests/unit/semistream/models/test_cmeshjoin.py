import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin import OptionError
from adjoin.semistream.models import cmeshjoin as model
from adjoin.semistream.models.setting import Setting


def setting(memory_bytes: float, master_rows: float = 1e8) -> Setting:
    return Setting(memory_bytes, master_rows, master_row_bytes=120, waiting_row_bytes=24)


ONE_PERCENT = setting(0.11e9)
TEN_PERCENT = setting(1.12e9)


@pytest.mark.parametrize("memory_bytes", [0.11e9, 0.11 * 2**30])
def test_the_best_cache_of_figure_2(memory_bytes):
    given = setting(memory_bytes)
    rows = model.best_cache_rows(given)
    assert 110_000 <= rows <= 119_500
    assert model.best_cache_rows_in_closed_form(given) == pytest.approx(rows, rel=1e-4)
    assert rows * 128 / memory_bytes == pytest.approx(0.13, abs=0.005)


@pytest.mark.parametrize("exponent", [0.5, 0.8, 1.0, 1.1, 1.3])
@pytest.mark.parametrize("given", [ONE_PERCENT, TEN_PERCENT])
def test_the_last_row_cached_has_as_many_matches_as_the_threshold(given, exponent):
    rows = model.best_cache_rows(given, exponent)
    assert model.cache_threshold(given) == pytest.approx(128 / 24)
    assert 5.33 <= model.marginal_matches(given, rows, exponent) <= 5.35


def test_the_threshold_of_a_key_with_many_rows():
    assert model.cache_threshold(ONE_PERCENT, rows_per_key=555) == pytest.approx((555 * 120 + 8) / 24)


@pytest.mark.parametrize("exponent", [0.3, 1.0, 1.3])
def test_no_other_size_is_better(exponent):
    small = setting(2e5, 1e5)
    best = model.best_cache_rows(small, exponent)
    rates = [model.service_rate(small, rows, exponent) for rows in range(1500)]
    assert best == pytest.approx(int(np.argmax(rates)), abs=1.5)


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
def test_the_slope_is_that_of_the_rate(exponent):
    rows, step = 300_000.0, 10.0
    rise = model.service_rate(TEN_PERCENT, rows + step, exponent)
    rise -= model.service_rate(TEN_PERCENT, rows - step, exponent)
    assert model.rate_slope(TEN_PERCENT, rows, exponent) == pytest.approx(rise / (2 * step), rel=1e-3)


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
def test_the_optimum_is_a_maximum(exponent):
    """At a root of the slope the second derivative is mu_m p_N'' / (1 - p_N)^2, and p_N'' = -s p_N' / h."""
    best = model.best_cache_rows(TEN_PERCENT, exponent)
    before, after = (model.rate_slope(TEN_PERCENT, best * factor, exponent) for factor in (0.999, 1.001))
    assert before > 0 > after
    missed = 1 - model.cached_share(best, 1e8, exponent)
    bend = -exponent * model.share_slope(best, 1e8, exponent) / best
    expected = model.behind_rate(TEN_PERCENT, best) * bend / missed**2
    assert (after - before) / (0.002 * best) == pytest.approx(expected, rel=0.01)


def test_the_model_does_not_allow_what_the_paper_measured():
    assert model.speed_up(ONE_PERCENT) == pytest.approx(2.4, abs=0.05)
    assert model.speed_up(TEN_PERCENT) == pytest.approx(3.8, abs=0.05)


def test_with_the_same_memory_a_larger_master_gains_less():
    gains = [model.speed_up(setting(1.12e9, rows)) for rows in (2e7, 4e7, 6e7, 8e7, 1e8)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == pytest.approx(6.0, abs=0.05)
    assert gains[-1] == pytest.approx(3.8, abs=0.05)


def test_more_skew_and_more_memory_gain_more():
    by_skew = [model.speed_up(ONE_PERCENT, exponent) for exponent in (0.0, 0.3, 0.6, 0.9, 1.2)]
    assert by_skew == sorted(by_skew)
    by_memory = [model.speed_up(setting(memory)) for memory in (1e8, 3e8, 1e9)]
    assert by_memory == sorted(by_memory)


def test_uniform_keys_need_no_cache():
    assert model.best_cache_rows(TEN_PERCENT, 0.0) == 0
    assert model.speed_up(TEN_PERCENT, 0.0) == 1


def test_memory_for_the_whole_master():
    large = setting(1e9, 1e6)
    assert model.best_cache_rows(large) == 1e6
    assert model.best_cache_rows_in_closed_form(large) == 1e6
    assert model.speed_up(large) == math.inf


@given(z=st.floats(-1 / math.e, -1e-300))
def test_lamberts_function(z):
    w = model.lambert_lower(z)
    assert w <= -1
    assert w * math.exp(w) == pytest.approx(z, rel=1e-9)


@pytest.mark.parametrize("z", [-0.37, 0.0, 1.0])
def test_lamberts_function_has_a_domain(z):
    with pytest.raises(OptionError, match="z="):
        model.lambert_lower(z)
