"""DINER: what it does beside what all joins of two streams do."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, AdjoinError, BudgetError, OptionError, SchemaError
from tests.unit.streamjoin.inputs import LEFT, RIGHT, Input, expected, pairs_of


def test_once_an_input_has_ended_the_other_leaves_first():
    left, right = Input(LEFT, 1, 5_000), Input(RIGHT, 2, 5_000)
    items = [("left", left.draw(800)), ("left", None), *(("right", right.draw(500)) for _ in range(12))]
    with DINER(LEFT, RIGHT, on="k", memory="450KB", block_bytes=4096, max_outer=3) as join:
        found = list(join.run(items))
        assert join.metrics()["results_online"] == len(expected(left.table, right.table, "l.k = r.k"))
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


def drain(join: DINER, items: list[Any]) -> list[pa.RecordBatch]:
    return [result for side, batch in items for result in join.push(side, batch)]


@pytest.mark.parametrize("on", ["name", ["name", "k"]])
def test_keys_of_any_type(on):
    random = np.random.default_rng(3)

    def batch(rows: int, column: str) -> pa.RecordBatch:
        keys = random.integers(0, 150, rows)
        names = pa.array([f"key {key}" for key in keys], mask=keys % 17 == 0)
        return pa.record_batch({"name": names, "k": keys % 3, column: np.arange(rows)})

    left, right = batch(3_000, "l"), batch(3_000, "r")
    with DINER(left.schema, right.schema, on, memory="450KB", block_bytes=4096, max_outer=3) as join:
        found = list(join.run([("left", left), ("right", right)]))
        assert join.metrics()["blocks_flushed"] > 0
    condition = " AND ".join(f"l.{name} = r.{name}" for name in ([on] if isinstance(on, str) else on))
    tables = pa.Table.from_batches([left]), pa.Table.from_batches([right])
    assert pairs_of(found) == expected(tables[0], tables[1], condition)


def test_ranges_of_two_columns():
    random = np.random.default_rng(4)
    low = random.integers(0, 3_000, 2_000)
    left = pa.record_batch({"low": low, "high": low + random.integers(-2, 30, 2_000), "l": np.arange(2_000)})
    right = pa.record_batch({"k": random.integers(0, 3_000, 2_000), "r": np.arange(2_000)})
    options: dict[str, Any] = {"memory": "450KB", "block_bytes": 4096, "max_outer": 3}
    with DINER(left.schema, right.schema, on="k", between=("low", "high"), **options) as join:
        found = drain(join, [("right", right.slice(0, 900)), ("left", left), ("right", right.slice(900))])
        found += list(join.finish())
        assert join.metrics()["blocks_flushed"] > 0
    tables = pa.Table.from_batches([left]), pa.Table.from_batches([right])
    assert pairs_of(found) == expected(tables[0], tables[1], "r.k BETWEEN l.low AND l.high")


def test_what_cannot_be_joined_is_refused():
    with pytest.raises(SchemaError, match="has no column 'x'"):
        DINER(LEFT, RIGHT, on="x")
    with pytest.raises(BudgetError, match="give memory="):
        DINER(LEFT, RIGHT, on="k", memory="100KB", block_bytes=1 << 20)
    with DINER(LEFT, RIGHT, on="k", memory="4MB") as join:
        with pytest.raises(OptionError, match="left, right"):
            join.push("middle", Input(LEFT, 1, 3).draw(1))
        with pytest.raises(SchemaError, match="right input"):
            join.push("right", Input(LEFT, 1, 3).draw(1))
        join.end("left")
        with pytest.raises(AdjoinError, match="ended"):
            join.push("left", Input(LEFT, 1, 3).draw(1))
