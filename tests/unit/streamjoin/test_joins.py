"""All joins of two streams: every pair exactly once, whatever arrives when, and memory is never exceeded."""

import errno
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin import (
    AdjoinError,
    BudgetError,
    CorruptionError,
    OptionError,
    Pause,
    SchemaError,
    StorageError,
)
from adjoin.kernels.hashing import scatter
from adjoin.master.device import Cost
from tests.unit.streamjoin.inputs import (
    CONDITIONS,
    JOINS,
    KINDS,
    LEFT,
    RIGHT,
    SPILLING,
    Input,
    each,
    expected,
    pairs_of,
    small,
)
from tests.unit.streamjoin.refusals import Refusals

SLOW = pytest.mark.slow
WIDTH = 1_500
"""Of the strings in random cases: so wide that few rows fill the memory."""


def arrivals(most_rows):
    """Rows of a side, pauses, the end of a side, in any order; nine of ten cases fill the memory first."""
    amounts = st.one_of(st.integers(0, most_rows), st.just(most_rows))
    rows = st.tuples(st.sampled_from(["left", "right"]), amounts)
    pause = st.tuples(st.just("pause"), st.sampled_from([0.01, 0.05, 0.3]))
    end = st.tuples(st.just("end"), st.sampled_from(["left", "right"]))
    more = st.lists(st.one_of(rows, rows, pause, end), max_size=10)
    full = st.permutations([("left", most_rows), ("right", most_rows)] * 3)
    few = st.lists(rows, min_size=1, max_size=6)
    first = st.integers(0, 9).flatmap(lambda case: few if case == 9 else full)
    return st.builds(list.__add__, first, more)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize(("name", "kind"), each(KINDS))
@given(items=arrivals(250), keys=st.sampled_from([12, 60, 2_000]), seed=st.integers(0, 99))
@settings(max_examples=3)
def test_every_pair_comes_exactly_once(name, kind, is_restored, items, keys, seed):
    check_every_pair(name, kind, is_restored, items, keys, seed, is_tight=True)


@pytest.mark.slow
@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize(("name", "kind"), KINDS)
@given(
    items=arrivals(400),
    keys=st.sampled_from([12, 60, 2_000]),
    seed=st.integers(0, 999),
    is_tight=st.booleans(),
)
@settings(max_examples=10)
def test_every_pair_comes_exactly_once_in_many_more_cases(
    name, kind, is_restored, items, keys, seed, is_tight
):
    check_every_pair(name, kind, is_restored, items, keys, seed, is_tight=is_tight)


def check_every_pair(name, kind, is_restored, items, keys, seed, *, is_tight):
    """Also where a new operator continues from a snapshot after every batch."""
    options, condition = CONDITIONS[kind]
    left, right = Input(LEFT, seed, keys, WIDTH), Input(RIGHT, seed + 1, keys, WIDTH)
    found = []
    options = {**options, "is_tight": is_tight}
    join = small(name, **options)
    ended = set()
    for what, amount in items:
        if what == "end":
            join.end(amount)
            ended.add(amount)
        elif what == "pause":
            found += list(join.idle(amount))
        elif what not in ended:
            found += list(join.push(what, (left if what == "left" else right).draw(amount)))
        join.check_invariants()
        if is_restored:
            before, join = join, small(name, **options)
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


@pytest.mark.parametrize("name", each(SPILLING))
def test_results_come_in_all_phases(name):
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    items: list[Any] = []
    for _ in range(20):
        items += [("left", left.draw(400)), ("right", right.draw(400)), Pause(0.2)]
    with small(name, disk=Cost(1e-3, 1e-5)) as join:
        found = list(join.run(items))
        metrics = join.metrics()
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")
    assert metrics["results_online"] > 0
    assert (metrics["results_reactive"] > 0) == (name != "pmj")
    assert metrics["results_cleanup"] > 0
    assert metrics["blocks_flushed"] > 50


@pytest.mark.parametrize("name", each(["diner", "rpj", "hmj", "xjoin"]))
def test_tuples_use_the_memory_of_reactive_phases_until_the_first_one(name):
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    found, kept = [], []
    with small(name, is_tight=False) as join:
        for _ in range(2):
            for _ in range(8):
                found += list(join.push("left", left.draw(400))) + list(join.push("right", right.draw(400)))
            kept.append(join.metrics()["rows_in_memory"])
            found += list(join.idle(1.0))
            join.check_invariants()
        assert join.metrics()["results_reactive"] > 0
        found += list(join.finish())
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
    least_share = {"xjoin": 0.05}.get(name, 0.1)  # it joins one partition at a time
    assert kept[1] < (1 - least_share) * kept[0]
    assert pairs_of(found) == expected(left.table, right.table, "l.k = r.k")


@pytest.mark.parametrize("name", JOINS)
def test_one_side_empty_and_both(name):
    for items in ([], [("left", Input(LEFT, 1, 300).draw(5_000))], [("right", Input(RIGHT, 1, 300).draw(9))]):
        with small(name) as join:
            assert list(join.run(items)) == []


@pytest.mark.parametrize(("name", "kind"), each(KINDS))
def test_one_key_everywhere(name, kind):
    left, right = Input(LEFT, 1, 1), Input(RIGHT, 2, 1)
    items: list[Any] = []
    for _ in range(5):
        items += [("left", left.draw(200)), ("right", right.draw(200)), Pause(0.4)]
    options, condition = CONDITIONS[kind]
    with small(name, memory="8MB" if name == "shj" else "400KB", **options) as join:
        found = list(join.run(items))
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
    assert pairs_of(found) == expected(left.table, right.table, condition)


