"""Files with correct checksums and contents that adjoin never writes; invalid arguments."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adjoin.errors import CorruptionError, OptionError
from adjoin.master.data_file import checksum_of
from adjoin.master.master import Master
from adjoin.master.version_records import QueryRecords
from adjoin.master.versions import Home
from tests.unit.master.tables import products

QUERY = "0b7e3d9c-4a41-4d3c-9f0e-6f1f2a3b4c5d"


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return Master.build(products(50), "id", tmp_path / "m", filter_bits=8)


def reseal(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    saved = json.loads(path.read_bytes().partition(b"\n")[2])
    body = json.dumps(change(saved)).encode()
    path.write_bytes(f"{checksum_of(body):016x}\n".encode() + body)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", "50"),
        ("pages", -1),
        ("key", [1]),
        ("key", "id"),
        ("key", []),
        ("schema", ""),
        ("schema", "/////0ABAAAQ"),
        ("codec", {"kind": "hashed", "hash_bits": 64}),
        ("codec", {"kind": "identity", "hash_bits": 1e400}),
        ("files", [{"name": "../../../etc/passwd"}]),
        ("index", {"name": "../x", "checksum": "0", "capacity": 0}),
        ("columns", [None]),
        ("columns", [1]),
        ("layouts", []),
        ("numbered", {"a": "b"}),
        ("latest", 7),
        ("fill", "much"),
    ],
)
def test_a_manifest_with_impossible_contents_is_named(master: Master, name: str, value: Any) -> None:
    path = Path(Home(master.path).manifest_path(1))
    reseal(path, lambda saved: {**saved, name: value})
    with pytest.raises(CorruptionError, match=str(path)):
        Master.open(master.path)


@pytest.mark.parametrize("change", [{"ids": [1]}, {"ids": [2, 1, 3]}, {"ids": [1, 1, 1]}])
def test_a_manifest_with_impossible_layouts_is_named(master: Master, change: dict[str, Any]) -> None:
    path = Path(Home(master.path).manifest_path(1))
    reseal(path, lambda saved: {**saved, "layouts": [{**saved["layouts"][0], **change}]})
    with pytest.raises(CorruptionError, match=str(path)):
        Master.open(master.path)


@pytest.mark.parametrize("name", ["schema", "layouts"])
def test_column_names_that_are_not_utf8_are_damage(master: Master, name: str) -> None:
    path = Path(Home(master.path).manifest_path(1))

    def lie(schema: str) -> str:
        return base64.b64encode(base64.b64decode(schema).replace(b"name", b"n\xe5me")).decode()

    def changed(saved: dict[str, Any]) -> dict[str, Any]:
        if name == "schema":
            return {**saved, "schema": lie(saved["schema"])}
        layout = saved["layouts"][0]
        return {**saved, "layouts": [{**layout, "schema": lie(layout["schema"])}]}

    reseal(path, changed)
    with pytest.raises(CorruptionError, match=str(path)):
        Master.open(master.path)


@pytest.mark.parametrize(
    "body", [[], 3, "x", {"format": "2"}, {"format": 2}, {"format": 2, "query": 1, "batch": "x"}]
)
def test_a_record_with_impossible_contents_is_named(master: Master, body: Any) -> None:
    records = QueryRecords(master.path)
    records.version_for(QUERY, 0)
    path = Path(records.directory(QUERY)) / f"{0:020d}.json"
    reseal(path, lambda saved: body)
    with pytest.raises(CorruptionError, match=str(path)):
        records.version_for(QUERY, 0)


def test_pages_with_another_schema_than_the_manifest_are_named(master: Master) -> None:
    path = Path(Home(master.path).manifest_path(1))
    other = Master.build(
        pa.table({"id": [1], **{f"c{at}": ["x"] for at in range(9)}}), "id", Path(master.path) / "other"
    )
    wide = json.loads(Path(Home(other.path).manifest_path(1)).read_bytes().partition(b"\n")[2])
    lies = {name: wide[name] for name in ("schema", "columns", "layouts", "next_column")}
    reseal(path, lambda saved: {**saved, **lies})
    with pytest.raises(CorruptionError, match="columns that the manifest says"):
        Master.open(master.path).verify()


@pytest.mark.parametrize("version", ["1", 1.5, None, True, [1], pa.scalar([1])])
def test_version_numbers_are_validated(master: Master, version: Any) -> None:
    with pytest.raises(OptionError, match="version="):
        master.at(version)


def test_arguments_of_wrong_types_are_refused(master: Master) -> None:
    given: Any = object()
    changes = pa.table({"_op": ["delete"], "id": [1]})
    with pytest.raises(OptionError, match="drop="):
        master.evolve(drop=given)
    with pytest.raises(OptionError, match="records="):
        master.vacuum(records=given)
    with pytest.raises(OptionError, match="order_by="):
        master.apply(changes, order_by=given)
    with pytest.raises(OptionError, match="marks="):
        master.apply(changes, marks=given)
    with pytest.raises(OptionError, match="sequence='_op'"):
        master.apply(changes, sequence="_op")
    with pytest.raises(OptionError, match="null_keys="):
        Master.build(products(3), "id", Path(master.path) / "other", null_keys=given)
    with pytest.raises(OptionError, match="without lone surrogates"):
        Master.open("\ud800")
