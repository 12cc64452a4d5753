"""Joins of many streams: every result exactly once, whatever arrives when, and memory is never exceeded."""

import datetime
import decimal
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

from adjoin import MINER, AdjoinError, BudgetError, CorruptionError, StorageError
from adjoin.operators.clock import SimulatedClock
from tests.unit.streamjoin.manyway.relations import JOINS, Tree, drain
from tests.unit.streamjoin.refusals import Refusals

CHAIN, HUB, SNOWFLAKE = [0, 1, 2], [0, 0, 0], [0, 0, 1, 1, 2]
EACH = pytest.mark.parametrize("name", ["miner", pytest.param("mjoin", marks=pytest.mark.slow)])
"""MJoin shares all but its flush policy with MINER."""
SHAPES = pytest.mark.parametrize(
    ("parents", "has_one_key"),
    [
        ([0], False),
        (CHAIN, False),
        pytest.param(HUB, False, marks=pytest.mark.slow),
        pytest.param(SNOWFLAKE, False, marks=pytest.mark.slow),
        (HUB, True),
    ],
    ids=["two", "chain", "hub", "snowflake", "one key"],
)


@st.composite
def trees(draw, most=6):
    size = draw(st.integers(2, most))
    parents = [draw(st.integers(0, child - 1)) for child in range(1, size)]
    kinds = [draw(st.sampled_from(["equality", "equality", "band", "range"])) for _ in parents]
    wide = any(kind != "equality" for kind in kinds)
    keys = draw(
        st.sampled_from([1_000, 4_000] if wide else {2: [12, 60, 500], 3: [60, 500]}.get(size, [500]))
    )
    has_one_key = not wide and draw(st.booleans())
    return Tree(parents, kinds, keys, draw(st.integers(0, 99)), has_one_key, width=1_200)


def arrivals(most_rows):
    """Rows of one relation, a pause, its end, in any order; nine cases out of ten fill the memory first."""
    amounts = st.one_of(st.integers(0, most_rows), st.just(most_rows))
    rows = st.tuples(st.just("rows"), st.integers(0, 99), amounts)
    pause = st.tuples(st.just("pause"), st.just(0), st.sampled_from([0.01, 0.3, 1.0]))
    end = st.tuples(st.just("end"), st.integers(0, 99), st.just(0))
    more = st.lists(st.one_of(rows, rows, pause, end), max_size=10)
    full = st.permutations([("rows", number, most_rows) for number in range(8)])
    few = st.lists(rows, min_size=1, max_size=6)
    first = st.integers(0, 9).flatmap(lambda case: few if case == 9 else full)
    return st.builds(list.__add__, first, more)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("name", JOINS)
@given(tree=trees(), items=arrivals(80))
@settings(max_examples=4)
def test_every_result_comes_exactly_once(name, is_restored, tree, items):
    check_every_result(name, is_restored, tree, items, is_tight=True)


def check_every_result(name, is_restored, tree, items, *, is_tight):
    """Also where a new operator continues from a snapshot after every third batch."""
    found: list[Any] = []
    join = tree.join(name, is_tight=is_tight)
    ended = set()
    for at, (what, number, amount) in enumerate(items):
        relation = number % tree.size
        if what == "end":
            join.end(tree.names[relation])
            ended.add(relation)
        elif what == "pause":
            found += list(join.idle(amount))
        elif relation not in ended:
            found += list(join.push(tree.names[relation], tree.draw(relation, amount)))
        join.check_invariants()
        if is_restored and at % 3 == 2:
            before, join = join, tree.join(name, is_tight=is_tight)
            join.restore(before.snapshot())
            before.close()
            join.check_invariants()
    found += list(join.finish())
    metrics = join.metrics()
    join.close()
    assert tree.found(found) == tree.expected()
    assert metrics["peak_bytes"] <= metrics["memory_bytes"]
    results = sum(metrics[f"results_{phase}"] for phase in ("online", "reactive", "cleanup"))
    assert results == metrics["rows_out"] == sum(batch.num_rows for batch in found)


