"""Every join reads pages of several layouts, and keeps its own columns when the master's change."""

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
    IndexNestedLoopJoin,
    Master,
    MeshJoin,
    PageFile,
    RMeshJoin,
    XHybridJoin,
)

KINDS: dict[str, Any] = {
    "ssij": SSIJ,
    "hybridjoin": HybridJoin,
    "xhybridjoin": XHybridJoin,
    "meshjoin": MeshJoin,
    "rmeshjoin": RMeshJoin,
    "cmeshjoin": CMeshJoin,
    "inlj": IndexNestedLoopJoin,
    "auto": AutoJoin,
    "ssij+front": FrontStage(SSIJ),
    "xhybridjoin+front": FrontStage(XHybridJoin),
}
ROWS = 3000
ADDED = {
    "color": pa.string(),
    "tags": pa.list_(pa.string()),
    "size": pa.struct({"w": pa.int16(), "h": pa.float32()}),
    "flag": pa.bool_(),
    "cost": pa.decimal128(20, 3),
    "nothing": pa.null(),
    "code": pa.binary(5),
}


def _values(name: str, at: int) -> Any:
    return {
        "color": f"color {at}",
        "tags": [str(at)] * (at % 3),
        "size": {"w": at % 100, "h": 0.5},
        "flag": at % 2 == 0,
        "cost": None,
        "nothing": None,
        "code": b"%05d" % at,
    }[name]


def _first(path: Any, key: str) -> tuple[Master, dict[Any, dict]]:
    rows = [
        {
            "id": at,
            "word": f"w{at}",
            "n": at % 100,
            "f": at / 4,
            "text": None if at % 5 == 0 else "x" * (at % 30),
        }
        for at in range(ROWS)
    ]
    schema = pa.schema(
        {"id": pa.int64(), "word": pa.string(), "n": pa.int16(), "f": pa.float32(), "text": pa.string()}
    )
    master = Master.build(pa.Table.from_pylist(rows, schema), key=key, path=path, page_bytes=4096)
    return master, {row[key]: row for row in rows}


def _evolved(master: Master, held: dict[Any, dict], key: str) -> tuple[Master, dict[Any, dict]]:
    """Columns added, widened and renamed, with pages of three layouts mixed all over the keys."""
    master = master.evolve(widen={"n": pa.int64(), "f": pa.float64()}, rename={"text": "note"})
    held = {at: _renamed(row) for at, row in held.items()}
    held, master = _changed(
        master, held, key, range(0, ROWS, 97), lambda row: row | {"n": 2**40, "note": "new"}
    )
    master = master.evolve(add=ADDED)
    held = {at: row | dict.fromkeys(ADDED) for at, row in held.items()}
    filled = lambda row: row | {name: _values(name, row["id"]) for name in ADDED}  # noqa: E731
    held, master = _changed(master, held, key, range(5, ROWS, 131), filled)
    return master, held


def _renamed(row: dict) -> dict:
    return {("note" if name == "text" else name): value for name, value in row.items()}


def _changed(master: Master, held: dict, key: str, ids: range, change: Any) -> tuple[dict, Master]:
    by_id = {row["id"]: row for row in held.values()}
    rows = [change(by_id[at]) for at in ids]
    table = pa.Table.from_pylist(rows, master.schema)
    newer = master.apply(table.append_column("_op", pa.array(["upsert"] * len(rows))))
    return held | {row[key]: row for row in rows}, newer


def _stream(key: str, held: dict) -> tuple[list[pa.RecordBatch], list[Any]]:
    rng = np.random.default_rng(2)
    numbers = rng.integers(0, ROWS + 300, 2500)
    keys = [int(at) if key == "id" else f"w{at}" for at in numbers]
    type_ = pa.int64() if key == "id" else pa.string()
    return [
        pa.record_batch({"key": pa.array(keys[at : at + 613], type_)}) for at in range(0, len(keys), 613)
    ], keys


def _expected(keys: list[Any], held: dict, names: list[str]) -> list[str]:
    return sorted(
        str({"key": key} | {name: held[key][name] for name in names}) for key in keys if key in held
    )


def _found(batches: list[pa.RecordBatch]) -> list[str]:
    return sorted(str(row) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("key", ["id", "word"])
@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_several_layouts_are_joined_as_one_master(kind, key, tmp_path):
    master, held = _evolved(*_first(tmp_path / "m", key), key)
    batches, keys = _stream(key, held)
    memory = KINDS[kind].least_memory(master) + 150_000
    with KINDS[kind](master, on={"key": key}, memory=memory) as join:
        found = list(join.run(batches))
        assert join.metrics()["peak_bytes"] <= memory
    assert _found(found) == _expected(keys, held, master.schema.names)


@pytest.mark.parametrize("key", ["id", "word"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_join_keeps_its_columns_when_the_masters_change(kind, key, tmp_path):
    first, before = _first(tmp_path / "m", key)
    newer, after = _evolved(first, before, key)
    newer = newer.evolve(rename={key: "renamed"})
    small = {at: {**row, "text": row["note"], "n": min(row["n"], 2**15 - 1)} for at, row in after.items()}
    fits = {at: row for at, row in small.items() if after[at]["n"] < 2**15}
    batches, keys = _stream(key, before)
    wanted = [at for at in keys if at not in after or at in fits]
    memory = KINDS[kind].least_memory(newer) + 150_000
    with KINDS[kind](first, on={"key": key}, memory=memory) as join:
        found = [*join.push(batches[0]), *join.idle(0), *join.refresh(newer)]
        assert _found(found) == _expected(keys[:613], before, first.schema.names)
        type_ = batches[0].schema.field("key").type
        again = pa.record_batch({"key": pa.array(wanted, type_)})
        found = [*join.push(again), *join.finish()]
    assert _found(found) == _expected(wanted, small, first.schema.names)


def test_pages_of_another_layout_are_not_taken_over_from_page_memory(tmp_path):
    """What a page file holds was noted for other columns; after an evolution it starts empty."""
    first, before = _first(tmp_path / "m", "id")
    newer, after = _evolved(first, before, "id")
    batches, keys = _stream("id", before)
    for master, held in ((first, before), (newer, after), (first, before), (newer, after)):
        with (
            PageFile(tmp_path / "pages", 8 << 20) as pages,
            SSIJ(master, on={"key": "id"}, memory="8MB", pages=pages, shared_index=True) as join,
        ):
            found = list(join.run(batches))
        assert _found(found) == _expected(keys, held, master.schema.names)
