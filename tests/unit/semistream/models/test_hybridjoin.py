import numpy as np
import pytest

from adjoin import BudgetError, OptionError
from adjoin.semistream.models import hybridjoin
from adjoin.semistream.models.iteration import best_buffer_bytes, loop_seconds
from adjoin.semistream.models.popularity import Popularity, zipf_weights
from adjoin.semistream.models.setting import CostConstants, Setting
from tests.unit.semistream.models.simulation import simulate

PAPER = Setting(50e6, 2_000_000, master_row_bytes=120, waiting_row_bytes=32)
DISK = CostConstants(8e-3, 1e-8, probe_seconds=2e-7, output_seconds=1e-6)


def test_equation_2():
    assert hybridjoin.paper_input_rows(1000.0, 50.0, 2000.0) == pytest.approx(34)


@pytest.mark.parametrize(("exponent", "least", "most"), [(0.0, 0.65, 0.71), (1.0, 0.60, 0.68)])
def test_equation_2_is_a_third_too_low(exponent, least, most):
    weights = zipf_weights(20_000, 100, exponent)
    simulated = simulate(Popularity(weights).partitions(1), 2000, 300_000)
    assert least < hybridjoin.paper_input_rows(2000.0, 100.0, 20_000) / simulated < most
    assert hybridjoin.input_rows(weights, 2000, 1) == pytest.approx(simulated, rel=0.03)


def test_equation_2_is_far_off_when_few_rows_wait():
    weights = zipf_weights(20_000, 20, 1.0)
    simulated = simulate(Popularity(weights).partitions(1), 400, 200_000)
    assert hybridjoin.paper_input_rows(400.0, 20.0, 20_000) < simulated / 6
    assert hybridjoin.input_rows(weights, 400, 1) == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize("probe_seconds", [0.0, 2e-7])
@pytest.mark.parametrize("output_seconds", [0.0, 1e-5])
@pytest.mark.parametrize(("positioning", "per_byte"), [(8e-3, 1e-8), (1e-5, 5e-10), (2e-2, 1.1e-8)])
def test_the_closed_form_is_the_best_buffer(probe_seconds, output_seconds, positioning, per_byte):
    constants = CostConstants(positioning, per_byte, probe_seconds, output_seconds)
    buffers = np.linspace(1e4, 40e6, 400_001)
    rows = buffers / PAPER.master_row_bytes
    answered = hybridjoin.paper_input_rows(PAPER.waiting_rows(buffers), rows, PAPER.master_rows)
    rates = answered / loop_seconds(constants, buffers, rows, answered)
    assert best_buffer_bytes(PAPER, constants) == pytest.approx(buffers[rates.argmax()], abs=200)


def test_without_positioning_the_smallest_buffer_is_the_best():
    assert best_buffer_bytes(PAPER, CostConstants(0, 1e-8)) == 0
    assert hybridjoin.tune(PAPER, CostConstants(0, 1e-8), np.ones(1000), "paper").swappable_pages == 1


def test_tuning_as_printed_is_the_closed_form():
    best = hybridjoin.tune(PAPER, DISK, np.ones(25_000), "paper")
    assert best.swappable_pages == pytest.approx(best_buffer_bytes(PAPER, DISK) / 9600, rel=0.1)
    assert best.pinned_pages == 0


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0])
def test_tuning_finds_the_best_of_all_buffers(exponent):
    setting = Setting(1e6, 100_000, 120, 32)
    weights = zipf_weights(100_000, 100, exponent)
    best = hybridjoin.tune(setting, DISK, weights)
    rates = []
    for pages in range(1, 80):
        answered = hybridjoin.input_rows(weights, setting.waiting_rows(pages * 12_000), pages)
        rates.append(answered / loop_seconds(DISK, pages * 12_000, pages * 100, answered))
    assert best.rows_per_second == pytest.approx(max(rates), rel=0.02)
    assert best.rows_per_second == pytest.approx(rates[best.swappable_pages - 1], rel=2e-3)


def test_more_memory_is_faster_and_a_larger_master_slower():
    def rate(memory_bytes: float, master_rows: int) -> float:
        setting = Setting(memory_bytes, master_rows, 120, 32)
        return hybridjoin.tune(setting, DISK, zipf_weights(master_rows, 100, 1.0)).rows_per_second

    assert rate(1e6, 100_000) < rate(2e6, 100_000) < rate(4e6, 100_000)
    assert rate(1e6, 100_000) > rate(1e6, 200_000) > rate(1e6, 400_000)


def test_bad_arguments_are_named():
    with pytest.raises(OptionError, match="form='printed'"):
        hybridjoin.tune(PAPER, DISK, np.ones(10), "printed")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="cannot hold a page"):
        hybridjoin.tune(PAPER, DISK, np.ones(2))
