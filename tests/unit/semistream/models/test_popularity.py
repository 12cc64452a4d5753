import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin import OptionError
from adjoin.semistream.models.oldestfirst import rows_per_load
from adjoin.semistream.models.popularity import Popularity, power_sum, zipf_weights


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9999999, 1.0, 1.3, 3.0])
def test_sums_of_powers(exponent):
    terms = np.arange(1.0, 200_001) ** -exponent
    counts = np.array([0, 1, 2, 127, 128, 129, 1000, 200_000])
    expected = [terms[:count][::-1].sum() for count in counts]
    np.testing.assert_allclose(power_sum(counts, exponent), expected, rtol=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("rows", "rows_per_page"), [(10, 3), (1000, 1000), (5000, 7), (5, 80)])
def test_zipf_weights_are_sums_over_the_rows_of_pages(exponent, rows, rows_per_page):
    shares = np.arange(1.0, rows + 1) ** -exponent
    expected = np.add.reduceat(shares, np.arange(0, rows, rows_per_page)) / shares.sum()
    np.testing.assert_allclose(zipf_weights(rows, rows_per_page, exponent), expected, rtol=1e-9)


def test_a_master_too_large_to_add_up_row_by_row():
    weights = zipf_weights(10**12, 10**8, 1.0)
    assert len(weights) == 10**4
    assert weights.sum() == pytest.approx(1)


def test_partitions_are_aligned_and_leave_pinned_pages_out():
    partitions = Popularity([1, 8, 2, 3, 4, 7, 5]).partitions(swappable_pages=3, pinned_pages=2)
    assert float(partitions.pinned_share) == pytest.approx(15 / 30)
    np.testing.assert_allclose(partitions.share, [3 / 15, 7 / 15, 5 / 15])


def test_partitions_that_no_row_wants_are_not_counted():
    partitions = Popularity([0, 0, 5, 0, 5, 5]).partitions(swappable_pages=2, pinned_pages=1)
    assert len(partitions.share) == 1
    assert float(partitions.pinned_share) == pytest.approx(1 / 3)


@given(
    weights=st.lists(st.floats(0, 1e6), min_size=2, max_size=300).filter(any),
    sizes=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=12),
)
def test_a_grid_says_what_its_points_say(weights, sizes):
    popularity = Popularity(weights)
    swappable, pinned = np.array(sizes).T
    grid = popularity.grid(swappable, pinned)
    for point, (pages, kept) in enumerate(sizes):
        one = popularity.partitions(pages, kept)
        assert grid.pinned_share[point] == pytest.approx(float(one.pinned_share), abs=1e-12)
        assert (grid.share * grid.count)[point].sum() == pytest.approx(1)
        assert grid.count[point].sum() == len(one.share)


def test_bins_do_not_change_the_prediction():
    random = np.random.default_rng(3)
    popularity = Popularity(random.permutation(zipf_weights(200_000, 40, 1.0)))
    swappable, pinned = np.array([1, 5, 40, 40]), np.array([100, 0, 300, 0])
    binned = rows_per_load(popularity.grid(swappable, pinned), np.full(4, 30_000.0))
    points = zip(swappable.tolist(), pinned.tolist(), strict=True)
    exact = [float(rows_per_load(popularity.partitions(*sizes), 30_000)) for sizes in points]
    assert binned == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [1, float("nan")], [[1, 2]]])
def test_weights_that_say_nothing(weights):
    with pytest.raises(OptionError, match="weights"):
        Popularity(weights)


@pytest.mark.parametrize(("rows", "rows_per_page", "exponent"), [(0, 1, 1.0), (1, 0, 1.0), (1, 1, -1.0)])
def test_zipf_options_that_make_no_sense(rows, rows_per_page, exponent):
    with pytest.raises(OptionError):
        zipf_weights(rows, rows_per_page, exponent)
