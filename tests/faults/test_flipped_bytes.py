import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from adjoin.errors import CorruptionError
from adjoin.kernels.hashing import hash_bytes
from adjoin.master.data_file import read_pages
from adjoin.master.manifest import Manifest
from adjoin.master.master import Master
from adjoin.master.verify import load_index
from adjoin.master.versions import Home
from tests.unit.master.tables import build_master, changes

_SAMPLES = 120


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A master of two versions whose newest version uses all files."""
    table = pa.table({"key": [f"k{number}" for number in range(300)], "value": ["v" * 30] * 300})
    path = tmp_path_factory.mktemp("flips") / "m"
    master = build_master(table, "key", path, page_bytes=4096, filter_bits=8)
    step = changes([("upsert", "k1", "new"), ("upsert", "more", "new"), ("delete", "k2", "")], pa.string())
    master.apply(step.append_column("at", pa.array([1, 2, 3])), sequence="at").verify()
    return Home(path)


def _parts(home: Home) -> dict[str, tuple[str, int, int]]:
    """Path, start and stop of every structural part of every file of the newest version."""
    manifest = home.read_manifest(2)
    assert manifest.latest is not None
    parts = _relation_parts(home, "rows", manifest)
    parts |= _relation_parts(home, "latest changes", manifest.latest.relation)
    manifest_path = home.manifest_path(2)
    parts["manifest"] = (manifest_path, 0, os.path.getsize(manifest_path))
    return parts


def _relation_parts(home: Home, what: str, manifest: Manifest) -> dict[str, tuple[str, int, int]]:
    index = load_index(home, manifest)
    parts: dict[str, tuple[str, int, int]] = {}
    for ordinal, file in enumerate(manifest.files):
        live = index.take(index.file == ordinal)
        parts[f"{what}: header {ordinal}"] = (file.path, 0, file.header_bytes)
        parts[f"{what}: footer {ordinal}"] = (file.path, file.bytes - file.footer_bytes, file.bytes)
        for page in range(len(live)):
            start = int(live.block[page]) * 4096
            parts[f"{what}: page {ordinal}.{page} metadata"] = (file.path, start, start + 400)
            parts[f"{what}: page {ordinal}.{page} body"] = (
                file.path,
                start + 400,
                start + int(live.blocks[page]) * 4096,
            )
    for named in filter(None, (manifest.index, manifest.filter)):
        path = os.path.join(home.index_dir, named.name)
        parts[f"{what}: index or filter {named.name}"] = (path, 0, os.path.getsize(path))
    return parts


def _flip(path: str, at: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def test_a_flipped_bit_in_any_part_is_found_and_reported(home: Home) -> None:
    draw = random.Random(5)
    for part, (path, start, stop) in _parts(home).items():
        places = {start, stop - 1, *(draw.randrange(start, stop) for _ in range(_SAMPLES))}
        if "page" in part:
            places = {start, stop - 1, *draw.sample(sorted(places), 6)}
        for at in places:
            bit = draw.randrange(8)
            _flip(path, at, bit)
            with pytest.raises(CorruptionError) as error:
                Master.open(home.path).verify()
            _flip(path, at, bit)
            assert path in str(error.value), part
    Master.open(home.path).verify()


def test_a_damaged_page_gives_no_wrong_row(home: Home) -> None:
    """For every byte of a page, reading gives the rows that were written, or fails."""
    master = Master.open(home.path)
    index, wanted = master.index, np.array([2])
    start = int(index.block[2]) * 4096
    path = master.files[int(index.file[2])].path
    data = np.frombuffer(bytearray(Path(path).read_bytes()), np.uint8).copy()
    stop = start + int(index.blocks[2]) * 4096
    right = int(hash_bytes(data, start, stop))
    assert right == int(index.checksum[2])
    for at in range(start, stop):
        data[at] ^= 1 << at % 8
        assert int(hash_bytes(data, start, stop)) != right
        data[at] ^= 1 << at % 8
    for at in range(start, stop, 397):
        _flip(path, at, at % 8)
        with pytest.raises(CorruptionError, match=f"{path}: page 2 at byte {start}"):
            read_pages(master.stored, master.files, index, wanted)
        _flip(path, at, at % 8)


def test_a_change_of_any_byte_of_a_manifest_is_found(home: Home) -> None:
    path = home.manifest_path(2)
    data = bytearray(Path(path).read_bytes())
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        with pytest.raises(CorruptionError, match=path):
            Manifest.from_bytes(path, data, home.data_dir)
        data[at] ^= 1 << at % 8


def test_truncation_of_any_file_is_found(home: Home) -> None:
    manifest = home.read_manifest(2)
    paths = {path for path, _, _ in _parts(home).values()}
    for path in sorted(paths):
        data = Path(path).read_bytes()
        for length in (0, 1, len(data) // 2, len(data) - 1):
            Path(path).write_bytes(data[:length])
            with pytest.raises(CorruptionError, match=path):
                Master.open(home.path).verify()
        Path(path).write_bytes(data)
    assert home.read_manifest(2) == manifest


def test_a_damaged_newest_version_does_not_hide_the_older_ones(home: Home) -> None:
    _flip(home.manifest_path(2), 100, 3)
    with pytest.raises(CorruptionError, match="open an older version"):
        Master.open(home.path)
    with Master.open(home.path, version=1) as older:
        older.verify()
    _flip(home.manifest_path(2), 100, 3)
