import numpy as np
import pytest

from adjoin import OptionError
from adjoin.semistream.models import hybridjoin, xhybridjoin
from adjoin.semistream.models.cmeshjoin import cached_share
from adjoin.semistream.models.iteration import loop_seconds
from adjoin.semistream.models.popularity import Popularity, zipf_weights
from adjoin.semistream.models.setting import CostConstants, Setting
from tests.unit.semistream.models.simulation import simulate

MASTER_ROWS = 20_000
ROWS_PER_PAGE = 20
SMALL = Setting(200_000, MASTER_ROWS, master_row_bytes=100, waiting_row_bytes=40)
PAGE_BYTES = ROWS_PER_PAGE * SMALL.master_row_bytes
DISK = CostConstants(4e-4, 1e-8, output_seconds=1e-6)


@pytest.mark.parametrize(
    ("waiting", "pinned", "swappable", "mean", "printed", "simulated"),
    [
        (2000.0, 200, 100, 22.9, 13.2, 47.7),
        (10_000.0, 200, 100, 114.3, 66.2, 226.7),
        (10_000.0, 1000, 200, 358.9, 129.0, 690.9),
    ],
)
def test_equation_9_and_its_mean_form(waiting, pinned, swappable, mean, printed, simulated):
    pinned_share = cached_share(pinned, MASTER_ROWS)
    partitions = (MASTER_ROWS - pinned) / swappable
    by_mean = xhybridjoin.mean_input_rows(waiting, pinned_share, partitions)
    by_variance = xhybridjoin.paper_input_rows(waiting, pinned_share, partitions)
    assert by_mean == pytest.approx(mean, abs=0.05)
    assert by_variance == pytest.approx(printed, abs=0.05)
    assert 1.9 < simulated / by_mean < 2.1
    assert 3.4 < simulated / by_variance < 5.4
    corrected = xhybridjoin.input_rows(
        zipf_weights(MASTER_ROWS, 100, 1.0), waiting, swappable // 100, pinned // 100
    )
    assert corrected == pytest.approx(simulated, rel=0.01)


def test_equation_9_solves_the_equation_before_it():
    old, new, waiting = 1 / 50, 0.4 + 0.6 / 50, 1000.0
    rows = xhybridjoin.paper_input_rows(waiting, 0.4, 50.0)
    assert rows == pytest.approx((waiting - rows) * old * (1 - old) + rows * new * (1 - new))


def test_equation_2_looks_up_both_parts():
    constants = CostConstants(0.5, 1e-3, probe_seconds=1e-2, output_seconds=1)
    seconds = xhybridjoin.untuned_loop_seconds(constants, SMALL, 1000, 3)
    assert seconds == pytest.approx(0.5 + 1 + 2 * 10 * 1e-2 + 3)


def test_without_pinned_pages_it_is_hybridjoin():
    weights = zipf_weights(MASTER_ROWS, ROWS_PER_PAGE, 1.0)
    assert xhybridjoin.input_rows(weights, 700, 5, 0) == hybridjoin.input_rows(weights, 700, 5)


def rate(swappable_pages: int, input_rows: float) -> float:
    return input_rows / loop_seconds(DISK, swappable_pages * PAGE_BYTES, 0.0, input_rows)


def simulated_rate(popularity: Popularity, swappable_pages: int, pinned_pages: int) -> float:
    waiting = int(SMALL.waiting_rows((swappable_pages + pinned_pages) * PAGE_BYTES))
    partitions = popularity.partitions(swappable_pages, pinned_pages)
    return rate(swappable_pages, simulate(partitions, waiting, 100_000 + 20 * waiting))


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_the_tuned_sizes_are_the_best_in_simulation(is_shuffled):
    weights = zipf_weights(MASTER_ROWS, ROWS_PER_PAGE, 1.0)
    if is_shuffled:
        weights = np.random.default_rng(1).permutation(weights)
    popularity = Popularity(weights)
    best = xhybridjoin.tune(SMALL, DISK, weights)
    rates = {
        (swappable, pinned): simulated_rate(popularity, swappable, pinned)
        for swappable in (4, 8, 16, 32)
        for pinned in (2, 4, 8, 16, 32)
    }
    swappable, pinned = max(rates, key=lambda sizes: rates[sizes])
    assert swappable / 2 <= best.swappable_pages <= swappable * 2
    assert pinned / 2 <= best.pinned_pages <= pinned * 2
    achieved = simulated_rate(popularity, best.swappable_pages, best.pinned_pages)
    assert achieved > 0.98 * max(rates.values())
    assert best.rows_per_second == pytest.approx(achieved, rel=0.03)


