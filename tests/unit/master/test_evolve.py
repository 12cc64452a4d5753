"""Columns that are added, dropped, widened and renamed, without rewriting a page."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, Master, MasterReplacedError, OptionError, SchemaError
from adjoin.master import evolve
from adjoin.master.files import read_file
from adjoin.master.version_records import QueryRecords
from tests.unit.master.tables import rows_of

COLORS = {"color": "string"}


def _master(path: Path, rows: int = 2000, key: str = "id") -> Master:
    table = pa.table(
        {
            "id": np.arange(rows),
            "name": [f"n{at}" for at in range(rows)],
            "price": pa.array(np.arange(rows) % 100, pa.int32()),
        }
    )
    return Master.build(table, key=key, path=path, page_bytes=4096)


def _rows(master: Master) -> dict[int, dict]:
    return {row[master.key[0]]: row for row in rows_of(master).to_pylist()}


def _joined(master: Master, ids: list[int], **options) -> list[dict]:
    stream = pa.record_batch({"at": ids})
    with SSIJ(master, on={"at": master.key[0]}, memory="4MB", how="left", **options) as join:
        batches = list(join.run([stream]))
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: row["at"])


def _data_files(master: Master) -> set[str]:
    return set(os.listdir(os.path.join(master.path, "data")))


def test_an_added_column_is_null_until_rows_are_written(tmp_path):
    master = _master(tmp_path / "m")
    before = _data_files(master)
    newer = master.evolve(add={"color": "string", "weight": pa.float64(), "tags": pa.list_(pa.string())})
    assert newer.schema.names == ["id", "name", "price", "color", "weight", "tags"]
    assert _data_files(newer) == before
    assert _rows(newer)[7] == {
        "id": 7, "name": "n7", "price": 7, "color": None, "weight": None, "tags": None,
    }  # fmt: skip
    changed = newer.apply(
        pa.table({"_op": ["upsert"], "id": [7], "name": ["x"], "price": pa.array([1], pa.int32()),
                  "color": ["red"], "weight": [0.5], "tags": [["a", "b"]]})
    )  # fmt: skip
    assert [row["color"] for row in _joined(changed, [6, 7, 1999])] == [None, "red", None]
    assert [row["tags"] for row in _joined(changed, [7, 1999, 5000])] == [["a", "b"], None, None]
    changed.verify()


def test_a_column_with_the_name_of_a_dropped_one_is_a_new_column(tmp_path):
    master = _master(tmp_path / "m").evolve(drop="price")
    assert master.schema.names == ["id", "name"]
    assert _joined(master, [3]) == [{"at": 3, "id": 3, "name": "n3"}]
    again = master.evolve(add={"price": pa.int32()})
    assert _joined(again, [3]) == [{"at": 3, "id": 3, "name": "n3", "price": None}]


@pytest.mark.parametrize("wanted", [pa.int64(), pa.float64(), pa.decimal128(12, 2)], ids=str)
def test_a_widened_column_is_cast_when_it_is_read(tmp_path, wanted):
    master = _master(tmp_path / "m").evolve(widen={"price": wanted})
    assert master.schema.field("price").type == wanted
    big = pa.scalar(2**40 if wanted != pa.decimal128(12, 2) else 12345, wanted)
    changes = pa.table(
        {"_op": ["upsert"], "id": [7], "name": ["x"], "price": pa.array([big.as_py()], wanted)}
    )
    changed = master.apply(changes)
    assert [row["price"] for row in _joined(changed, [6, 7, 150])] == [6, big.as_py(), 50]
    assert _rows(changed)[150]["price"] == 50
    changed.verify()


def test_a_renamed_column_keeps_its_values(tmp_path):
    master = _master(tmp_path / "m").evolve(rename={"name": "title", "id": "product"})
    assert master.key == ("product",)
    assert _joined(master, [5]) == [{"at": 5, "product": 5, "title": "n5", "price": 5}]
    changes = pa.table({"_op": ["delete"], "product": [5]})
    assert 5 not in _rows(master.apply(changes))


def test_two_columns_can_swap_names(tmp_path):
    table = pa.table({"id": [1, 2], "a": ["x", "y"], "b": ["p", "q"]})
    master = Master.build(table, key="id", path=tmp_path / "m").evolve(rename={"a": "b", "b": "a"})
    assert _rows(master)[1] == {"id": 1, "b": "x", "a": "p"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"drop": ["id"]}, "part of the key"),
        ({"widen": {"id": pa.int64()}}, "part of the key"),
        ({"drop": ["nothing"]}, "no column 'nothing'"),
        ({"rename": {"nothing": "x"}}, "no column 'nothing'"),
        ({"rename": {"name": "price"}}, "two columns would be named 'price'"),
        ({"add": {"name": "string"}}, "two columns would be named 'name'"),
        ({"add": {"_op": "string"}}, "reserves the column name"),
        ({"add": {"x": pa.dictionary(pa.int8(), pa.string())}}, "add it with the type string"),
        ({"widen": {"price": pa.int16()}}, "cannot be widened"),
        ({"widen": {"name": pa.int64()}}, "cannot be widened"),
        ({"drop": ["name"], "rename": {"name": "x"}}, "do one or the other"),
        ({"add": {"x": "no such type"}}, "unknown type"),
        ({"add": {"x": 7}}, "unknown type"),
        ({"add": ["x"]}, "give a dictionary"),
        ({"add": {"": "string"}}, "not a column name"),
        ({"add": {"\ud800": "string"}}, "not a column name"),
        ({"rename": {"name": "\ud800"}}, "not a column name"),
    ],
)
def test_impossible_changes_of_columns_are_refused(tmp_path, change, said):
    master = _master(tmp_path / "m", rows=10)
    with pytest.raises((SchemaError, OptionError), match=said):
        master.evolve(**change)
    assert master.versions() == [1]


def test_changing_no_column_commits_nothing(tmp_path):
    assert _master(tmp_path / "m", rows=10).evolve().versions() == [1]


def test_changes_can_add_columns(tmp_path):
    master = _master(tmp_path / "m")
    changes = pa.table({"_op": ["upsert", "upsert"], "id": [1, 5000], "name": ["a", "b"],
                        "price": pa.array([1, 2], pa.int32()), "color": ["red", "blue"]})  # fmt: skip
    with pytest.raises(SchemaError, match="color"):
        master.apply(changes)
    newer = master.apply(changes, evolve=True)
    assert newer.version == 2
    assert [_rows(newer)[at]["color"] for at in (0, 1, 5000)] == [None, "red", "blue"]
    newer.verify()


def test_new_columns_are_committed_even_if_no_row_changes(tmp_path):
    master = _master(tmp_path / "m", rows=10)
    changes = pa.table(
        {"_op": pa.array([], pa.string()), "id": pa.array([], pa.int64()), "color": pa.array([], pa.string())}
    )
    assert master.apply(changes, evolve=True).schema.names == ["id", "name", "price", "color"]


def test_a_running_operator_keeps_its_own_columns(tmp_path):
    master = _master(tmp_path / "m")
    newer = master.evolve(
        add=COLORS, widen={"price": pa.int64()}, rename={"name": "title", "id": "product"}
    ).apply(
        pa.table({"_op": ["upsert"], "product": [7], "title": ["seven"], "price": [77], "color": ["red"]})
    )
    stream = pa.record_batch({"id": [7, 8]})
    for kind in (SSIJ,):
        with kind(master, on="id", memory="4MB") as join:
            before = pa.Table.from_batches([*join.push(stream), *join.idle(0)])
            after = pa.Table.from_batches([*join.refresh(newer), *join.push(stream), *join.finish()])
        assert before.schema == after.schema
        assert sorted(after.to_pylist(), key=lambda row: row["id"]) == [
            {"id": 7, "name": "seven", "price": 77},
            {"id": 8, "name": "n8", "price": 8},
        ]


def test_a_value_that_does_not_fit_the_operators_type_is_an_error(tmp_path):
    master = _master(tmp_path / "m")
    newer = master.evolve(widen={"price": pa.int64()}).apply(
        pa.table({"_op": ["upsert"], "id": [7], "name": ["seven"], "price": [2**40]})
    )
    with SSIJ(master, on="id", memory="4MB") as join:
        list(join.refresh(newer))
        list(join.push(pa.record_batch({"id": [7]})))
        with pytest.raises(SchemaError, match="'price' was widened"):
            list(join.finish())


def test_an_operator_that_needs_a_dropped_column_reports_it(tmp_path):
    master = _master(tmp_path / "m")
    newer = master.evolve(drop="price")
    with SSIJ(master, on="id", memory="4MB") as join:
        with pytest.raises(SchemaError, match="has no column 'price'"):
            join.refresh(newer)
        assert len(list(join.push(pa.record_batch({"id": [7]})))) + len(list(join.finish())) > 0


def test_another_master_at_the_path_is_refused(tmp_path):
    path = tmp_path / "m"
    master = _master(path)
    join = SSIJ(master, on="id", memory="4MB")
    shutil.rmtree(path)
    other = _master(path)
    assert other.id != master.id
    other = other.apply(pa.table({"_op": ["delete"], "id": [1]}))
    changes = pa.table({"_op": ["delete"], "id": [2]})
    for act in (
        lambda: master.apply(changes),
        lambda: master.evolve(add=COLORS),
        lambda: master.at(2),
        lambda: join.refresh(other),
        lambda: other.seen_as(master.view()),
        master.verify,
        master.vacuum,
    ):
        with pytest.raises(MasterReplacedError, match=other.id):
            act()
    join.close()


def test_all_versions_of_a_master_have_its_id(tmp_path):
    master = _master(tmp_path / "m", rows=10)
    newer = master.apply(pa.table({"_op": ["delete"], "id": [1]})).evolve(add=COLORS)
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    assert {master.id, newer.id, Master.open(tmp_path / "copy").id} == {master.id}
    assert master.id.encode() in read_file(os.path.join(newer.path, "versions", f"{newer.version:020d}.json"))


@pytest.mark.parametrize("key", ["id", "name"])
def test_random_evolutions_and_changes_agree_with_a_model(tmp_path, key):
    """Columns are added, dropped, widened and renamed at random between changes of rows."""
    rng = np.random.default_rng(5)
    master = _master(tmp_path / "m", rows=600, key=key)
    model = {row[key]: row for row in rows_of(master).to_pylist()}
    names = 0
    for step in range(40):
        others = [name for name in master.schema.names if name not in master.key]
        choice = rng.integers(0, 6)
        if choice == 0:
            names += 1
            master = master.evolve(add={f"c{names}": [pa.int8(), pa.string(), pa.int32()][names % 3]})
            model = {at: {**row, f"c{names}": None} for at, row in model.items()}
        elif choice == 1 and len(others) > 1:
            gone = others[int(rng.integers(len(others)))]
            master = master.evolve(drop=gone)
            model = {at: {name: row[name] for name in row if name != gone} for at, row in model.items()}
        elif choice == 2 and others:
            names += 1
            old = others[int(rng.integers(len(others)))]
            master = master.evolve(rename={old: f"c{names}"})
            model = {
                at: {(f"c{names}" if name == old else name): row[name] for name in row}
                for at, row in model.items()
            }
        elif choice == 3:
            wider = {pa.int8(): pa.int16(), pa.int16(): pa.int32(), pa.int32(): pa.int64()}
            fields = [
                field for field in master.schema if field.type in wider and field.name not in master.key
            ]
            if fields:
                master = master.evolve(widen={fields[0].name: wider[fields[0].type]})
        else:
            rows = []
            for number in rng.integers(0, 700, 30).tolist():
                row = {
                    field.name: f"v{step}" if pa.types.is_string(field.type) else int(rng.integers(0, 100))
                    for field in master.schema
                }
                row[key] = number if key == "id" else f"n{number}"
                rows.append(row)
                model[row[key]] = row
            table = pa.Table.from_pylist(rows, schema=master.schema)
            master = master.apply(table.append_column("_op", pa.array(["upsert"] * len(rows))))
        assert {row[key]: row for row in rows_of(master).to_pylist()} == model
    master.verify()
    keys = sorted(model)[::3]
    stream = pa.record_batch({"at": keys})
    with SSIJ(master, on={"at": key}, memory="4MB") as join:
        joined = pa.Table.from_batches(list(join.run([stream]))).drop_columns("at").to_pylist()
    assert {row[key]: row for row in joined} == {at: model[at] for at in keys}


def test_records_of_another_master_are_refused(tmp_path):
    query = "0b6e0c52-9d9b-4d7e-8a43-5b8f0f6f8f00"
    for place in (None, tmp_path / "records"):
        path = tmp_path / ("inside" if place is None else "outside")
        first = _master(path, rows=10)
        assert QueryRecords(path, place, first.id).version_for(query, 7) == 1
        kept = shutil.copytree(path, tmp_path / f"{path.name} before")
        shutil.rmtree(path)
        second = _master(path, rows=10)
        with pytest.raises(MasterReplacedError, match=second.id):
            QueryRecords(path, place, first.id).version_for(query, 8)
        if place is None:
            shutil.copytree(kept / "queries", path / "queries")
            with pytest.raises(
                MasterReplacedError, match=f"batch 7 .* was started with the master {first.id}"
            ):
                QueryRecords(path, place, second.id).version_for(query, 7)
        assert QueryRecords(path, place, second.id).version_for(query, 8) == 1


def test_compaction_leaves_a_single_layout(tmp_path):
    master = _master(tmp_path / "m")
    for number in range(5):
        master = master.evolve(add={f"c{number}": "bigint"})
        row = {name: [None] for name in master.schema.names} | {"id": [300 * number], "_op": ["upsert"]}
        table = pa.table(
            {
                name: pa.array(values, master.schema.field(name).type if name != "_op" else pa.string())
                for name, values in row.items()
            }
        )
        master = master.apply(table)
    assert len(master.stored.layouts) > 3
    before = _rows(master)
    compacted = master.compact()
    assert len(compacted.stored.layouts) == 1
    assert _rows(compacted) == before
    compacted.verify()


def test_too_many_layouts_are_refused_until_pages_are_compacted(tmp_path, monkeypatch):
    monkeypatch.setattr(evolve, "_MOST_LAYOUTS", 6)
    master = _master(tmp_path / "m", rows=5000)
    for number in range(20):
        if len(master.stored.layouts) == 6:
            break
        master = master.evolve(add={f"c{number}": "tinyint"})
        row = pa.Table.from_pylist([{"id": 50 * number}], master.schema)
        master = master.apply(row.append_column("_op", pa.array(["upsert"])))
    with pytest.raises(SchemaError, match=r"Master\.compact\(\)"):
        master.evolve(add={"one_more": "tinyint"})
    assert master.compact().evolve(add={"one_more": "tinyint"}).schema.names[-1] == "one_more"
