import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.semistream.models import meshjoin
from adjoin.semistream.models.oldestfirst import rows_per_load, rows_per_load_by_renewal
from adjoin.semistream.models.popularity import Partitions, Popularity, zipf_weights
from tests.unit.semistream.models.simulation import simulate

MASTER_ROWS = 20_000


def zipf(exponent: float, swappable_rows: int, pinned_rows: int = 0) -> Partitions:
    """Partitions of a master sorted by frequency; the pinned rows before the first of them."""
    weights = zipf_weights(MASTER_ROWS, 1, exponent)
    rest = weights[pinned_rows:]
    masses = np.add.reduceat(rest, np.arange(0, len(rest), swappable_rows))
    return Partitions(masses / rest.sum(), np.ones(len(masses)), np.asarray(weights[:pinned_rows].sum()))


def alone(shares: list[float]) -> Partitions:
    return Popularity(shares).partitions(1)


@pytest.mark.parametrize(
    ("waiting", "pinned", "swappable", "renewal", "simulated"),
    [(2000, 200, 100, 48.5, 47.7), (10_000, 200, 100, 230.1, 226.7), (10_000, 1000, 200, 702.0, 690.9)],
)
def test_the_known_cases(waiting, pinned, swappable, renewal, simulated):
    partitions = zipf(1.0, swappable, pinned)
    assert rows_per_load_by_renewal(partitions, waiting) == pytest.approx(renewal, abs=0.05)
    assert rows_per_load(partitions, waiting) == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize(
    ("swappable", "waiting"), [(400, 5), (100, 400), (100, 4000), (400, 2000), (2000, 1000)]
)
def test_hybridjoin_in_simulation(exponent, swappable, waiting):
    partitions = zipf(exponent, swappable)
    simulated = simulate(partitions, waiting, 60 * waiting + 150_000)
    assert rows_per_load(partitions, waiting) == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize(
    ("exponent", "waiting", "pinned", "swappable"),
    [(0.5, 4000, 2000, 200), (0.8, 2000, 200, 1000), (1.0, 2000, 20, 400), (1.0, 400, 2000, 100)],
)
def test_x_hybridjoin_in_simulation(exponent, waiting, pinned, swappable):
    partitions = zipf(exponent, swappable, pinned)
    simulated = simulate(partitions, waiting, 60 * waiting + 250_000)
    assert rows_per_load(partitions, waiting) == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize(
    "shares",
    [
        [0.5] + 100 * [0.005],
        [0.4, 0.4] + 98 * [0.2 / 98],
        5 * [0.15] + 200 * [0.25 / 200],
        [0.8**rank for rank in range(60)],
        [0.9, 0.1],
    ],
)
def test_other_distributions_in_simulation(shares):
    partitions = alone(shares)
    assert rows_per_load(partitions, 1000) == pytest.approx(simulate(partitions, 1000, 250_000), rel=0.08)


def test_the_order_of_partitions_on_disk_does_not_matter():
    weights = np.random.default_rng(4).permutation(zipf_weights(MASTER_ROWS, 1, 1.0))
    partitions = Popularity(weights).partitions(400)
    assert rows_per_load(partitions, 2000) == pytest.approx(simulate(partitions, 2000, 300_000), rel=0.03)


def test_renewal_misses_what_a_hot_partition_does():
    partitions = zipf(1.0, 400)
    simulated = simulate(partitions, 2000, 300_000)
    assert rows_per_load_by_renewal(partitions, 2000) > 1.2 * simulated
    assert rows_per_load(partitions, 2000) == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize("partitions", [1, 2, 10, 1000])
def test_alike_partitions_serve_twice_the_average(partitions):
    waiting = 1e7
    expected = 2 * waiting / (partitions + 1)
    assert rows_per_load(alone(partitions * [1.0]), waiting) == pytest.approx(expected, rel=1e-3)
    renewal = rows_per_load_by_renewal(alone(partitions * [1.0]), waiting)
    assert renewal == pytest.approx(2 * waiting / partitions, rel=1e-3)


@given(shares=st.lists(st.floats(0.01, 1), min_size=1, max_size=30))
def test_with_many_rows_partitions_take_turns(shares):
    """Then the queue holds sum over i of p_i (p_i + ... + p_n) of a cycle, in whatever order they stand."""
    partitions = alone(shares)
    cycle = 2e9 / (1 + (partitions.share**2).sum())
    assert rows_per_load(partitions, 1e9) == pytest.approx(cycle / len(shares), rel=1e-3)


def test_one_waiting_row_is_served_alone():
    assert rows_per_load(zipf(1.0, 400), 1) == pytest.approx(1)


DISTRIBUTIONS = st.lists(st.floats(1e-6, 1), min_size=1, max_size=60)


@given(shares=DISTRIBUTIONS, waiting=st.floats(1, 1e7))
def test_never_below_meshjoin_nor_below_one_row(shares, waiting):
    """Theorems 1 and 2: a page is read at most once per queue of rows, and each read serves a row."""
    rows = float(rows_per_load(alone(shares), waiting))
    assert rows >= 1 - 1e-9
    assert rows >= meshjoin.input_rows(waiting, float(len(shares))) * (1 - 1e-6)
    assert rows <= waiting


@given(shares=DISTRIBUTIONS, waiting=st.floats(2, 1e6), pinned=st.floats(0, 0.99))
def test_more_waiting_rows_are_never_worse(shares, waiting, pinned):
    partitions = alone(shares)
    partitions = Partitions(partitions.share, partitions.count, np.asarray(pinned))
    fewer, more = (float(rows_per_load(partitions, rows)) for rows in (waiting, 1.1 * waiting))
    assert fewer <= more * (1 + 1e-6)


@given(shares=DISTRIBUTIONS, waiting=st.floats(50, 1e6))
def test_pinned_pages_are_never_worse(shares, waiting):
    without = alone(shares)
    beside = Partitions(without.share, without.count, np.asarray(0.3))
    assert rows_per_load(beside, waiting) >= rows_per_load(without, waiting) * (1 - 1e-6)


def test_partitions_counted_together():
    one_by_one = alone([0.4] + 100 * [0.004] + 200 * [0.001])
    together = Partitions(np.array([0.4, 0.004, 0.001]), np.array([1, 100, 200]), np.asarray(0.0))
    assert rows_per_load(together, 500) == pytest.approx(rows_per_load(one_by_one, 500))
    assert rows_per_load_by_renewal(together, 500) == pytest.approx(rows_per_load_by_renewal(one_by_one, 500))


def test_many_points_at_once():
    popularity = Popularity(zipf_weights(8000, 80, 1.0))
    points = [popularity.partitions(1, pinned) for pinned in (0, 5)]
    widest = len(points[0].share)
    padded = [np.pad(point.share, (0, widest - len(point.share))) for point in points]
    counts = [np.pad(point.count, (0, widest - len(point.share))) for point in points]
    pinned = np.array([point.pinned_share for point in points])
    both = rows_per_load(Partitions(np.array(padded), np.array(counts), pinned), np.array([100.0, 900.0]))
    assert both == pytest.approx([float(rows_per_load(points[0], 100)), float(rows_per_load(points[1], 900))])


def test_a_queue_that_pinned_pages_nearly_fill():
    everything_pinned = Popularity([3, 2, 1]).partitions(1, 3)
    assert rows_per_load(everything_pinned, 50) == 50
    nearly = Partitions(np.array([0.5, 0.5]), np.ones(2), np.asarray(0.99))
    assert rows_per_load(nearly, 20) == 20
