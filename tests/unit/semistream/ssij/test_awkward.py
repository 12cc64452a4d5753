"""Awkward use: offers in the middle, forks, abandoned operators, extreme distances, rare types."""

import gc
import os
import subprocess
import sys
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import (
    SSIJ,
    AdjoinError,
    HybridJoin,
    Master,
    MasterReplacedError,
    MeshJoin,
    OptionError,
    SchemaError,
)
from adjoin.keys.codec import KeyCodec
from adjoin.operators.clock import SimulatedClock
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, sales


def test_rows_offered_until_there_is_no_room_are_all_answered(tmp_path):
    table = products(20_000)
    random = np.random.default_rng(3)
    with SSIJ(build(table, tmp_path), on="id", memory="2MB") as join:
        batches = []
        while join.offer(batch := sales(random.integers(0, 40_000, 500))):
            batches.append(batch)
        actual = pa.Table.from_batches(list(join.finish()))
    assert batches
    assert_same_rows(actual, expected(pa.Table.from_batches(batches), table, Predicate("id"), "inner"))


@pytest.mark.parametrize("algorithm", [SSIJ, MeshJoin, HybridJoin])
@pytest.mark.parametrize("width", [0, 30, 3000])
def test_rows_offered_whenever_there_is_room_are_all_answered(tmp_path, algorithm, width):
    table = products(20_000)
    random = np.random.default_rng(4)
    batches: list[pa.RecordBatch] = []
    results_: list[pa.RecordBatch] = []

    def offer_all(join):
        rows = sales(random.integers(0, 40_000, 100))
        texts = [f"{sale:0{random.integers(0, width + 1)}d}" for sale in rows["sale"].to_pylist()]
        batch = rows.append_column("text", pa.array(texts))
        while len(batches) < 400 and join.offer(batch):
            batches.append(batch)
        join.check_invariants()
        return batch.slice(0, 1)

    with algorithm(build(table, tmp_path), on="id", memory="2MB") as join:
        while len(batches) < 400:
            batches.append(offer_all(join))
            for result in join.push(batches[-1]):
                results_.append(result)
                offer_all(join)
        results_ += join.finish()
    stream = pa.Table.from_batches(batches)
    assert_same_rows(pa.Table.from_batches(results_), expected(stream, table, Predicate("id"), "inner"))


def test_offer_refuses_what_push_refuses(tmp_path):
    join = SSIJ(build(products(10), tmp_path), on="id", memory="2MB")
    with pytest.raises(SchemaError, match="no column 'id'"):
        join.offer(pa.record_batch({"x": [1]}))
    assert join.offer(sales([2]))
    with pytest.raises(SchemaError, match="one stream has one schema"):
        join.offer(pa.record_batch({"id": [1]}))
    join.close()
    with pytest.raises(AdjoinError, match="has ended"):
        join.offer(sales([2]))


def test_a_result_asked_for_after_close_is_refused(tmp_path):
    join = SSIJ(build(products(50_000), tmp_path), on="id", memory="2MB")
    results_ = join.push(sales(np.random.default_rng(4).integers(0, 100_000, 100_000)))
    next(results_)
    join.close()
    with pytest.raises(AdjoinError, match="has ended"):
        list(results_)


def test_a_master_that_cannot_follow_is_refused_and_the_operator_continues(tmp_path):
    other = Master.build(pa.table({"id": [1], "z": [2]}), key="id", path=tmp_path / "other")
    with SSIJ(build(products(10), tmp_path), on="id", memory="2MB") as join:
        list(join.push(sales([2])))
        with pytest.raises(MasterReplacedError, match=other.id):
            join.refresh(other)
        assert sum(batch.num_rows for batch in join.finish()) == 1


def test_a_deadline_that_is_not_a_number_does_not_hide_the_others(tmp_path):
    clock = SimulatedClock()
    join = SSIJ(build(products(10), tmp_path), on="id", memory="2MB", deadline="by", clock=clock)
    list(join.push(pa.record_batch({"id": [2, 4], "by": [np.nan, 1.0]})))
    assert sum(batch.num_rows for batch in join.idle(1.0)) == 2
    join.close()


def test_a_bad_deadline_column_is_refused_before_any_row_is_taken(tmp_path):
    with (
        SSIJ(build(products(10), tmp_path), on="id", memory="2MB", deadline="by") as join,
        pytest.raises(SchemaError, match="date32"),
    ):
        join.push(pa.record_batch({"id": pa.array([2]), "by": pa.array([1], pa.date32())}))


@pytest.mark.parametrize("within", [float("nan"), Decimal("NaN"), -0.5])
def test_a_distance_that_is_none_is_refused(within, tmp_path):
    with pytest.raises(OptionError, match="must not be negative"):
        SSIJ(build(products(10), tmp_path), on="id", memory="2MB", within=within)


def test_an_endless_distance_matches_every_key(tmp_path):
    with SSIJ(build(products(10), tmp_path), on="id", memory="2MB", within=float("inf")) as join:
        assert sum(batch.num_rows for batch in join.run([sales([0, 7])])) == 20


@pytest.mark.parametrize("on", [{"a": "id", "b": "id"}, ["id", "id"]])
def test_a_key_named_twice_is_refused(on, tmp_path):
    with pytest.raises(SchemaError, match="must name the key"):
        SSIJ(build(products(10), tmp_path), on=on, memory="2MB")


def test_files_of_an_operator_that_was_not_closed_are_closed_with_it(tmp_path):
    master = build(products(1000), tmp_path)
    gc.collect()
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        join = SSIJ(master, on="id", memory="2MB")
        list(join.push(sales([2, 900])))
        list(join.idle(0))
    del join
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= open_files


