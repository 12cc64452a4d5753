"""Keys of other types, of several columns, and ranges: the same for all joins."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

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
