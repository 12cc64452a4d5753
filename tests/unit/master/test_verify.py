import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin.errors import CorruptionError, SchemaError
from adjoin.keys.codec import KeyCodec
from adjoin.master.data_file import checksum_of
from adjoin.master.filter import KeyFilter
from adjoin.master.index import PageIndex
from adjoin.master.manifest import FORMAT, IndexFile, Manifest
from adjoin.master.master import Master
from adjoin.master.versions import Home
from tests.unit.master.tables import build_master, products


def _rewrite_manifest(home: Home, **changed: Any) -> None:
    manifest = dataclasses.replace(home.read_manifest(1), **changed)
    Path(home.manifest_path(1)).write_bytes(manifest.to_bytes())


def _replace_index(home: Home, index: PageIndex) -> None:
    """As a faulty program would do it: all checksums are correct."""
    data = index.to_bytes()
    _rewrite_manifest(home, index=IndexFile(home.write_index_file(data, []), checksum_of(data)))


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return build_master(products(2000), "price", tmp_path / "m", filter_bits=8)


def test_an_intact_master_passes(master: Master) -> None:
    master.verify()


@pytest.mark.parametrize("name", ["first", "last", "file", "block", "blocks", "rows", "checksum"])
def test_a_wrong_entry_of_the_index_is_found(name: str, master: Master) -> None:
    index = PageIndex(
        **{field.name: getattr(master.index, field.name).copy() for field in dataclasses.fields(PageIndex)}
    )
    getattr(index, name)[3] += 1
    _replace_index(Home(master.path), index)
    with pytest.raises(CorruptionError, match=master.path):
        Master.open(master.path).verify()


def test_pages_that_are_duplicated_or_out_of_order_are_found(master: Master) -> None:
    for places in ([1, 0], [0, 1, 1]):
        _replace_index(Home(master.path), master.index.take(np.array([*places, *range(2, master.pages)])))
        with pytest.raises(CorruptionError, match="index"):
            Master.open(master.path).verify()


@pytest.mark.parametrize("field", ["rows", "pages"])
def test_a_wrong_count_in_the_manifest_is_found(field: str, master: Master) -> None:
    _rewrite_manifest(Home(master.path), **{field: 1})
    with pytest.raises(CorruptionError, match="manifest says 1"):
        Master.open(master.path).verify()


def test_a_filter_that_lacks_a_key_is_found(master: Master) -> None:
    home = Home(master.path)
    data = KeyFilter.for_keys(master.rows, 8).to_bytes()
    _rewrite_manifest(home, filter=IndexFile(home.write_index_file(data, []), checksum_of(data), master.rows))
    with pytest.raises(CorruptionError, match="filter lacks 2000 keys"):
        Master.open(master.path).verify()


def test_keys_that_differ_from_their_encoding_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = KeyCodec.encode
    monkeypatch.setattr(KeyCodec, "encode", lambda self, columns: (encode(self, columns)[0] + 1, None))
    master = Master.build(products(100), "price", tmp_path / "m")
    monkeypatch.undo()
    with pytest.raises(CorruptionError, match="differ from their encoding"):
        master.verify()


def test_a_missing_file_is_named(master: Master) -> None:
    home = Home(master.path)
    manifest = home.read_manifest(1)
    for path in (master.files[0].path, os.path.join(home.index_dir, manifest.index.name)):
        os.rename(path, path + ".away")
        with pytest.raises(CorruptionError, match=f"{path} is missing"):
            Master.open(master.path).verify()
        os.rename(path + ".away", path)


def test_a_truncated_file_is_named(master: Master) -> None:
    os.truncate(master.files[0].path, master.files[0].bytes - 4096)
    with pytest.raises(CorruptionError, match=master.files[0].path):
        master.verify()


def test_a_manifest_under_the_name_of_another_version_is_found(master: Master) -> None:
    home = Home(master.path)
    Path(home.manifest_path(2)).write_bytes(Path(home.manifest_path(1)).read_bytes())
    with pytest.raises(CorruptionError, match="manifest of version 1"):
        Master.open(master.path)
    Master.open(master.path, 1).verify()


def test_a_manifest_is_read_back_as_it_was_written(master: Master) -> None:
    home = Home(master.path)
    manifest = home.read_manifest(1)
    again = Manifest.from_bytes("x", manifest.to_bytes(), home.data_dir)
    assert again == manifest
    assert again.stored_schema.names == ["_adjoin_key", "id", "name", "price"]


def test_a_newer_format_is_refused(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(master.path)
    manifest = home.read_manifest(1)
    monkeypatch.setattr("adjoin.master.manifest.FORMAT", FORMAT + 1)
    Path(home.manifest_path(1)).write_bytes(manifest.to_bytes())
    monkeypatch.undo()
    with pytest.raises(SchemaError, match=f"format {FORMAT + 1}"):
        Master.open(master.path)


def test_index_and_filter_are_read_back_as_they_were_written(master: Master) -> None:
    index = PageIndex.from_bytes(master.index.to_bytes().to_pybytes())
    for field in dataclasses.fields(PageIndex):
        one, other = getattr(index, field.name), getattr(master.index, field.name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
    assert index.nbytes == 40 * len(index)
    index.check_invariants()
    assert master.filter is not None
    again = KeyFilter.from_bytes(master.filter.to_bytes().to_pybytes(), master.filter.capacity)
    assert again.words.tolist() == master.filter.words.tolist()


def test_index_and_filter_are_plain_arrow_files(master: Master) -> None:
    home = Home(master.path)
    manifest = home.read_manifest(1)
    assert manifest.filter is not None
    index = pa.ipc.open_file(f"{home.index_dir}/{manifest.index.name}").read_all()
    assert sum(index["rows"].to_pylist()[0]) == 2000
    assert pa.ipc.open_file(f"{home.index_dir}/{manifest.filter.name}").read_all().column_names == [
        "words",
        "sums",
    ]
