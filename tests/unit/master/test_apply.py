import math
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin.errors import ConflictError, NullKeyError, OptionError, SchemaError, VersionNotFoundError
from adjoin.master import files
from adjoin.master import manifest as manifest_module
from adjoin.master.master import Master
from adjoin.master.sort import ExternalSorter
from adjoin.master.versions import Home
from tests.unit.master.tables import (
    build_master,
    changes,
    files_below,
    multiset,
    products,
    rows_of,
    stored_rows,
)

_KEYS = {
    "int64": (pa.int64(), lambda number: number),
    "int32": (pa.int32(), lambda number: number - 20),
    "double": (pa.float64(), lambda number: [0.0, -0.0, float("nan")][number] if number < 3 else number / 7),
    "string": (pa.string(), lambda number: f"k{number}"),
}


def _equal(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
    return both_nan or bool(one == other)


def model(rows: list[tuple[Any, Any]], steps: list[tuple[str, Any, Any]]) -> list[tuple[Any, Any]]:
    """The expected result of apply: one change after the other."""
    for operation, key, value in steps:
        if operation != "insert":
            rows = [row for row in rows if not _equal(row[0], key)]
        if operation != "delete":
            rows = [*rows, (key, value)]
    return rows


def _table(rows: list[tuple[Any, Any]], key_type: pa.DataType) -> pa.Table:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"key": pa.array(keys, key_type), "value": pa.array(values, pa.string())})


_step = st.tuples(
    st.sampled_from(["upsert", "delete", "insert"]),
    st.integers(0, 400),
    st.integers(0, 1500),
    st.integers(1, 60),
)


