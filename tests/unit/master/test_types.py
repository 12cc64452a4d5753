from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from adjoin.errors import SchemaError
from adjoin.master.master import Master
from tests.unit.master.tables import TYPE_NAMES, build_master, multiset, rows_of, stored_rows, typed_column

_POLARS_LACKS = {"interval", "decimal256", "map", "lists_of_structs", "decimal32", "decimal64"}


def _keys(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(3).permutation(count), pa.int64())


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("name", TYPE_NAMES)
def test_every_type_is_read_back_as_it_was_written(name: str, nulls: bool, tmp_path: Path) -> None:
    count = 500
    table = pa.table({"id": _keys(count), "c": typed_column(name, count, nulls=nulls)})
    master = build_master(table, "id", tmp_path / "m", page_bytes=4096, memory_bytes=16 << 10)
    master.verify()
    expected = table.take(pa.array(np.argsort(table["id"].to_numpy())))
    assert stored_rows(master).schema == table.schema == master.schema
    assert repr(stored_rows(master).to_pylist()) == repr(expected.to_pylist())
    assert (master.index.blocks == 1).all()
    if name not in _POLARS_LACKS:
        frame = pl.concat([pl.read_ipc(file.path) for file in master.files])
        assert frame["id"].to_list() == expected["id"].to_pylist()
        assert frame["c"].null_count() == expected["c"].null_count


def test_a_change_in_a_master_with_all_types(tmp_path: Path) -> None:
    count = 300
    columns = {name: typed_column(name, count, nulls=True) for name in TYPE_NAMES}
    table = pa.table({"id": _keys(count), **columns})
    master = build_master(table, "id", tmp_path / "m", page_bytes=32768, memory_bytes=64 << 10)
    assert repr(rows_of(master).to_pylist()) == repr(table.sort_by("id").to_pylist())
    moved = table.slice(0, 100).append_column("_op", pa.array(["upsert", "delete"] * 50))
    newer = master.apply(moved)
    newer.verify()
    expected = pa.concat_tables([table.slice(100), table.take(pa.array(range(0, 100, 2)))])
    assert multiset(rows_of(newer)) == multiset(expected)


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.string()),
        (pa.array(["a", None, "b"], pa.string_view()), pa.string()),
        (pa.array([b"a", None, b"b"], pa.binary_view()), pa.binary()),
        (pa.compute.run_end_encode(pa.array([1, 1, 2])), pa.int64()),
        (
            pa.array([["a"], None, ["b"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
            pa.list_(pa.string()),
        ),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:20],
)
def test_encoded_columns_are_stored_decoded(column: pa.Array, stored: pa.DataType, tmp_path: Path) -> None:
    master = Master.build(pa.table({"id": [1, 2, 3], "c": column}), "id", tmp_path / "m")
    assert master.schema.field("c").type == stored
    assert rows_of(master)["c"].to_pylist() == column.to_pylist()


def test_keys_can_be_dictionary_encoded(tmp_path: Path) -> None:
    keys = pa.array([f"k{number % 50}" for number in range(500)]).dictionary_encode()
    master = Master.build(pa.table({"k": keys, "v": range(500)}), "k", tmp_path / "m")
    master.verify()
    assert multiset(rows_of(master)) == multiset(pa.table({"k": keys.dictionary_decode(), "v": range(500)}))


def test_top_level_extension_types_are_kept(tmp_path: Path) -> None:
    ids = pa.array([bytes([number]) * 16 for number in range(4)], pa.uuid())
    master = Master.build(pa.table({"u": ids, "id": [4, 3, 2, 1]}), "u", tmp_path / "m")
    master.verify()
    assert master.schema.field("u").type == pa.uuid()
    assert sorted(rows_of(master)["u"].to_pylist()) == sorted(ids.to_pylist())


def test_unions_list_views_and_nested_extensions_are_refused(tmp_path: Path) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    nested = pa.ListArray.from_arrays([0, 1, 2], pa.array([bytes(16)] * 2, pa.uuid()))
    view = pa.array([[1], []], pa.list_view(pa.int8()))
    for column in (union, nested, view):
        with pytest.raises(SchemaError, match="column 'c'"):
            Master.build(pa.table({"id": [1, 2], "c": column}), "id", tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", ["_adjoin_key", "_op"])
def test_reserved_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=name):
        Master.build(pa.table({"id": [1], name: [2]}), "id", tmp_path / "m")


def test_nulls_in_a_column_declared_not_null_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match="declared not null"):
        Master.build(pa.table({"id": [1, 2], "v": [None, 1]}, schema=schema), "id", tmp_path / "m")


def test_metadata_of_the_schema_is_kept(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"a": "b"})], metadata={"owner": "sales"})
    master = Master.build(pa.table({"id": [1]}, schema=schema), "id", tmp_path / "m")
    assert Master.open(master.path).schema.equals(schema, check_metadata=True)
