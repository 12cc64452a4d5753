import numpy as np
import pytest

from adjoin.semistream.models import inlj, meshjoin
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.setting import CostConstants, Setting

PAPER = Setting(50e6, 2_000_000, master_row_bytes=120, waiting_row_bytes=24)
DISK = CostConstants(8e-3, 1e-8, probe_seconds=2e-7, output_seconds=1e-6)


def test_as_many_rows_as_wait_pass_in_one_cycle():
    rows, _ = meshjoin.loop(PAPER, DISK, 1.2e6)
    assert rows * 200 == pytest.approx(PAPER.waiting_rows(1.2e6))


def test_an_iteration_reads_looks_up_and_answers():
    rows, seconds = meshjoin.loop(PAPER, DISK, 1.2e6)
    assert seconds == pytest.approx(8e-3 + 1.2e6 * 1e-8 + 10_000 * 2e-7 + rows * 1e-6)
    assert meshjoin.service_rate(PAPER, DISK, 1.2e6) == pytest.approx(rows / seconds)


def test_the_closed_form_is_the_best_buffer():
    buffers = np.linspace(1e4, 40e6, 20_001)
    rates = [meshjoin.service_rate(PAPER, DISK, float(buffer)) for buffer in buffers]
    assert best_buffer_bytes(PAPER, DISK) == pytest.approx(buffers[np.argmax(rates)], abs=4000)


def test_the_rate_is_proportional_to_memory_and_inverse_to_the_master():
    disk = CostConstants(8e-3, 1e-8)
    rate = meshjoin.service_rate(PAPER, disk, 1e6)
    larger = Setting(50e6, 4_000_000, 120, 24)
    assert meshjoin.service_rate(larger, disk, 1e6) == pytest.approx(rate / 2)
    roomier = Setting(99e6, 2_000_000, 120, 24)
    assert meshjoin.service_rate(roomier, disk, 1e6) == pytest.approx(2 * rate)


def test_times():
    assert meshjoin.processing_seconds(PAPER, DISK, 1.2e6) == pytest.approx(100 * (8e-3 + 1.2e-2))
    assert meshjoin.waiting_seconds(500, 125) == 2


def test_inlj_pays_a_read_for_every_row():
    assert inlj.service_rate(CostConstants(8e-3, 1e-8), 8192) == pytest.approx(1 / (8e-3 + 8192e-8))
    assert inlj.service_rate(DISK, 8192) < inlj.service_rate(CostConstants(8e-3, 1e-8), 8192)