@EACH
@SHAPES
def test_results_come_in_all_phases(name, parents, has_one_key):
    """Except for six relations: their tuples in memory match too rarely."""
    tree = Tree(parents, ["equality"] * len(parents), 1_500, 1, has_one_key)
    found: list[Any] = []
    with tree.join(name) as join:
        for _ in range(10):
            for relation in range(tree.size):
                found += list(join.push(tree.names[relation], tree.draw(relation, 200)))
                join.check_invariants()
            found += list(join.idle(1.5))
            join.check_invariants()
        found += list(join.finish())
        metrics = join.metrics()
    assert tree.found(found) == tree.expected()
    if parents != SNOWFLAKE:
        assert metrics["results_online"] > 0
        assert (metrics["results_reactive"] > 0) == (name == "miner")
    assert metrics["results_cleanup"] > 0
    assert metrics["blocks_flushed"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("is_restored", [False, True])
@EACH
@given(tree=trees(), items=arrivals(120), is_tight=st.booleans())
@settings(max_examples=30)
def test_every_result_comes_exactly_once_in_many_more_cases(name, is_restored, tree, items, is_tight):
    check_every_result(name, is_restored, tree, items, is_tight=is_tight)


@EACH
@SHAPES
def test_the_least_memory_is_enough(name, parents, has_one_key):
    tree = Tree(parents, ["equality"] * len(parents), 400, 1, has_one_key)
    found: list[Any] = []
    with tree.join(name, memory=least_memory(tree, name)) as join:
        for _ in range(6):
            for relation in range(tree.size):
                found += list(join.push(tree.names[relation], tree.draw(relation, 100)))
            found += list(join.idle(0.5))
            join.check_invariants()
        found += list(join.finish())
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
        assert join.metrics()["blocks_flushed"] > 0
    assert tree.found(found) == tree.expected()


def least_memory(tree, name):
    for memory in range(100_000, 2_000_000, 5_000):
        try:
            tree.join(name, memory=memory).close()
        except BudgetError:
            continue
        return memory
    raise AssertionError("no memory is enough")


@EACH
def test_one_key_everywhere(name):
    tree = Tree([0, 1], ["equality"] * 2, 1, 1)
    found: list[Any] = []
    with tree.join(name, memory=least_memory(tree, name)) as join:
        for _ in range(4):
            for relation, rows in enumerate((8, 8, 200)):
                found += list(join.push(tree.names[relation], tree.draw(relation, rows)))
            found += list(join.idle(1.0))
        found += list(join.finish())
        assert join.metrics()["blocks_flushed"] > 0
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
    assert tree.found(found) == tree.expected()


@EACH
def test_a_relation_without_rows(name):
    tree = Tree(CHAIN, ["equality"] * 3, 20, 1)
    with tree.join(name) as join:
        for relation in (0, 1, 3):
            assert list(join.push(tree.names[relation], tree.draw(relation, 2_000))) == []
        assert join.metrics()["blocks_flushed"] > 0
        assert list(join.finish()) == []


@EACH
@pytest.mark.parametrize(
    ("call", "number", "complaint"),
    [("pwrite", errno.ENOSPC, "make room"), ("preadv", errno.EIO, "cannot read")],
)
def test_disk_errors_are_reported_and_nothing_is_lost(name, call, number, complaint, monkeypatch):
    tree = Tree(CHAIN, ["equality"] * 3, 700, 1)
    disk = Refusals(monkeypatch, call, number, calls=600)
    with tree.join(name) as join:
        for _ in range(10):
            for relation in range(4):
                disk.go_on(join, join.push(tree.names[relation], tree.draw(relation, 120)))
            disk.go_on(join, join.idle(0.5))
        disk.finish(join)
    assert len(disk.complaints) > 3
    assert all(complaint in said for said in disk.complaints)
    assert tree.found(disk.found) == tree.expected()


@EACH
def test_a_damaged_block_is_found(name):
    tree = Tree(CHAIN, ["equality"] * 3, 300, 1)
    with tree.join(name) as join:
        for relation in range(4):
            drain(join.push(tree.names[relation], tree.draw(relation, 2_000)))
        os.pwrite(join._storage.files[0]._file.fileno(), b"\x55" * 64, 700)
        with pytest.raises(CorruptionError, match="damaged"):
            list(join.finish())


KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.string(), lambda key: None if key % 11 == 5 else f"key {key}"),
    "binary": (pa.large_binary(), lambda key: str(key).encode()),
    "date": (pa.date32(), lambda key: datetime.date(2020, 1, 1) + datetime.timedelta(days=int(key))),
    "decimal": (pa.decimal128(12, 3), lambda key: decimal.Decimal(int(key)) / 8),
    "float": (pa.float64(), lambda key: float(key) / 3),
}


