"""Keys and arrivals for joins of two streams."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from adjoin import OptionError
from workloads import ExponentialGaps, Fragments, MeanRevertingWalk, NormalKeys, Zipf, partly_sorted

Draw = Callable[[int], NDArray[np.int64]]
MAKERS: dict[str, Callable[[int], Draw]] = {
    "normal": lambda seed: NormalKeys(75, 15, shift=10, period_rows=700, seed=seed).draw,
    "walk": lambda seed: MeanRevertingWalk(1850, 20, 0.01, seed=seed).draw,
}


@pytest.mark.parametrize("name", MAKERS)
def test_keys_do_not_depend_on_the_batch_sizes(name):
    whole, parts = MAKERS[name](3), MAKERS[name](3)
    sizes = [1, 0, 4_095, 2, 9_000]
    assert (whole(sum(sizes)) == np.concatenate([parts(size) for size in sizes])).all()
    assert (MAKERS[name](3)(500) != MAKERS[name](4)(500)).any()


def test_the_mean_moves_from_period_to_period():
    keys = NormalKeys(75, 15, shift=10, period_rows=20_000, seed=1).draw(60_000).reshape(3, -1)
    assert keys.mean(axis=1) == pytest.approx([75, 85, 95], abs=0.2)
    assert keys.var(axis=1) == pytest.approx([15, 15, 15], rel=0.05)


def test_a_walk_has_memory_and_returns_to_its_level():
    keys = MeanRevertingWalk(0, 50, 0.01, seed=5).draw(1_000_000) / 50
    assert keys.std() == pytest.approx(1, rel=0.1)
    assert np.corrcoef(keys[:-100], keys[100:])[0, 1] == pytest.approx(0.99**100, abs=0.08)


def test_partly_sorted_keys_are_the_same_keys_in_runs():
    keys = partly_sorted(Zipf(999, seed=2).draw, 10_000, 20, seed=3)
    assert (np.sort(keys) == np.sort(Zipf(999, seed=2).draw(10_000))).all()
    assert 1 <= np.count_nonzero(np.diff(keys) < 0) <= 19


def test_pauses_follow_fragments():
    busy = ExponentialGaps(1000, seed=1).times(10_000)
    times = Fragments(ExponentialGaps(1000, seed=1), 1_000, 0.5).times(10_000)
    assert (np.diff(times) >= 0).all()
    silences = (times - busy).reshape(10, -1)
    assert np.ptp(silences, axis=1).max() < 1e-9
    assert silences[-1, 0] == pytest.approx(0.5 * busy[8_999])


@pytest.mark.parametrize(
    "make",
    [
        lambda: NormalKeys(0, -1),
        lambda: NormalKeys(0, 1, period_rows=0),
        lambda: MeanRevertingWalk(0, 1, 0),
        lambda: partly_sorted(Zipf(9).draw, 5, 6),
        lambda: Fragments(ExponentialGaps(1), 0, 0.5),
    ],
)
def test_invalid_options_are_rejected(make):
    with pytest.raises(OptionError):
        make()