def test_a_forked_process_is_told_to_make_its_own_operator(tmp_path):
    code = """
import os, sys, pyarrow as pa, adjoin
join = adjoin.SSIJ(adjoin.Master.open(sys.argv[1]), on="id", memory="2MB")
list(join.push(pa.record_batch({"id": [900]})))
list(join.idle(0))
child = os.fork()
if child:
    list(join.push(pa.record_batch({"id": [2]})))
    assert sum(batch.num_rows for batch in join.finish()) == 1
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    list(join.push(pa.record_batch({"id": [2]})))
except adjoin.AdjoinError as error:
    os._exit(0 if "in a fork of the process" in str(error) else 1)
os._exit(2)
"""
    build(products(1000), tmp_path).close()
    command = [sys.executable, "-c", code, str(tmp_path / "master")]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


class Marked(pa.ExtensionType):  # type: ignore[misc]
    """A type of somebody's own; pyarrow makes those unhashable."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "adjoin.tests.marked")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Marked":
        return cls()


def test_extension_types_can_be_keys_and_other_columns(tmp_path):
    marked = pa.ExtensionArray.from_storage(Marked(), pa.array([2, 5, None]))
    with SSIJ(build(products(10), tmp_path), on="id", how="left", memory="2MB") as join:
        table = pa.Table.from_batches(list(join.run([pa.record_batch({"id": marked, "mark": marked})])))
    assert table.schema.field("mark").type == Marked()
    assert sorted(table["name"].to_pylist(), key=str) == [f"{2:040d}", None, None]


def test_lists_with_many_items_are_measured_in_portions(tmp_path):
    rows, items = 400, 1000
    texts = pa.ListArray.from_arrays(
        np.arange(rows + 1, dtype=np.int32) * items, pa.array(["a"] * rows * items)
    )
    flags = pa.ListArray.from_arrays(
        np.arange(rows + 1, dtype=np.int32) * items, pa.array(np.ones(rows * items, bool))
    )
    table = pa.table({"id": np.zeros(rows, np.int64), "texts": texts, "flags": flags})
    stream = pa.record_batch({"id": [0] * 20})
    with SSIJ(build(table, tmp_path), on="id", memory="8MB") as join:
        for _ in join.run([stream]):  # compiles
            pass
    with SSIJ(Master.open(tmp_path / "master"), on="id", memory="8MB") as join:
        count = 0
        tracemalloc.start()
        for batch in join.run([stream]):
            count += batch.num_rows
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 20 * rows
    assert peak < 2 << 20


def test_the_keys_of_all_waiting_rows_are_not_decoded_for_each_portion(tmp_path, monkeypatch):
    names = [f"{number:0100d}" for number in range(3000)]
    table = pa.table({"id": names, "value": np.arange(3000)})
    random = np.random.default_rng(5)
    keys = pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 3000, 20_000), pa.int32()), names)
    most = 0
    conform = KeyCodec.conform

    def watched(codec: KeyCodec, columns: Any, **options: Any) -> Any:
        nonlocal most
        most = max(most, len(columns[0]))
        return conform(codec, columns, **options)

    monkeypatch.setattr(KeyCodec, "conform", watched)
    with SSIJ(build(table, tmp_path), on="id", memory="16MB", stream_rows=10**6) as join:
        assert sum(batch.num_rows for batch in join.run([pa.record_batch({"id": keys})])) == 20_000
        assert most <= join.parts.pages.split.step_rows


@pytest.mark.parametrize("distance", [2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**70, 1e30])
def test_a_distance_may_span_the_whole_domain(distance, tmp_path):
    ends = [np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max]
    table = pa.table({"id": pa.array(ends, pa.int64())})
    wanted = sum(abs(one - other) <= distance for one in map(int, ends) for other in map(int, ends))
    with SSIJ(build(table, tmp_path), on="id", memory="2MB", within=distance) as join:
        assert sum(batch.num_rows for batch in join.run([sales(ends)])) == wanted


def test_a_column_of_an_unsupported_type_is_named_before_any_row_is_taken(tmp_path):
    column = pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])], ["a"]
    )
    with (
        SSIJ(build(products(10), tmp_path), on="id", memory="2MB") as join,
        pytest.raises(SchemaError, match=r"unsupported type .* for column 'odd'"),
    ):
        join.push(pa.record_batch({"id": pa.array([2]), "odd": column}))


def test_more_pairs_than_were_reserved_start_a_join_phase(tmp_path, monkeypatch):
    """Memory of an index that became smaller can hold more pairs than the buffer was made for."""
    rows = 20_000
    table = products(rows, width=90)
    master = build(table, tmp_path)
    few = master.apply(pa.table({"id": table["id"][2_000:], "_op": ["delete"] * (rows - 2_000)}))
    low = np.random.default_rng(0).integers(0, 800, 1_500)
    ranges = pa.record_batch({"low": low, "high": low + 1_000})
    memory = SSIJ.least_memory(master)
    options: dict[str, Any] = {"on": "id", "how": "semi", "memory": memory, "stream_rows": 10**9}
    with SSIJ(master, between=("low", "high"), **options) as join:
        list(join.push(ranges.slice(0, 1)))
        list(join.refresh(few))
        results = list(join.push(ranges)) + list(join.finish())
    assert sum(batch.num_rows for batch in results) == 1_501
    monkeypatch.setattr("adjoin.semistream.ssij.buffers.MOST_STREAM_BYTES", 1 << 16)
    with SSIJ(few, between=("low", "high"), **{**options, "memory": "8MB"}) as join:
        assert sum(batch.num_rows for batch in join.run([ranges] * 3)) == 4_500
