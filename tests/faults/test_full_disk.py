import gc
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from adjoin.errors import StorageError
from adjoin.master import files
from adjoin.master.master import Master
from tests.faults.world import SCENARIOS, FullDisk, fresh
from tests.unit.master.tables import multiset, products, rows_of


@pytest.mark.parametrize("name", ["build", "apply", "sequence", "query", "compact", "upkeep"])
def test_the_disk_gets_full_before_any_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS[name]
    scenario.prepare(tmp_path / "template")
    step = 0
    refused = "not yet"
    while refused:
        step += 1
        path = fresh(tmp_path / "template", tmp_path / "copy")
        refused = ""
        with monkeypatch.context() as patch:
            patch.setattr(files, "change", FullDisk(step).change)
            try:
                scenario.act(path)
            except StorageError as error:
                refused = str(error)
        assert not refused or "No space left on device; committed versions are intact; make room" in refused
        if name != "upkeep":  # files of removed versions may be left for the next upkeep
            _no_garbage(path)
        scenario.check(path)
    assert step > 10


def _no_garbage(path: Path) -> None:
    """A writer that was refused has cleaned up after itself."""
    if (path / "m" / "versions").exists() and list((path / "m" / "versions").iterdir()):
        with Master.open(path / "m") as master:
            assert master.vacuum().files == 0
    else:
        left = [file for file in (path / "m").rglob("*") if file.is_file() and file.name != "writers.lock"]
        assert left == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", path], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a tmpfs cannot be mounted here: {error}")
    yield path
    gc.collect()
    subprocess.run(["umount", path], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    with pytest.raises(StorageError, match="No space left on device"):
        Master.build(products(80_000), "id", small_disk / "m")
    old = products(3000)
    master = Master.build(old, "id", small_disk / "m", filter_bits=8)
    many = products(60_000, seed=1).append_column("_op", pa.array(["upsert"] * 60_000))
    with pytest.raises(StorageError, match="No space left on device"):
        master.apply(many)
    master.verify()
    again = Master.open(small_disk / "m")
    again.verify()
    assert again.version == 1
    assert multiset(rows_of(again)) == multiset(old)
    newer = again.apply(many.slice(0, 100))
    newer.verify()
    assert newer.version == 2


def test_a_path_that_is_not_writable_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=str(tmp_path / "file")):
        Master.build(products(10), "id", tmp_path / "file" / "m")
