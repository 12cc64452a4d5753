from typing import Any

import numpy as np
import pytest

from adjoin import OptionError
from tests.unit.workloads.measures import chi_square_excess, discrete_shares
from workloads import ShiftingZipf
from workloads.zipf import Form, Placement

ROWS = 50_000


def test_every_interval_follows_zipfs_law_on_its_own_slice() -> None:
    keys = ShiftingZipf(2000, intervals=4, interval_rows=ROWS, seed=1).draw(4 * ROWS)
    for interval, period in enumerate(keys.reshape(4, ROWS)):
        counts = np.bincount(period, minlength=2000)
        first = 500 * interval
        assert counts[first : first + 500].sum() == ROWS
        assert chi_square_excess(counts[first : first + 500], discrete_shares(500, 1.0)) < 5


def test_slices_of_unequal_size_cover_the_keys_once() -> None:
    zipf = ShiftingZipf(11, intervals=4, interval_rows=1)
    slices = [zipf.slice_of(interval) for interval in range(4)]
    assert [key for first, past in slices for key in range(first, past)] == list(range(11))
    assert {past - first for first, past in slices} == {2, 3}


def test_intervals_do_not_repeat_each_other() -> None:
    keys = ShiftingZipf(2000, intervals=2, interval_rows=ROWS, seed=1).draw(2 * ROWS)
    assert (keys[:ROWS] == keys[ROWS:] - 1000).mean() < 0.1


def test_the_first_slice_follows_the_last_with_the_same_hot_keys() -> None:
    zipf = ShiftingZipf(3000, intervals=3, interval_rows=ROWS, placement="random", seed=2)
    hottest = [int(np.bincount(zipf.draw(ROWS)).argmax()) for _ in range(6)]
    assert hottest[:3] == hottest[3:]
    assert [key // 1000 for key in hottest[:3]] == [0, 1, 2]
    assert len({key % 1000 for key in hottest}) == 3
    again = ShiftingZipf(3000, intervals=3, interval_rows=ROWS, placement="random", seed=2)
    periods = again.draw(4 * ROWS).reshape(4, ROWS)
    assert (periods[0] != periods[3]).mean() > 0.9


def test_the_interval_tells_where_the_next_row_comes_from() -> None:
    zipf = ShiftingZipf(10, intervals=2, interval_rows=3)
    seen = []
    for _ in range(8):
        seen.append(zipf.interval)
        zipf.draw(1)
    assert seen == [0, 0, 0, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("placement", ["noperm", "random"])
@pytest.mark.parametrize("form", ["discrete", "continuous"])
def test_a_seed_determines_the_keys_whatever_the_batch_sizes(form: Form, placement: Placement) -> None:
    def make(seed: int) -> ShiftingZipf:
        return ShiftingZipf(1000, 7, 60, 1.1, form=form, placement=placement, seed=seed)

    whole, parts, other = make(5), make(5), make(6)
    keys = whole.draw(1000)
    np.testing.assert_array_equal(keys, np.concatenate([parts.draw(rows) for rows in (0, 1, 59, 940)]))
    assert (keys != other.draw(1000)).any()


@pytest.mark.parametrize(
    "options",
    [
        {"intervals": 0},
        {"intervals": 11},
        {"interval_rows": 0},
        {"exponent": -1.0},
        {"placement": "sorted"},
    ],
)
def test_invalid_options_are_named(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(OptionError, match=f"{name}="):
        ShiftingZipf(**{"n": 10, "intervals": 2, "interval_rows": 5, **options})


@pytest.mark.parametrize("interval", [-1, 2])
def test_slices_out_of_range_are_rejected(interval: int) -> None:
    with pytest.raises(OptionError, match=f"interval={interval}"):
        ShiftingZipf(10, intervals=2, interval_rows=5).slice_of(interval)