def test_equation_9_chooses_sizes_that_lose_a_sixth():
    weights = zipf_weights(MASTER_ROWS, ROWS_PER_PAGE, 1.0)
    popularity = Popularity(weights)
    printed, corrected = (xhybridjoin.tune(SMALL, DISK, weights, form) for form in ("paper", "corrected"))
    achieved = [simulated_rate(popularity, t.swappable_pages, t.pinned_pages) for t in (printed, corrected)]
    assert achieved[0] < 5 / 6 * achieved[1]
    assert printed.rows_per_second < 0.6 * achieved[0]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_tuning_finds_the_best_of_all_sizes(exponent):
    weights = zipf_weights(MASTER_ROWS, 200, exponent)
    best = xhybridjoin.tune(SMALL, DISK, weights)
    popularity = Popularity(weights)
    pairs = [(k, n) for k in range(1, 9) for n in range(8) if k + n <= 9]
    rates = []
    for swappable, pinned in pairs:
        waiting = SMALL.waiting_rows((swappable + pinned) * 20_000)
        rows = xhybridjoin.input_rows(weights, waiting, swappable, pinned)
        rates.append(rows / loop_seconds(DISK, swappable * 20_000, 0.0, rows))
    assert best.rows_per_second == pytest.approx(max(rates), rel=0.01)
    assert float(popularity.partitions(1, best.pinned_pages).pinned_share) < 1


@pytest.mark.parametrize("form", ["corrected", "mean"])
def test_pinning_pays_with_skew_only(form):
    even, skewed = (
        xhybridjoin.tune(SMALL, DISK, zipf_weights(MASTER_ROWS, ROWS_PER_PAGE, exponent), form)
        for exponent in (0.0, 1.0)
    )
    assert even.pinned_pages == 0
    assert skewed.pinned_pages > 4
    assert skewed.rows_per_second > 1.5 * even.rows_per_second


def test_the_more_memory_the_more_is_pinned():
    weights = zipf_weights(200_000, 80, 1.0)
    tuned = [
        xhybridjoin.tune(Setting(memory, 200_000, 100, 40), DISK, weights) for memory in (2e5, 8e5, 3.2e6)
    ]
    assert tuned[0].pinned_pages < tuned[1].pinned_pages < tuned[2].pinned_pages
    assert tuned[0].rows_per_second < tuned[1].rows_per_second < tuned[2].rows_per_second


def test_memory_for_nearly_the_whole_master():
    setting = Setting(3e6, MASTER_ROWS, 100, 40)
    best = xhybridjoin.tune(setting, DISK, zipf_weights(MASTER_ROWS, ROWS_PER_PAGE, 1.0))
    assert best.pinned_pages + best.swappable_pages <= 1000
    assert best.rows_per_second < 1 / DISK.row_seconds


def test_with_all_but_one_wanted_page_pinned_an_iteration_answers_all():
    wanted = np.zeros(1000)
    wanted[[3, 500, 700]] = 5, 2, 1
    best = xhybridjoin.tune(SMALL, DISK, wanted)
    assert best.pinned_pages in {2, 3}
    assert best.input_rows == pytest.approx(best.waiting_rows)


def test_an_unknown_form_is_named():
    with pytest.raises(OptionError, match="form='printed'"):
        xhybridjoin.tune(SMALL, DISK, np.ones(1000), "printed")  # type: ignore[arg-type]
