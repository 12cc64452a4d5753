"""DINER: every pair exactly once, whatever arrives when, in memory that is never exceeded."""

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin import DINER, Pause
from adjoin.master.device import Cost
from adjoin.parts.clock import SimulatedClock

LEFT = pa.schema([("k", pa.int64()), ("l", pa.int64()), ("text", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("more", pa.string())])
CONDITIONS = {
    "equality": ({}, "l.k = r.k"),
    "band": ({"within": 2}, "r.k BETWEEN l.k - 2 AND l.k + 2"),
}


class Input:
    """Rows of one side, drawn one batch after the other."""

    def __init__(self, schema: pa.Schema, seed: int, keys: int) -> None:
        self._schema = schema
        self._random = np.random.default_rng(seed)
        self._keys = keys
        self.batches: list[pa.RecordBatch] = []

    def draw(self, rows: int) -> pa.RecordBatch:
        keys = pa.array(
            [
                None if at % 13 == 7 else int(key)
                for at, key in enumerate(self._random.integers(0, self._keys, rows))
            ],
            pa.int64(),
        )
        number = np.arange(rows) + sum(batch.num_rows for batch in self.batches)
        texts = ["x" * int(width) for width in self._random.integers(0, 90, rows)]
        batch = pa.RecordBatch.from_arrays([keys, pa.array(number), pa.array(texts)], schema=self._schema)
        self.batches.append(batch)
        return batch

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, schema=self._schema)


def expected(left: pa.Table, right: pa.Table, condition: str) -> list[tuple[int, int]]:
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        return sorted(connection.sql(f"SELECT l.l, r.r FROM l JOIN r ON {condition}").fetchall())


def pairs_of(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return sorted(
        pair for batch in batches for pair in zip(batch["l"].to_pylist(), batch["r"].to_pylist(), strict=True)
    )


arrivals = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["left", "right"]), st.integers(0, 700)),
        st.tuples(st.just("pause"), st.sampled_from([0.01, 0.05, 0.3])),
    ),
    max_size=14,
)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("kind", CONDITIONS)
@given(items=arrivals, keys=st.sampled_from([3, 60, 2_000]), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_every_pair_comes_exactly_once(kind, is_restored, items, keys, seed):
    """Also where the operator is written down after every batch, and another one goes on."""
    options, condition = CONDITIONS[kind]
    left, right = Input(LEFT, seed, keys), Input(RIGHT, seed + 1, keys)
    found = []
    join = small(SimulatedClock(), **options)
    for name, amount in items:
        if name == "pause":
            found += list(join.idle(amount))
        else:
            found += list(join.push(name, (left if name == "left" else right).draw(int(amount))))
        join.check_invariants()
        if is_restored:
            before, join = join, small(SimulatedClock(), **options)
            join.restore(before.snapshot())
            before.close()
            join.check_invariants()
    found += list(join.finish())
    metrics = join.metrics()
    join.close()
    assert pairs_of(found) == expected(left.table, right.table, condition)
    assert metrics["peak_bytes"] <= metrics["memory_bytes"]
    results = sum(metrics[f"results_{phase}"] for phase in ("online", "reactive", "cleanup"))
    assert results == metrics["rows_out"] == sum(batch.num_rows for batch in found)


def small(clock: SimulatedClock, **options: Any) -> DINER:
    """Blocks of a page, memory for about a hundred of them."""
    disk = Cost(8e-3, 4e-5)
    sizes: dict[str, Any] = {"memory": "450KB", "block_bytes": 4096, "max_outer": 3}
    return DINER(LEFT, RIGHT, on="k", clock=clock, disk=disk, **sizes, **options)


def joined(items: list[Any], **options: Any) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    with DINER(LEFT, RIGHT, on="k", memory="450KB", block_bytes=4096, **options) as join:
        found = list(join.run(items))
        return pairs_of(found), join.metrics()


def test_results_come_in_all_three_phases():
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    items: list[Any] = []
    for _ in range(20):
        items += [("left", left.draw(400)), ("right", right.draw(400)), Pause(0.2)]
    clock = SimulatedClock()
    found, metrics = joined(items, clock=clock, disk=Cost(1e-3, 1e-5), max_outer=3)
    assert found == expected(left.table, right.table, "l.k = r.k")
    assert metrics["results_online"] > 0
    assert metrics["results_reactive"] > 0
    assert metrics["results_cleanup"] > 0
    assert metrics["blocks_flushed"] > 50


def test_one_side_empty_and_both():
    left = Input(LEFT, 1, 300)
    assert joined([], max_outer=3)[0] == []
    assert joined([("left", left.draw(5_000))], max_outer=3)[0] == []


def test_once_an_input_has_ended_the_other_leaves_first():
    left, right = Input(LEFT, 1, 5_000), Input(RIGHT, 2, 5_000)
    items = [("left", left.draw(800)), ("left", None), *(("right", right.draw(500)) for _ in range(12))]
    with DINER(LEFT, RIGHT, on="k", memory="450KB", block_bytes=4096, max_outer=3) as join:
        found = list(join.run(items))
        assert join.metrics()["results_online"] == len(expected(left.table, right.table, "l.k = r.k"))
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")
