"""The choice between the joins: by what, when, and that nothing is lost when it changes."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import AutoJoin, BudgetError, Master, OptionError
from adjoin.master.device import HARD_DISK, Cost, SimulatedDisk
from adjoin.operators.clock import SimulatedClock
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, results, sales
from workloads import Zipf

KEYS = 20_000


NIMBLE_DISK = Cost(1e-4, HARD_DISK.block_seconds)


def disk(cost: Cost = HARD_DISK) -> dict[str, Any]:
    clock = SimulatedClock()
    return {"clock": clock, "device": SimulatedDisk(clock, cost)}


@pytest.fixture(scope="module")
def unique(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return build(products(KEYS, width=100), tmp_path_factory.mktemp("unique"))


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return build(products(KEYS // 1000, copies=1000, width=100), tmp_path_factory.mktemp("groups"))


def batches(keys: int, rows: int, exponent: float) -> list[pa.RecordBatch]:
    drawn = Zipf(keys, exponent, seed=3, placement="random").draw(rows) * 2
    return [sales(drawn[begin : begin + 500]) for begin in range(0, rows, 500)]


def chosen(
    master: Master, stream: list[pa.RecordBatch], cost: Cost = HARD_DISK, **options: Any
) -> dict[str, Any]:
    with AutoJoin(master, on="id", memory="1MB", **disk(cost), **options) as join:
        for batch in stream:
            for _ in join.push(batch):
                pass
        return join.metrics()


def test_a_disk_that_positions_slowly_is_read_for_many_rows_at_a_time(unique):
    assert chosen(unique, batches(KEYS, 10_000, 1.0))["algorithm"] == "ssij+front"


def test_a_nimble_disk_is_read_for_the_oldest_rows_first(unique):
    metrics = chosen(unique, batches(KEYS, 10_000, 1.0), NIMBLE_DISK)
    assert metrics["algorithm"] == "xhybridjoin+front"


def test_keys_over_many_pages_are_served_by_a_scan(groups):
    """A row that waits for many pages takes much memory, unless it waits for all of them."""
    metrics = chosen(groups, batches(KEYS // 1000, 2_000, 0.0))
    assert metrics["algorithm"] == "cmeshjoin"
    assert metrics["choices"] == 2


def test_a_stream_that_pauses_is_served_by_ssij(unique):
    assert chosen(unique, batches(KEYS, 2_000, 1.0), is_paced=True)["algorithm"] == "ssij+front"


def test_large_batches_do_not_make_chance_look_like_skew(unique):
    stream = sales(Zipf(KEYS, 0.0, seed=3).draw(100_000) * 2)
    with AutoJoin(unique, on="id", memory="1MB", **disk()) as join:
        for _ in join.push(stream):
            pass
        counts = join._counts
    assert counts.var() < 2 * counts.mean()


def test_where_reading_is_cheap_the_processor_decides(unique):
    with AutoJoin(unique, on="id", memory="1MB") as join:
        for batch in batches(KEYS, 10_000, 1.0):
            for _ in join.push(batch):
                pass
        assert join.metrics()["algorithm"] == "ssij"


def test_it_says_why(unique):
    metrics = chosen(unique, batches(KEYS, 10_000, 1.0))
    assert re.search(r"[1-9][\d,]* rows seen", metrics["reason"])
    for name in ("xhybridjoin+front", "ssij+front", "cmeshjoin"):
        assert name in metrics["reason"]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_nothing_is_lost_when_another_join_takes_over(how, unique, monkeypatch):
    turns = iter(["ssij+front", "cmeshjoin", "xhybridjoin+front", "ssij+front", "cmeshjoin"] * 9)

    def rates(self: AutoJoin) -> dict[str, float]:
        self._rows_to_choose = 0
        best = next(turns)
        return {
            name: 2.0 if name == best else 1.0 for name in ("xhybridjoin+front", "ssij+front", "cmeshjoin")
        }

    monkeypatch.setattr(AutoJoin, "_rates", rates)
    monkeypatch.setattr("adjoin.semistream.auto._ROWS_PER_PAGE", 0)
    monkeypatch.setattr("adjoin.semistream.auto._MOST_ROWS_PER_PAGE", 1)
    stream = batches(KEYS, 12_000, 0.5)
    join = AutoJoin(unique, on="id", how=how, memory="1MB", **disk())
    wanted = expected(pa.Table.from_batches(stream), products(KEYS, width=100), Predicate("id"), how)
    assert_same_rows(results(join, stream), wanted)
    metrics = join.metrics()
    assert metrics["choices"] > 3
    assert metrics["rows_in"] == 12_000
    assert metrics["peak_bytes"] <= metrics["memory_bytes"]


def test_what_it_cannot_do_is_said(unique):
    with pytest.raises(OptionError, match="deadlines"):
        AutoJoin(unique, on="id", deadline=3.0)
    with pytest.raises(BudgetError, match=str(AutoJoin.least_memory(unique))):
        AutoJoin(unique, on="id", memory=AutoJoin.least_memory(unique) - 1)


def test_the_master_may_be_empty(tmp_path):
    empty = build(products(0), tmp_path)
    with AutoJoin(empty, on="id", how="left", memory="4MB", **disk()) as join:
        assert sum(out.num_rows for out in join.run([sales(np.arange(10))])) == 10