@EACH
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind(name, kind):
    """The key of the second condition has two columns; other columns are nested."""
    type_, made = KEYS[kind]
    random = np.random.default_rng(1)
    relations: dict[str, pa.Table] = {}
    for relation in ("x", "y", "z"):
        rows = 1_200
        columns = {
            column: pa.array([made(key) for key in random.integers(0, 60, rows)], type_) for column in "abc"
        }
        columns["n"] = pa.array(np.arange(rows))
        columns["nested"] = pa.array([[{"at": at, "text": "x" * (at % 30)}] for at in range(rows)])
        relations[relation] = pa.table(columns)
    on = ["x.a = y.a", "y.b = z.b", "z.c = y.c"]
    schemas = {relation: table.schema for relation, table in relations.items()}
    options = {"max_outer": 2} if name == "miner" else {}
    found = []
    with JOINS[name](schemas, on, memory="420KB", block_bytes=4096, **options) as join:
        for begin in range(0, 1_200, 100):
            for relation, table in relations.items():
                (batch,) = table.slice(begin, 100).to_batches()
                found += list(join.push(relation, batch))
        found += list(join.finish())
        assert join.metrics()["blocks_flushed"] > 10
    combinations = [
        row for batch in found for row in zip(*(batch[f"{r}_n"].to_pylist() for r in "xyz"), strict=True)
    ]
    with duckdb.connect() as connection:
        for relation, table in relations.items():
            connection.register(relation, table)
        query = f"SELECT x.n, y.n, z.n FROM x, y, z WHERE {' AND '.join(on)}"
        assert sorted(combinations) == sorted(connection.sql(query).fetchall())
    for batch in found:
        for relation in "xyz":
            nested = [item[0]["at"] for item in batch[f"{relation}_nested"].to_pylist()]
            assert nested == batch[f"{relation}_n"].to_pylist()


@EACH
def test_a_column_may_be_in_a_key_twice(name):
    rows = {column: np.random.default_rng(seed).integers(0, 9, 60) for seed, column in enumerate("ab")}
    batch = pa.record_batch({**rows, "n": np.arange(60)})
    on = ["x.a = y.a", "x.a = y.b", "z.n = y.n"]
    found: list[Any] = []
    with JOINS[name]({"x": batch.schema, "y": batch.schema, "z": batch.schema}, on, memory="4MB") as join:
        for relation in "xyz":
            found += list(join.push(relation, batch))
        found += list(join.finish())
    expected = sum(int((rows["a"] == a).sum()) for a, b in zip(rows["a"], rows["b"], strict=True) if a == b)
    assert sum(each.num_rows for each in found) == expected > 0


@EACH
def test_a_pause_after_a_failed_finish_repeats_nothing(name, monkeypatch):
    tree = Tree(CHAIN, ["equality"] * 3, 300, 1)
    found: list[Any] = []
    calls, real = itertools.count(), os.preadv

    def refused_once(*arguments: Any) -> int:
        if next(calls) == 60:
            raise OSError(errno.EIO, "no")
        return int(real(*arguments))

    with tree.join(name) as join:
        for relation in range(4):
            found += list(join.push(tree.names[relation], tree.draw(relation, 800)))
        monkeypatch.setattr("adjoin.streamjoin.disk.spill_file.os.preadv", refused_once)
        with pytest.raises(StorageError):
            found.extend(iter(join.finish()))
        found += list(join.idle(5.0))
        found += list(join.finish())
    assert tree.found(found) == tree.expected()


def test_a_snapshot_of_another_join_is_refused():
    tree = Tree(CHAIN, ["equality"] * 3, 300, 1)
    other = Tree(CHAIN, ["equality", "band", "equality"], 300, 1)
    with tree.join("miner") as join:
        for relation in range(4):
            drain(join.push(tree.names[relation], tree.draw(relation, 300)))
        values = list(join.snapshot())
    for wrong in (other.join("miner"), tree.join("mjoin")):
        with wrong, pytest.raises(AdjoinError, match="snapshot of"):
            wrong.restore(values)


@pytest.mark.parametrize("length", [3_400, 3_580])
def test_rows_that_barely_fit_in_a_block(length):
    schema = pa.schema([("k", pa.int64()), ("text", pa.string())])
    batch = pa.record_batch(
        {"k": np.arange(24) % 12, "text": ["x" * (length if at % 3 else 40) for at in range(24)]}
    )
    found = 0
    options: dict[str, Any] = {"block_bytes": 4096, "max_outer": 2, "clock": SimulatedClock()}
    relations = {"x": schema, "y": schema, "z": schema}
    with MINER(relations, ["x.k = y.k", "y.k = z.k"], memory="420KB", **options) as join:
        for _ in range(3):
            for relation in relations:
                found += drain(join.push(relation, batch.cast(schema)))
            found += drain(join.idle(0.3))
            join.check_invariants()
        assert join.metrics()["blocks_flushed"] > 20
        found += drain(join.finish())
    assert found == 12 * 6**3


@EACH
def test_many_narrow_inputs_leave_in_time(name):
    """Rows of one size leave holes, which take memory until other rows fill them."""
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    relations = {f"r{number}": schema for number in range(6)}
    on = [f"r0.k = r{number}.k" for number in range(1, 6)]
    random = np.random.default_rng(1)
    with JOINS[name](relations, on, memory="3MB") as join:
        for _ in range(12):
            for relation in relations:
                keys = random.integers(0, 10**9, 2_000)
                drain(join.push(relation, pa.record_batch({"k": keys, "n": keys})))
        join.check_invariants()
        assert join.metrics()["blocks_flushed"] > 10
        assert drain(join.finish()) >= 0
