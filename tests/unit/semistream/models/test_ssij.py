"""The model of SSIJ: limits that are known, and what must rise and fall."""

import numpy as np
import pytest

from adjoin.errors import OptionError
from adjoin.semistream.models.setting import CostConstants, Setting
from adjoin.semistream.models.ssij import service_rate

DISK = CostConstants(8e-3, 1e-8)
PAGES = 10_000
SETTING = Setting(4e6, PAGES, 8192, 130)


def test_with_every_page_wanted_a_phase_is_a_scan_of_what_is_not_cached():
    many = Setting(4e8, PAGES, 8192, 20)
    few = Setting(8e6, PAGES, 8192, 4)
    waiting_rows = 4e6 / 4
    scan = (PAGES - 488) * 8192e-8 + (PAGES - 488) / 200 * 8e-3
    share = 1 - 488 / PAGES
    rate = service_rate(few, DISK, np.ones(PAGES), stream_share=0.5)
    assert rate == pytest.approx(waiting_rows / share / scan, rel=0.05)
    assert service_rate(many, DISK, np.ones(PAGES), stream_share=0.5) > 100 * rate


def test_few_rows_cost_a_page_each():
    """As many random reads as rows: the worst case of the paper."""
    lonely = Setting(1e5, PAGES, 8192, 2000)
    rate = service_rate(lonely, DISK, np.ones(PAGES))
    assert rate == pytest.approx(1 / (8e-3 + 8192e-8), rel=0.25)


def test_skew_and_memory_help():
    skewed = 1 / np.arange(1.0, PAGES + 1)
    rates = [service_rate(SETTING, DISK, weights) for weights in (np.ones(PAGES), skewed**0.5, skewed)]
    assert rates == sorted(rates)
    assert service_rate(Setting(8e6, PAGES, 8192, 130), DISK, skewed) > rates[-1]


def test_the_order_of_pages_does_not_matter():
    skewed = 1 / np.arange(1.0, PAGES + 1)
    assert service_rate(SETTING, DISK, skewed) == pytest.approx(service_rate(SETTING, DISK, skewed[::-1]))


def test_bad_shares():
    with pytest.raises(OptionError, match="stream_share"):
        service_rate(SETTING, DISK, np.ones(PAGES), stream_share=1.0)
