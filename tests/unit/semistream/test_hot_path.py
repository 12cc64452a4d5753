"""Python runs per batch and per wave of reads, not per row and not per page."""

import sys
from typing import Any

import numpy as np
import pytest

from adjoin import SSIJ, Master
from tests.unit.semistream.shop import build, products, sales, slow_disk

ROWS = 12_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return build(products(ROWS, width=150), tmp_path_factory.mktemp("hot"))


def python_calls(master: Master, keys: Any, warm_keys: Any) -> int:
    """Calls once every kernel on the way is compiled: the first round is not counted."""
    counted_calls(master, keys, warm_keys)
    return counted_calls(master, keys, warm_keys)


def counted_calls(master: Master, keys: Any, warm_keys: Any) -> int:
    """Functions of Python that start while the keys are joined, after others made the cache warm."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    with SSIJ(master, on="id", memory="64MB", **slow_disk()) as join:
        list(join.push(sales(warm_keys)))
        list(join.idle(0))
        batch = sales(keys)
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            for _ in (*join.push(batch), *join.idle(0)):
                pass
        finally:
            sys.setprofile(before)
    return calls


def test_a_wave_of_many_pages_costs_no_more_calls_than_one_of_few(master):
    first = master.index.first
    assert master.pages > 400
    few = python_calls(master, first[:10], [-1])
    many = python_calls(master, first[:400], [-1])
    assert abs(many - few) < 40


def test_many_pending_rows_cost_no_more_calls_than_few(master):
    few = python_calls(master, [0, 2, 4], [-1])
    many = python_calls(master, np.tile(np.arange(0, 40, 2), 400), [-1])
    assert abs(many - few) < 40


def test_many_rows_answered_from_the_cache_cost_no_more_calls_than_few(master):
    everything = np.arange(0, 2 * ROWS, 2)
    few = python_calls(master, [0, 2, 4], everything)
    many = python_calls(master, np.tile(everything, 1)[:8000], everything)
    assert abs(many - few) < 40
