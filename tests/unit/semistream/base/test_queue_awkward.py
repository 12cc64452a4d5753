"""Queue joins and front stages in awkward moments: each case once went wrong."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import (
    SSIJ,
    AutoJoin,
    CMeshJoin,
    FrontStage,
    HybridJoin,
    MeshJoin,
    PageFile,
    XHybridJoin,
)
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from adjoin.semistream.frontstage.rows_by_key import RowsByKey
from adjoin.semistream.frontstage.tuple_cache import CacheSizes, TupleCache
from tests.unit.semistream.shop import build, products, sales, slow_disk


@pytest.mark.parametrize("kind", [SSIJ, HybridJoin, XHybridJoin, MeshJoin, CMeshJoin, AutoJoin])
def test_every_row_that_was_taken_is_answered(kind, tmp_path):
    """Rows are offered whenever a result comes, and at the end too, when they are refused."""
    master = build(products(8_000), tmp_path)
    random = np.random.default_rng(1)
    with kind(master, on="id", how="left", memory="1MB", **slow_disk()) as join:
        taken = answered = 0
        for _ in range(30):
            for out in join.push(sales(random.integers(0, 20_000, 1_000))):
                answered += out.num_rows
                taken += 3 if join.offer(sales([1, 2, 3])) else 0
            taken += 1_000
        for out in join.finish():
            answered += out.num_rows
            assert not join.offer(sales([1]))
        assert answered == taken == join.metrics()["rows_in"]
        assert join.metrics()["rows_waiting"] == 0


def test_rows_too_wide_for_what_is_left_of_any_slot_do_not_turn_in_circles():
    schema = pa.schema([pa.field("_adjoin_key", pa.int64(), False), ("text", pa.string())])
    left = [200_000]

    def ask(more: int) -> bool:
        left[0] -= more if more <= left[0] else 0
        return more <= left[0] + more and left[0] >= 0

    sizes = CacheSizes.of(schema, 300_000, 200)
    assert sizes is not None
    cache = TupleCache(schema, sizes, ask)

    def put(keys: Any, width: int) -> None:
        batch = pa.record_batch(
            [pa.array(keys, pa.int64()), pa.array(["x" * width] * len(keys))], schema=schema
        )
        ones, cold = np.ones(len(keys), np.int32), np.zeros(len(keys), np.uint8)
        cache.put(RowsByKey(np.asarray(keys, np.int64), ones, batch, cold))

    for first in range(0, 2_000, 5):
        put(range(first, first + 5), 150)
    for _ in range(3):
        entries = cache.find(cache.keys())
        cache.places(entries[entries >= 0], cache.keys()[entries >= 0])
    for key in range(3):
        put([10**6 + key], 2_000)
    cache.check_invariants()


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("behind", [SSIJ, MeshJoin])
def test_columns_of_every_kind_pass_by_the_cache(behind, type_, tmp_path):
    master = build(products(2_000), tmp_path)
    with FrontStage(behind)(master, on="id", how="left", memory="1MB", **slow_disk()) as join:
        rows = 0
        for turn in range(20):
            notes = pa.array([f"{turn}-{n % 5}" for n in range(200)])
            batch = pa.record_batch({"id": np.arange(200) % 40 * 2, "note": _as(notes, type_)})
            rows += sum(out.num_rows for out in (*join.push(batch), *join.idle(0)))
        assert rows == 4_000
        assert join.metrics()["front_hits"] > 0


def _as(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return texts.dictionary_encode().cast(type_) if pa.types.is_dictionary(type_) else texts.cast(type_)


def test_a_join_with_an_empty_master_grows_with_it(tmp_path):
    full = products(20_000)
    empty = build(full.slice(0, 0), tmp_path)
    master = empty.apply(full.append_column("_op", pa.array(["upsert"] * len(full))), txn="all")
    for name in ALGORITHM_NAMES:
        kind: Any = algorithm_named(name)
        with kind(empty, on="id", how="left", memory="2MB", **slow_disk()) as join:
            rows = sum(out.num_rows for out in (*join.push(sales([1])), *join.refresh(master)))
            keys = np.random.default_rng(1).integers(0, 40_000, 3_000)
            rows += sum(out.num_rows for out in (*join.push(sales(keys)), *join.finish()))
            assert rows == 3_001
            assert join.metrics()["pages_read"] > 3 * join.metrics()["seeks"] or name.startswith("inlj")


def test_joins_of_two_kinds_do_not_use_each_others_pages(tmp_path):
    master = build(products(8_000), tmp_path)
    batches = [sales(np.random.default_rng(i).integers(0, 400, 1_000)) for i in range(10)]
    for kind in (XHybridJoin, MeshJoin, XHybridJoin, CMeshJoin, SSIJ):
        pages = PageFile(tmp_path / "pages", 1 << 20)
        with kind(master, on="id", memory=1 << 20, pages=pages, shared_index=True) as join:
            for batch in batches:
                list(join.push(batch))
                join.check_invariants()
            list(join.finish())
        pages.close()


def test_nested_dictionaries_with_narrow_numbers_are_widened(tmp_path):
    words = pa.array(["a", "b"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
    batch = pa.record_batch({"id": [2, 4], "x": pa.StructArray.from_arrays([words], ["d"])})
    with HybridJoin(build(products(100), tmp_path), on="id", memory="1MB") as join:
        found = pa.Table.from_batches(join.run([batch]))
    assert found["x"].type.field("d").type == pa.dictionary(pa.int32(), pa.string())
    assert sorted(row["d"] for row in found["x"].to_pylist()) == ["a", "b"]


def test_pinned_pages_and_offered_rows_leave_room_for_pending_rows(tmp_path):
    rows = 20_000
    master = build(products(rows, width=90), tmp_path)
    random = np.random.default_rng(0)
    offered = 0
    with XHybridJoin(master, on="id", how="left", memory="1MB", pinned_pages=10_000) as join:
        results = 0
        for _ in range(6):
            for batch in join.push(sales(random.integers(0, 2 * rows, 4_000))):
                results += batch.num_rows
                while offered < 30_000 and join.offer(sales(random.integers(0, 2 * rows, 60))):
                    offered += 60
        results += sum(batch.num_rows for batch in join.finish())
    assert results == 24_000 + offered