@pytest.mark.parametrize("most_bytes", [1_200, 2_300, 3_400])
@pytest.mark.parametrize("name", each(SPILLING))
def test_rows_that_are_a_large_part_of_a_block(name, most_bytes):
    """Moving rows gains nothing where a slot holds only one or two of them; the join still completes."""
    random, inputs = np.random.default_rng(1), [Input(LEFT, 1, 50), Input(RIGHT, 2, 50)]
    found: list[pa.RecordBatch] = []
    with small(name, memory="700KB") as join:
        for _ in range(12):
            for side, rows in zip(("left", "right"), inputs, strict=True):
                batch = rows.draw(40)
                texts = pa.array(["x" * int(width) for width in random.integers(0, most_bytes, 40)])
                rows.batches[-1] = batch.set_column(2, batch.schema.field(2), texts)
                found += list(join.push(side, rows.batches[-1]))
            found += list(join.idle(0.2))
            join.check_invariants()
        assert join.metrics()["blocks_flushed"] > 0
        found += list(join.finish())
    assert pairs_of(found) == expected(inputs[0].table, inputs[1].table, "l.k = r.k")


SCATTERED_TO_THE_GREATEST = 3910305418671119431


@pytest.mark.parametrize(
    "key", [2**63 - 1, *(pytest.param(key, marks=SLOW) for key in (-(2**63), SCATTERED_TO_THE_GREATEST))]
)
@pytest.mark.parametrize(("name", "kind"), each(kind for kind in KINDS if kind[0] != "shj"))
def test_the_least_and_the_greatest_key_everywhere(name, kind, key):
    assert int(scatter(np.array([SCATTERED_TO_THE_GREATEST]))[0]) == 2**63 - 1
    inputs = [Input(schema, seed, 2) for seed, schema in enumerate((LEFT, RIGHT))]
    found: list[pa.RecordBatch] = []
    with small(name, memory="400KB", **CONDITIONS[kind][0]) as join:
        for _ in range(5):
            for side, rows in zip(("left", "right"), inputs, strict=True):
                batch = rows.draw(300)
                keys = pa.array(
                    [key if value == 0 else value for value in batch["k"].to_pylist()], pa.int64()
                )
                rows.batches[-1] = batch.set_column(0, "k", keys)
                found += list(join.push(side, rows.batches[-1]))
                join.check_invariants()
            found += list(join.idle(0.4))
        assert join.metrics()["blocks_flushed"] > 10
        found += list(join.finish())
    condition = CONDITIONS[kind][1].replace("l.k", "l.k::HUGEINT")
    assert pairs_of(found) == expected(inputs[0].table, inputs[1].table, condition)


@pytest.mark.parametrize("name", each(SPILLING))
def test_no_snapshot_is_taken_after_a_call_that_failed(name, monkeypatch):
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    with small(name) as join:
        for side, rows in (("left", left), ("right", right)):
            for batch in join.push(side, rows.draw(4_000)):
                del batch

        def refused(*_: Any) -> int:
            raise OSError(errno.EIO, "no")

        with monkeypatch.context() as disk:
            disk.setattr("adjoin.streamjoin.disk.spill_file.os.preadv", refused)
            with pytest.raises(StorageError):
                list(join.finish())
        with pytest.raises(AdjoinError, match="left over"):
            list(join.snapshot())


def test_a_column_with_a_reserved_name_is_refused():
    schema = LEFT.append(pa.field("_adjoin_arrived", pa.int64()))
    with pytest.raises(SchemaError, match="rename"):
        JOINS["diner"](schema, RIGHT, on="k")


def test_a_pause_shorter_than_wait_seconds_starts_no_reactive_phase():
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    with small("diner", wait_seconds=0.025) as join:
        for side, rows in (("left", left), ("right", right)):
            for batch in join.push(side, rows.draw(2_000)):
                del batch
        assert list(join.idle(0.02)) == []
        assert join.metrics()["pages_read"] == 0
        assert sum(batch.num_rows for batch in join.idle(0.5)) > 0


@pytest.mark.parametrize("name", each(SPILLING))
@pytest.mark.parametrize(
    ("call", "number", "complaint"),
    [("pwrite", errno.ENOSPC, "make room"), ("preadv", errno.EIO, "cannot read")],
)
def test_disk_errors_are_reported_and_nothing_is_lost(name, call, number, complaint, monkeypatch):
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    disk = Refusals(monkeypatch, call, number, calls=400)
    with small(name) as join:
        for _ in range(8):
            for side, rows in (("left", left), ("right", right)):
                disk.go_on(join, join.push(side, rows.draw(500)))
            disk.go_on(join, join.idle(0.3))
        disk.finish(join)
    assert len(disk.complaints) > 3
    assert all(complaint in said for said in disk.complaints)
    assert pairs_of(disk.found) == expected(left.table, right.table, "l.k = r.k")


@pytest.mark.parametrize("name", each(SPILLING))
def test_a_damaged_block_is_found(name):
    left, right = Input(LEFT, 1, 300), Input(RIGHT, 2, 300)
    with small(name) as join:
        for side, rows in (("left", left), ("right", right)):
            for batch in join.push(side, rows.draw(4_000)):
                del batch
        os.pwrite(join._storage.files[0]._file.fileno(), b"\x55" * 64, 700)
        with pytest.raises(CorruptionError, match="damaged"):
            list(join.finish())


def test_symmetric_hash_join_says_when_memory_is_full():
    left = Input(LEFT, 1, 300)
    with small("shj", memory="450KB") as join, pytest.raises(BudgetError, match="DINER"):
        list(join.push("left", left.draw(20_000)))


@pytest.mark.parametrize("name", ["xjoin", "hmj", "rpj", "shj"])
def test_hash_joins_refuse_bands(name):
    with pytest.raises(OptionError, match="use DINER for within="):
        small(name, within=2)
