"""Reading pages: the queue and the threads give the same result, and errors name the file."""

import os

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, CorruptionError, Master
from adjoin.master import async_queue, device
from adjoin.master.device import HARD_DISK, OBJECT_STORE, SSD, Cost, Disk, SimulatedDisk
from adjoin.operators.clock import SimulatedClock

ROWS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    table = pa.table({"id": np.arange(ROWS), "text": [f"{n:0100d}" for n in range(ROWS)]})
    return Master.build(table, key="id", path=tmp_path_factory.mktemp("device") / "master")


def read(master, keys, disk, **options):
    with SSIJ(master, on="id", memory="4MB", device=disk, **options) as join:
        result = pa.Table.from_batches(list(join.run([pa.record_batch({"id": keys})])))
        assert result["text"].to_pylist() == [f"{n:0100d}" for n in result["id"].to_pylist()]
        return result, join.metrics()


DISKS = {
    "queue": Disk,
    "queue of one": lambda: Disk(in_flight=1),
    "threads": lambda: Disk(direct=False),
    "one thread": lambda: Disk(in_flight=1, direct=False),
    "long scans": lambda: Disk(cost=Cost(1.0, 1e-9)),
    "no scans": lambda: Disk(cost=Cost(1e-9, 1.0)),
}


@pytest.mark.parametrize("name", DISKS)
@pytest.mark.parametrize("share", [1, 7, 300])
def test_all_ways_of_reading_give_the_same_rows(master, name, share):
    disk = DISKS[name]()
    keys = np.arange(0, ROWS, share)
    result, metrics = read(master, keys, disk)
    disk.close()
    assert sorted(result["id"].to_pylist()) == keys.tolist()
    assert metrics["bytes_read"] >= metrics["pages_read"] * 8192
    if name == "no scans":
        assert metrics["bytes_read"] == metrics["pages_read"] * 8192


def test_gaps_can_be_longer_than_the_scratch_region(master):
    """With very long scans, most of the bytes read are not wanted."""
    result, metrics = read(master, np.array([0, ROWS - 1]), Disk(cost=Cost(1.0, 1e-9)), max_scan=10**6)
    assert result.num_rows == 2
    assert metrics["seeks"] == 1
    assert metrics["bytes_read"] > 100 * 8192


def test_threads_read_where_there_are_no_asynchronous_reads(master, monkeypatch):
    monkeypatch.setattr(async_queue, "_CALLS", {})
    disk = Disk()
    assert disk.name.startswith("threads")
    assert read(master, np.arange(0, ROWS, 3), disk)[0].num_rows == len(range(0, ROWS, 3))


@pytest.mark.parametrize("make", [Disk, lambda: Disk(direct=False)])
def test_a_truncated_or_missing_file_is_named(tmp_path, make):
    table = pa.table({"id": np.arange(ROWS), "text": ["x" * 100] * ROWS})
    master = Master.build(table, key="id", path=tmp_path / "master")
    path = master.files[0].path
    os.truncate(path, os.path.getsize(path) // 2)
    disk = make()
    with (
        SSIJ(master, on="id", memory="4MB", device=disk) as join,
        pytest.raises(CorruptionError, match="cut off"),
    ):
        list(join.run([pa.record_batch({"id": np.arange(0, ROWS, 40)})]))
    os.unlink(path)
    with (
        SSIJ(master, on="id", memory="4MB", device=disk) as join,
        pytest.raises(CorruptionError, match="is missing"),
    ):
        list(join.run([pa.record_batch({"id": [1]})]))
    disk.close()
    with pytest.raises(CorruptionError, match="is missing"):
        SSIJ(master, on="id", memory="4MB")


@pytest.mark.parametrize("make", [Disk, lambda: Disk(direct=False)])
def test_one_damaged_page_among_many_is_found(tmp_path, make):
    table = pa.table({"id": np.arange(ROWS), "text": ["x" * 100] * ROWS})
    master = Master.build(table, key="id", path=tmp_path / "master")
    page = master.pages // 2
    with open(master.files[0].path, "r+b") as file:
        file.seek(int(master.index.block[page]) * 4096 + 700)
        file.write(b"\x99")
    disk = make()
    join = SSIJ(master, on="id", memory="4MB", device=disk)
    with pytest.raises(CorruptionError, match=f"page {page} "):
        list(join.run([pa.record_batch({"id": np.arange(ROWS)})]))
    join.close()
    disk.close()


def test_the_cost_is_measured_once_per_file_system_and_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "_SMALLEST_SAMPLE_BYTES", 1 << 20)
    file = tmp_path / "sample"
    file.write_bytes(os.urandom(4 << 20))
    disk = Disk()
    cost = disk.cost([str(file)])
    assert 0 < cost.block_seconds <= cost.positioning_seconds * 1000
    monkeypatch.setattr(device, "measure_cost", None)
    again = Disk()
    assert again.cost([str(file)]) == cost
    disk.close()
    again.close()


@pytest.mark.parametrize("home", [None, "/proc/nowhere", "not/absolute"])
def test_without_a_writable_home_the_cost_is_still_measured_only_once(tmp_path, monkeypatch, home):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user that the system does not know
    else:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(device, "_SMALLEST_SAMPLE_BYTES", 1 << 20)
    file = tmp_path / "sample"
    file.write_bytes(os.urandom(4 << 20))
    disk, again = Disk(), Disk()
    cost = disk.cost([str(file)])
    monkeypatch.setattr(device, "measure_cost", None)
    assert again.cost([str(file)]) == cost
    disk.close()
    again.close()


@pytest.mark.parametrize("notes", ["", "[]", "{}}", '{"NAME": 1}', '{"NAME": [0, -1]}', '{"NAME": [NaN, 1]}'])
def test_remembered_costs_that_are_impossible_are_ignored(tmp_path, monkeypatch, notes):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(device, "_SMALLEST_SAMPLE_BYTES", 1 << 20)
    file = tmp_path / "sample"
    file.write_bytes(os.urandom(4 << 20))
    disk = Disk()
    name = f"{os.statvfs(file).f_fsid:x}/{disk.name}"
    (tmp_path / "adjoin").mkdir()
    (tmp_path / "adjoin" / "devices.json").write_text(notes.replace("NAME", name))
    assert disk.cost([str(file)]).is_possible
    disk.close()


def test_small_files_are_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "measure_cost", None)
    file = tmp_path / "sample"
    file.write_bytes(b"x" * 10_000)
    disk = Disk()
    assert disk.cost([str(file)]) == SSD
    disk.close()


def test_a_simulated_disk_advances_only_the_simulated_clock(master):
    clock = SimulatedClock()
    disk = SimulatedDisk(clock, Cost(0.5, 0.25))
    _, metrics = read(master, np.array([0, ROWS - 1]), disk, clock=clock)
    assert metrics["seeks"] == 2
    assert clock.now() == pytest.approx(2 * 0.5 + 4 * 0.25)


def test_scans_get_longer_as_positioning_gets_more_expensive(master):
    seeks = {}
    for name, cost in (("ssd", SSD), ("hard disk", HARD_DISK), ("object store", OBJECT_STORE)):
        clock = SimulatedClock()
        keys = np.arange(0, ROWS, 700)
        seeks[name] = read(master, keys, SimulatedDisk(clock, cost), clock=clock)[1]["seeks"]
    assert seeks["ssd"] > seeks["hard disk"] >= seeks["object store"]
