"""Keys of other types, of several columns, and ranges: the same for all joins."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, MINER
from adjoin.streamjoin.base.result_builder import InSlots
from tests.unit.streamjoin.inputs import JOINS, each, expected, pairs_of


@pytest.mark.parametrize("on", ["name", ["name", "k"]])
@pytest.mark.parametrize("name", each(JOINS))
def test_keys_of_any_type(name, on):
    random = np.random.default_rng(3)

    def batch(rows: int, column: str) -> pa.RecordBatch:
        keys = random.integers(0, 3_000, rows)
        names = pa.array([f"key {key}" for key in keys], mask=keys % 17 == 0)
        return pa.record_batch({"name": names, "k": keys % 3, column: np.arange(rows)})

    left, right = batch(9_000, "l"), batch(9_000, "r")
    memory = "9MB" if name == "shj" else "900KB"
    with JOINS[name](left.schema, right.schema, on, memory=memory, block_bytes=4096) as join:
        found = list(join.run([("left", left), ("right", right)]))
        assert (join.metrics()["blocks_flushed"] > 0) == (name != "shj")
    condition = " AND ".join(f"l.{name} = r.{name}" for name in ([on] if isinstance(on, str) else on))
    tables = pa.Table.from_batches([left]), pa.Table.from_batches([right])
    assert pairs_of(found) == expected(tables[0], tables[1], condition)


@pytest.mark.parametrize("name", ["diner", "pmj"])
def test_ranges_of_two_columns(name):
    random = np.random.default_rng(4)
    low = random.integers(0, 3_000, 2_000)
    left = pa.record_batch({"low": low, "high": low + random.integers(-2, 30, 2_000), "l": np.arange(2_000)})
    right = pa.record_batch({"k": random.integers(0, 3_000, 2_000), "r": np.arange(2_000)})
    options: dict[str, Any] = {"memory": "400KB", "block_bytes": 4096, "max_outer": 2}
    with JOINS[name](left.schema, right.schema, on="k", between=("low", "high"), **options) as join:
        found = list(join.run([("right", right.slice(0, 900)), ("left", left), ("right", right.slice(900))]))
        assert join.metrics()["blocks_flushed"] > 0
    tables = pa.Table.from_batches([left]), pa.Table.from_batches([right])
    assert pairs_of(found) == expected(tables[0], tables[1], "r.k BETWEEN l.low AND l.high")


@pytest.mark.parametrize("relations", [2, 3])
def test_long_keys_are_fetched_a_portion_at_a_time(relations, monkeypatch):
    rows = pa.record_batch({"name": ["x" * 3_000] * 40, "n": np.arange(40)})
    names = [f"r{number}" for number in range(relations)]
    if relations == 2:
        join: Any = DINER(rows.schema, rows.schema, "name", "8MB", columns=["n", "n_right"])
        names = ["left", "right"]
    else:
        on = ["r0.name = r1.name", "r1.name = r2.name"]
        join = MINER(dict.fromkeys(names, rows.schema), on, "8MB", columns=["r0_n", "r1_n", "r2_n"])
    taken, take = [], InSlots.take

    def noted(self, *arguments):
        columns = take(self, *arguments)
        taken.append(sum(column.nbytes for column in columns))
        return columns

    monkeypatch.setattr(InSlots, "take", noted)
    with join:
        found = list(join.run([(name, rows) for name in names]))
        assert max(taken) <= join._storage.sizes.work_bytes // 2
    assert sum(batch.num_rows for batch in found) == 40**relations
    assert sum(taken) > join._storage.sizes.work_bytes
