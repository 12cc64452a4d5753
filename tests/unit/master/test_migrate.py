"""Masters of format 1, which had no identity, no column ids and no sums of index blocks."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from adjoin import ConflictError, CorruptionError, Master, SchemaError, StorageError
from adjoin.master import files
from adjoin.master.data_file import checksum_of
from adjoin.master.verify import load_filter, load_index
from adjoin.master.versions import Home
from tests.unit.master.tables import rows_of

_NEW_FIELDS = ("id", "revision", "columns", "next_column", "layouts", "latest")


def _write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


def _arrow_file(columns: dict[str, np.ndarray]) -> bytes:
    batch = pa.record_batch([pa.array(values) for values in columns.values()], names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def as_first_format(path: Path) -> None:
    """Rewrite the manifests and indexes of a master in the first format."""
    home = Home(path)
    replaced: set[str] = set()
    for version in home.versions():
        manifest = home.read_manifest(version)
        replaced |= {file.name for file in (manifest.index, manifest.filter) if file}
        index, key_filter = load_index(home, manifest), load_filter(home, manifest)
        saved = json.loads(files.read_file(home.manifest_path(version)).partition(b"\n")[2])
        saved = {name: value for name, value in saved.items() if name not in _NEW_FIELDS}
        saved["format"] = 1
        for file in saved["files"]:
            del file["layout"]
        names = ("first", "last", "file", "block", "blocks", "rows", "checksum")
        old = {"index": _arrow_file({name: getattr(index, name) for name in names})}
        if key_filter is not None:
            old["filter"] = _arrow_file({"words": key_filter.words})
        for kind, data in old.items():
            saved[kind]["name"] = f"{int(saved[kind]['name'][:32], 16) ^ 1:032x}.arrow"
            saved[kind]["checksum"] = f"{checksum_of(data):016x}"
            _write(os.path.join(home.index_dir, saved[kind]["name"]), data)
        body = json.dumps(saved).encode()
        _write(home.manifest_path(version), f"{checksum_of(body):016x}\n".encode() + body)
    for name in replaced:
        os.unlink(os.path.join(home.index_dir, name))


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, list[pa.Table]]:
    """Three versions of format 1, two of which share an index."""
    rows = 400
    table = pa.table({"id": [f"k{at}" for at in range(rows)], "x": np.arange(rows)})
    master = Master.build(table, key="id", path=tmp_path / "m", page_bytes=4096, filter_bits=8)
    held = [rows_of(master)]
    master = master.apply(pa.table({"_op": ["delete"], "id": ["k7"]}), txn=("feed", 3))
    held.append(rows_of(master))
    master = master.apply(
        pa.table({"_op": pa.array([], pa.string()), "id": pa.array([], pa.string())}),
        txn="empty",
        marks={"mark": 5},
    )
    held.append(rows_of(master))
    master.close()
    as_first_format(tmp_path / "m")
    return tmp_path / "m", held


def test_the_error_about_the_first_format_names_the_migration(old):
    path, _ = old
    with pytest.raises(SchemaError, match=rf"format 1.*run adjoin\.Master\.migrate\('{path}'\)"):
        Master.open(path)


def test_migrated_versions_keep_their_rows_numbers_and_change_sets(old):
    path, held = old
    assert Master.migrate(path) == [1, 2, 3]
    assert Master.migrate(path) == []
    masters = [Master.open(path, version) for version in (1, 2, 3)]
    assert [rows_of(master) for master in masters] == held
    assert len({master.id for master in masters}) == 1
    for master in masters:
        master.verify()
    newest = masters[-1]
    assert newest.marks == {"mark": 5}
    repeated = newest.apply(pa.table({"_op": ["delete"], "id": ["k8"]}), txn=("feed", 3))
    assert repeated.version == 3
    assert newest.vacuum(keep=3).files == 0


def test_a_master_in_use_is_not_migrated(old):
    path, _ = old
    held = files.lock_file(Home(path).manifest_path(2))
    assert held is not None
    with held, pytest.raises(ConflictError, match="stop the queries"):
        Master.migrate(path)
    assert Master.migrate(path) == [1, 2, 3]


def test_an_interrupted_migration_can_be_run_again(old, monkeypatch):
    path, held = old
    real, steps = files.change, [0]

    def change(operation, target, action):
        steps[0] += 1
        if steps[0] == limit:
            raise StorageError("the disk is full")
        return real(operation, target, action)

    limit, migrated = 1, 0
    monkeypatch.setattr(files, "change", change)
    while migrated < 3:
        steps[0] = 0
        try:
            migrated += len(Master.migrate(path))
        except StorageError:
            limit += 1
            migrated = sum(b'"format": 2' in p.read_bytes() for p in (path / "versions").iterdir())
    monkeypatch.setattr(files, "change", real)
    assert limit > 5
    Master.migrate(path)
    assert [rows_of(Master.open(path, version)) for version in (1, 2, 3)] == held


def test_a_damaged_index_of_the_first_format_is_named(old):
    path, _ = old
    for index in (path / "index").iterdir():
        data = bytearray(index.read_bytes())
        data[len(data) // 2] ^= 1
        index.write_bytes(data)
    with pytest.raises(CorruptionError, match="index"):
        Master.migrate(path)
