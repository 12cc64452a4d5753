"""DINER: every pair exactly once, whatever arrives when, in memory that is never exceeded."""

import errno
import itertools
import os
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin import (
    DINER,
    AdjoinError,
    BudgetError,
    CorruptionError,
    OptionError,
    Pause,
    SchemaError,
    StorageError,
)
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


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [("pwrite", errno.ENOSPC, "make room"), ("preadv", errno.EIO, "cannot read")],
)
def test_what_the_disk_refuses_is_said_and_nothing_is_lost(call, number, complaint, monkeypatch):
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    calls, real = itertools.count(), getattr(os, call)

    def refused_now_and_then(*arguments: Any) -> int:
        now = next(calls)
        if now < 400 and now % 9 == 8:
            raise OSError(number, os.strerror(number))
        return int(real(*arguments))

    monkeypatch.setattr(f"adjoin.parts.spill.os.{call}", refused_now_and_then)
    found: list[pa.RecordBatch] = []
    complaints: list[str] = []

    def go_on(work: Any) -> bool:
        try:
            found.extend(iter(work))
        except StorageError as error:
            complaints.append(str(error))
            return False
        return True

    with small(SimulatedClock()) as join:
        for _ in range(8):
            for side, rows in (("left", left), ("right", right)):
                work = join.push(side, rows.draw(500))
                while not go_on(work):
                    join.check_invariants()
                    work = join.idle(0)
        while not go_on(join.finish()):
            continue
    assert len(complaints) > 3
    assert all(complaint in each for each in complaints)
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


def test_a_damaged_block_is_found():
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    with small(SimulatedClock()) as join:
        drain(join, [("left", left.draw(4_000)), ("right", right.draw(4_000))])
        os.pwrite(join._files[0]._file.fileno(), b"\x55" * 64, 700)
        with pytest.raises(CorruptionError, match="damaged"):
            list(join.finish())


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