@settings(max_examples=12)
@given(
    data=st.data(),
    start=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 300)), max_size=150),
    memory=st.sampled_from([1 << 12, 1 << 15, 1 << 28]),
    hash_bits=st.sampled_from([2, 64]),
)
@pytest.mark.parametrize("kind", _KEYS)
def test_the_result_is_that_of_changing_one_row_at_a_time(
    kind: str,
    data: st.DataObject,
    start: list[tuple[int, int]],
    memory: int,
    hash_bits: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    key_type, key_of = _KEYS[kind]
    space = data.draw(st.sampled_from([3, 30, 401]))
    rows = [(key_of(key % space), "v" * size) for key, size in start]
    master = build_master(
        _table(rows, key_type),
        "key",
        tmp_path_factory.mktemp("m"),
        page_bytes=4096,
        hash_bits=hash_bits,
        filter_bits=8,
    )
    for at in range(data.draw(st.integers(1, 3))):
        drawn = data.draw(st.lists(_step, max_size=25))
        # Each step is repeated over neighboring keys, so that one change set fills and empties pages.
        steps = [
            (operation, key_of((key + offset) % space), "w" * size)
            for operation, key, size, many in drawn
            for offset in range(many)
        ]
        before, old_rows = master, multiset(_table(rows, key_type))
        rows = model(rows, steps)
        master = master.apply(changes(steps, key_type), txn=f"step {at}", memory=memory)
        master.verify()
        assert multiset(rows_of(master)) == multiset(_table(rows, key_type))
        assert len(rows_of(master)) == len(rows)
        assert (master.index.blocks == 1).all()
        assert multiset(rows_of(before)) == old_rows


def _simple(path: Path, rows: int = 1000, **options: Any) -> Master:
    table = pa.table(
        {
            "key": pa.array(range(0, 2 * rows, 2), pa.int64()),
            "value": pa.array(["x" * 50] * rows, pa.string()),
        }
    )
    return build_master(table, "key", path, page_bytes=4096, **options)


def test_only_touched_pages_are_written(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    newer = master.apply(changes([("upsert", 500, "new")], pa.int64()))
    shared = set(master.index.checksum.tolist()) & set(newer.index.checksum.tolist())
    assert len(shared) == master.pages - 1 == newer.pages - 1
    assert len(newer.files) == 2
    newest_file = pa.ipc.open_file(newer.files[1].path)
    assert newest_file.num_record_batches == 1


def test_a_page_is_split_only_when_it_overflows(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m", fill=0.7)
    first = int(master.index.first[2])
    few = master.apply(changes([("insert", first + 1, "y" * 50)] * 3, pa.int64()))
    assert few.pages == master.pages
    many = few.apply(changes([("insert", first + 1, "y" * 50)] * 100, pa.int64()))
    assert many.pages > few.pages
    assert (many.index.first == first + 1).sum() + (many.index.last == first + 1).sum() > 2
    many.verify()


def test_deletes_of_missing_keys_commit_nothing(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    assert master.apply(changes([("delete", 501, None)], pa.int64())).version == 1
    assert master.apply(changes([], pa.int64())).version == 1
    assert len(files_below(tmp_path / "m" / "data")) == 1


def test_a_page_without_rows_is_dropped_with_its_file(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    everything = [("delete", key, None) for key in range(0, 2000, 2)]
    empty = master.apply(changes(everything, pa.int64()))
    empty.verify()
    assert (empty.rows, empty.pages, empty.bytes, empty.files) == (0, 0, 0, ())
    again = empty.apply(changes([("insert", 7, "a"), ("upsert", 3, "b"), ("insert", 7, "c")], pa.int64()))
    again.verify()
    assert rows_of(again)["key"].to_pylist() == [3, 7, 7]


def test_many_changes_to_an_empty_master_in_little_memory(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m", rows=0)
    steps = [("insert", key * 7919 % 5000, "z" * 30) for key in range(5000)]
    newer = master.apply(changes(steps, pa.int64()), memory=1 << 15)
    newer.verify()
    assert rows_of(newer)["key"].to_pylist() == list(range(5000))
    assert newer.pages < 1.2 * _simple(tmp_path / "n", rows=5000).pages


def test_all_rows_of_a_key_are_deleted_across_pages(tmp_path: Path) -> None:
    keys = [1] * 50 + [5] * 2000 + [9] * 50
    for name, key_type, memory in [("a", pa.int64(), 1 << 13), ("b", pa.string(), 1 << 28)]:
        values = keys if name == "a" else [str(key) for key in keys]
        table = pa.table({"key": pa.array(values, key_type), "value": ["v" * 60] * len(keys)})
        master = build_master(table, "key", tmp_path / name, page_bytes=4096)
        newer = master.apply(changes([("upsert", values[60], "one")], key_type), memory=memory)
        newer.verify()
        assert newer.rows == 101
        assert rows_of(newer)["value"].to_pylist().count("one") == 1


def test_keys_with_the_same_hash_are_distinguished(tmp_path: Path) -> None:
    keys = [f"k{number}" for number in range(300)]
    table = pa.table({"key": keys, "value": keys})
    master = build_master(table, "key", tmp_path / "m", page_bytes=4096, hash_bits=1)
    newer = master.apply(changes([("delete", key, None) for key in keys[::3]], pa.string()), memory=1 << 12)
    newer.verify()
    assert sorted(rows_of(newer)["key"].to_pylist()) == sorted(set(keys) - set(keys[::3]))


def test_composite_keys(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "x", "y"], "b": [1, 2, 1], "c": [10, 20, 30]})
    master = Master.build(table, ["a", "b"], tmp_path / "m")
    step = pa.table(
        {"b": pa.array([2, 1], pa.int32()), "a": ["x", "z"], "_op": ["upsert", "upsert"], "c": [21, 40]}
    )
    newer = master.apply(step)
    newer.verify()
    expected = pa.table({"a": ["x", "x", "y", "z"], "b": [1, 2, 1, 1], "c": [10, 21, 30, 40]})
    assert multiset(rows_of(newer)) == multiset(expected)


def test_a_named_change_set_is_applied_once(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    step = changes([("insert", 4, "again")], pa.int64())
    first = master.apply(step, txn="load-1")
    repeated = master.apply(step, txn="load-1")
    assert (first.version, repeated.version, repeated.rows) == (2, 2, 1001)
    second = first.apply(step, txn="load-2")
    assert first.apply(step, txn="load-1").version == second.version == 3
    assert second.rows == 1002


def test_an_empty_change_set_with_a_name_is_recorded(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    newer = master.apply(changes([], pa.int64()), txn="nothing")
    assert newer.version == 2
    assert newer.files == master.files
    assert newer.apply(changes([("delete", 0, None)], pa.int64()), txn="nothing").version == 2


def test_only_the_latest_names_of_change_sets_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manifest_module.TXNS_KEPT == 10_000
    monkeypatch.setattr(manifest_module, "TXNS_KEPT", 2)
    master = _simple(tmp_path / "m", rows=5)
    for name in "abc":
        master = master.apply(changes([("insert", 1, name)], pa.int64()), txn=name)
    assert master.apply(changes([("insert", 1, "c")], pa.int64()), txn="c").version == 4
    assert master.apply(changes([("insert", 1, "a")], pa.int64()), txn="a").version == 5


def test_old_versions_stay_readable(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    newest = master
    for step in range(3):
        newest = newest.apply(changes([("upsert", 2 * step, "new")], pa.int64()))
    assert newest.versions() == [1, 2, 3, 4]
    counts = [rows_of(newest.at(version))["value"].to_pylist().count("new") for version in newest.versions()]
    assert counts == [0, 1, 2, 3]
    assert Master.open(master.path).version == 4
    assert Master.open(master.path, version=2).version == 2
    for missing in (0, 5):
        with pytest.raises(VersionNotFoundError, match=f"version {missing} "):
            newest.at(missing)


def test_a_stale_base_is_a_conflict(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    master.apply(changes([("upsert", 2, "a")], pa.int64()))
    with pytest.raises(ConflictError, match="open the master again"):
        master.apply(changes([("upsert", 2, "b")], pa.int64()))


def _race(path: str, name: str, barrier: Any, results: Any) -> None:
    master = Master.open(path)
    barrier.wait()
    try:
        master.apply(changes([("upsert", 2, name)], pa.int64()))
        results.put(name)
    except ConflictError:
        results.put(None)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_one_of_two_concurrent_writers_wins(kind: str, tmp_path: Path) -> None:
    master = _simple(tmp_path / "m")
    context: Any = multiprocessing.get_context("spawn")
    make, barrier, results = context.Process, context.Barrier(2), context.Queue()
    if kind == "threads":
        make, barrier = threading.Thread, threading.Barrier(2)
    writers = [make(target=_race, args=(master.path, name, barrier, results)) for name in ("one", "two")]
    for writer in writers:
        writer.start()
    outcome = [results.get(timeout=60) for _ in writers]
    for writer in writers:
        writer.join()
    winners = [name for name in outcome if name]
    newest = Master.open(master.path)
    newest.verify()
    assert newest.version == 1 + len(winners)
    assert rows_of(newest)["value"].to_pylist()[1] in winners
    assert len(winners) >= 1


def test_a_conflict_at_the_commit_leaves_no_garbage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master = _simple(tmp_path / "m")
    commit = Home.commit

    def late(home: Home, manifest: Any) -> None:
        monkeypatch.setattr(Home, "commit", commit)
        Master.open(home.path).apply(changes([("upsert", 4, "rival")], pa.int64()), txn="rival")
        commit(home, manifest)

    monkeypatch.setattr(Home, "commit", late)
    with pytest.raises(ConflictError, match=r"version 2 of .* was committed after version 1"):
        master.apply(changes([("upsert", 2, "late")], pa.int64()))
    newest = Master.open(master.path)
    newest.verify()
    assert rows_of(newest)["value"].to_pylist()[1:3] == ["x" * 50, "rival"]
    assert newest.vacuum().files == 0
    monkeypatch.setattr(Home, "commit", late)
    stale = newest.apply(changes([("insert", 4, "x")], pa.int64()), txn="mine")
    assert stale.version == 3


@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        ({"key": [1], "value": ["a"]}, SchemaError, "_op"),
        ({"_op": ["upsert"], "key": [1]}, SchemaError, "lack the column 'value'"),
        ({"_op": ["upsert"], "value": ["a"]}, SchemaError, "key"),
        ({"_op": ["upsert"], "key": [1], "value": ["a"], "more": [1]}, SchemaError, "more"),
        ({"_op": ["merge"], "key": [1], "value": ["a"]}, OptionError, "merge"),
        ({"_op": [None], "key": [1], "value": ["a"]}, OptionError, "None"),
        ({"_op": ["delete"], "key": [None], "value": ["a"]}, NullKeyError, "null"),
        ({"_op": ["upsert"], "key": ["1"], "value": ["a"]}, SchemaError, "key"),
        ({"_op": ["upsert"], "key": [1.5], "value": ["a"]}, SchemaError, "key"),
    ],
    ids=str,
)
def test_invalid_changes_are_reported_and_not_committed(
    step: dict[str, Any], error: type[Exception], match: str, tmp_path: Path
) -> None:
    master = _simple(tmp_path / "m", rows=10)
    with pytest.raises(error, match=match):
        master.apply(pa.table(step))
    assert master.versions() == [1]
    assert master.vacuum().files == 0


def test_changes_can_be_tables_batches_or_readers_of_related_types(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m", rows=10)
    step = pa.table(
        {
            "_op": pa.array(["upsert"] * 3).dictionary_encode(),
            "key": pa.array([2, 4, 6], pa.int16()),
            "value": pa.array(["a", "b", "c"]).dictionary_encode(),
        }
    )
    master = master.apply(step)
    master = master.apply(pa.concat_batches(step.to_batches()))
    master = master.apply(pa.RecordBatchReader.from_batches(step.schema, step.to_batches(max_chunksize=1)))
    assert rows_of(master)["value"].to_pylist()[1:4] == ["a", "b", "c"]
    with pytest.raises(OptionError, match="dict"):
        master.apply({"_op": ["delete"]})


_ITEM = pa.struct([("a", pa.float32()), ("b", pa.list_(pa.int32()))])


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (pa.struct([("b", pa.list_(pa.int8())), ("a", pa.float32())]), True),
        (pa.struct([("a", pa.float32()), ("b", pa.large_list(pa.int64()))]), True),
        (pa.struct([("a", pa.float32())]), False),
        (pa.struct([("a", pa.float32()), ("b", pa.list_(pa.int32())), ("c", pa.int8())]), False),
        (pa.struct([("a", pa.float64()), ("b", pa.list_(pa.int32()))]), False),
        (pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]), False),
        (pa.struct([("a", pa.float32()), ("b", pa.list_(pa.string()))]), False),
    ],
    ids=str,
)
def test_nested_values_are_cast_only_without_loss(given: pa.StructType, fits: bool, tmp_path: Path) -> None:
    old = pa.table({"key": [1], "items": pa.array([[{"a": None, "b": [1, None]}]], pa.list_(_ITEM))})
    master = Master.build(old, "key", tmp_path / "m")
    numbers = None if given.field(-1).type == pa.list_(pa.string()) else [1, None]
    items = pa.array([[{"b": numbers}]], pa.list_(given))
    step = pa.table({"_op": ["upsert"], "key": [1], "items": items})
    if fits:
        assert rows_of(master.apply(step)).equals(old)
        return
    with pytest.raises(SchemaError, match="items"):
        master.apply(step)


def test_a_dictionary_of_long_strings_is_decoded_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[int] = []
    add = ExternalSorter.add

    def noted(sorter: ExternalSorter, batch: pa.RecordBatch) -> None:
        added.append(batch.nbytes)
        add(sorter, batch)

    monkeypatch.setattr(ExternalSorter, "add", noted)
    master = _simple(tmp_path / "m", rows=10)
    added.clear()
    value = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500), pa.array(["z" * 10_000, "y" * 10_000]))
    newer = master.apply(
        pa.table({"_op": ["insert"] * 1000, "key": np.arange(1000), "value": value}), memory="1MB"
    )
    assert newer.rows == 1010
    assert max(added) < 1.1 * (1 << 16)


def test_pages_can_be_in_more_files_than_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every small change writes its pages to a file of its own."""
    monkeypatch.setattr("adjoin.master.data_file._MOST_OPEN_FILES", 3)
    opened: set[int] = set()
    open_to_read, close = files.open_to_read, os.close

    def forget(descriptor: int) -> None:
        opened.discard(descriptor)
        close(descriptor)

    def counted(path: str) -> int:
        descriptor = open_to_read(path)
        if path.startswith(str(tmp_path / "m" / "data")):
            opened.add(descriptor)
            assert len(opened) <= 3
        return descriptor

    monkeypatch.setattr(files, "open_to_read", counted)
    monkeypatch.setattr(os, "close", forget)
    master = _simple(tmp_path / "m", rows=2000)
    for key in range(0, 2000, 200):
        master = master.apply(changes([("upsert", key, "new")], pa.int64()), keep=None)
    assert len(master.files) > 8
    master.verify()
    table = rows_of(master)
    assert table.filter(pc.equal(table["value"], "new"))["key"].to_pylist() == list(range(0, 2000, 200))


@pytest.mark.parametrize("txn", ["", 5, b"load", ("a",)], ids=repr)
def test_names_of_change_sets_are_validated(txn: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="txn="):
        _simple(tmp_path / "m", rows=10).apply(changes([("delete", 1, None)], pa.int64()), txn=txn)


def test_deletes_need_only_the_key(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("key", pa.int64(), nullable=False), pa.field("value", pa.string(), nullable=False)]
    )
    master = Master.build(
        pa.table({"key": [1, 2], "value": ["a", "b"]}, schema=schema), "key", tmp_path / "m"
    )
    newer = master.apply(pa.table({"key": [1], "_op": ["delete"]}))
    assert rows_of(newer)["key"].to_pylist() == [2]
    assert stored_rows(newer).schema == schema
    with pytest.raises(SchemaError, match="declared not null"):
        newer.apply(pa.table({"key": [3], "_op": ["upsert"], "value": pa.array([None], pa.string())}))


def test_the_filter_is_updated_and_grows(tmp_path: Path) -> None:
    master = Master.build(products(1000), "id", tmp_path / "m", filter_bits=8)
    assert master.filter is not None
    small = master.filter.nbytes
    for step in range(1, 5):
        fresh = products(1000).set_column(0, "id", pa.array(np.arange(step * 1000, (step + 1) * 1000)))
        master = master.apply(fresh.append_column("_op", pa.array(["upsert"] * 1000)))
        master.verify()
    assert master.filter is not None
    assert master.filter.nbytes > 2 * small
    assert master.filter.contains(np.arange(10_000, 60_000)).mean() < 0.2


def test_order_by_decides_which_change_is_later(tmp_path: Path) -> None:
    steps = changes(
        [("upsert", 2, "late"), ("upsert", 2, "early"), ("delete", 4, None), ("insert", 4, "c")], pa.int64()
    )
    ordered = steps.append_column("at", pa.array([9, 3, 5, 5])).append_column("then", pa.array([0, 0, 1, 0]))
    master = _simple(tmp_path / "m", rows=5)
    newer = master.apply(ordered.drop_columns("then"), order_by="at")
    values = dict(zip(*(column.to_pylist() for column in rows_of(newer).columns), strict=True))
    assert (values[2], values[4]) == ("late", "c")
    newest = newer.apply(ordered, order_by=("at", "then"))
    values = dict(zip(*(column.to_pylist() for column in rows_of(newest).columns), strict=True))
    assert values[2] == "late"
    assert 4 not in values


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("memory", [1 << 12, 1 << 28])
def test_order_by_holds_whatever_the_order_of_rows(tmp_path: Path, kind: str, memory: int) -> None:
    key_type, key_of = _KEYS[kind]
    draw = np.random.default_rng(5)
    operations = draw.choice(["upsert", "delete", "insert"], 600)
    steps = [
        (str(operation), key_of(int(key)), f"{at}")
        for at, (operation, key) in enumerate(zip(operations, draw.integers(0, 40, 600), strict=True))
    ]
    table = changes(steps, key_type).append_column("at", pa.array(range(600), pa.int16()))
    master = build_master(_table([], key_type), "key", tmp_path, page_bytes=4096)
    newer = master.apply(table.take(draw.permutation(600)), order_by="at", memory=memory)
    assert multiset(rows_of(newer)) == multiset(_table(model([], steps), key_type))


def test_columns_to_order_by_are_validated(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m", rows=5)
    step = changes([("upsert", 2, "x")], pa.int64())
    with pytest.raises(SchemaError, match=r"lack the columns to order by \['at'\]"):
        master.apply(step, order_by="at")
    with pytest.raises(SchemaError, match="'at' orders the changes but has nulls"):
        master.apply(step.append_column("at", pa.array([None], pa.int32())), order_by="at")
    with pytest.raises(SchemaError, match=r"'at' of type list.* has no order"):
        master.apply(step.append_column("at", pa.array([[1]])), order_by="at")
    for wrong in (("at", "at"), ("",), (1,)):
        with pytest.raises(OptionError, match="order_by"):
            master.apply(step, order_by=wrong)  # type: ignore[arg-type]


def test_numbered_change_sets_are_recognized_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "TXNS_KEPT", 2)
    master = _simple(tmp_path / "m", rows=5)
    step = changes([("insert", 1, "x")], pa.int64())
    for number in (0, 1, 5):
        master = master.apply(step, ("stream", number))
    assert master.version == 4
    assert [master.apply(step, ("stream", number)).version for number in (0, 1, 3, 5)] == [4, 4, 4, 4]
    assert master.apply(step, ("other", 0)).version == 5
    master = Master.open(master.path)
    for name in "abc":
        master = master.apply(step, name)
    assert master.apply(step, ("stream", 5)).version == 8
    assert master.apply(step, ("stream", 6)).version == 9


@pytest.mark.parametrize(
    "txn",
    ["", 7, ("a",), ("a", -1), ("a", True), ("", 1), ("a", "b"), ("a", 1, 2), ["a", 1], ("a", 1 << 10**5)],
    ids=lambda txn: f"{type(txn).__name__}",
)
def test_numbers_of_change_sets_are_validated(tmp_path: Path, txn: Any) -> None:
    master = _simple(tmp_path / "m", rows=5)
    with pytest.raises(OptionError, match="txn="):
        master.apply(changes([], pa.int64()), txn)


def test_marks_are_committed_with_the_changes(tmp_path: Path) -> None:
    master = _simple(tmp_path / "m", rows=5)
    step = changes([("insert", 1, "x")], pa.int64())
    assert master.marks == {}
    first = master.apply(step, "a", marks={"highest": 7, "other": -1})
    second = first.apply(step, marks={"highest": 9})
    assert (master.marks, first.marks) == ({}, {"highest": 7, "other": -1})
    assert Master.open(master.path).marks == second.marks == {"highest": 9, "other": -1}
    nothing = changes([], pa.int64())
    assert second.apply(nothing, marks={"highest": 9}).version == second.version
    assert second.apply(nothing, marks={"highest": 10}).marks["highest"] == 10
    for wrong in ({"a": 1.5}, {"": 1}, {"a": True}, {"a": 1 << 63}, {"a": -(10**5000)}):
        with pytest.raises(OptionError, match="marks="):
            master.apply(step, marks=wrong)  # type: ignore[arg-type]
