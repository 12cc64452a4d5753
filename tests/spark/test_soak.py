"""A stream joined without an end, while another process changes the master and vacuums it.

One minute among the slow tests; `make soak MINUTES=30` runs the same for longer.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq
import pytest

from adjoin import Master
from adjoin.master.version_records import QueryRecords
from tests.spark import market
from tests.spark.cluster import descendants
from tests.spark.programs import Program, read_json, until

MINUTES = float(os.environ.get("ADJOIN_SOAK_MINUTES", "1"))
WARM_UP = 0.3
"""The part of the run in which kernels are loaded and page files fill up."""
LEAST_BATCHES_PER_MINUTE = 20
MOST_PAGE_FILES = 2 * 2 * 8
"""Two page files in at most eight workers; a worker has its file open twice while it joins."""


@dataclass
class Sample:
    """What the processes of the query hold at one moment: the driver, its Java, and the Python workers.

    Page files that workers keep mapped are counted separately: a worker sees one partition after another.
    """

    driver_bytes: int
    worker_bytes: int
    driver_files: int
    java_files: int
    worker_files: int
    page_files: int


@dataclass
class Soak:
    """Watches rows, processes and page files."""

    work: Path
    driver: Program
    history: market.History
    samples: list[Sample] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    pages_read: int = 0
    records_seen: int = 0
    most_page_file_bytes: int = 0

    def look(self) -> None:
        """Check the finished micro-batches and the resources used."""
        for batch, version, pages_read in self._progress():
            assert batch == len(self.versions)
            self.versions.append(version)
            self.pages_read += pages_read
            self._check_record(batch, version)
            self._check_rows(batch, version)
        self.most_page_file_bytes = max(self.most_page_file_bytes, _occupied(self.work / "pages"))

    def sample(self) -> None:
        driver = self.driver.process.pid
        pids = descendants(driver)
        workers = [pid for pid in pids if _name(pid).startswith("python")]
        of_driver, of_java, of_workers = (
            [name for pid in kind for name in _open_files(pid)]
            for kind in ([driver], [pid for pid in pids if _name(pid) == "java"], workers)
        )
        mapped = [name for name in of_workers if ".arena" in name]
        self.samples.append(
            Sample(
                driver_bytes=_private_bytes(driver),
                worker_bytes=sum(map(_private_bytes, workers)),
                driver_files=len(of_driver),
                java_files=len(of_java),
                worker_files=len(of_workers) - len(mapped),
                page_files=len(mapped),
            )
        )

    def _progress(self) -> Iterator[tuple[int, int, int]]:
        path = self.work / "progress"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        for line in lines[len(self.versions) :]:
            if line.endswith("\n"):
                yield tuple(json.loads(line))

    def _check_record(self, batch: int, version: int) -> None:
        records = QueryRecords(self.work / "master")
        query_id = read_json(self.work / "query")
        if os.path.exists(f"{records.directory(query_id)}/{batch:020d}.json"):
            assert records.version_for(query_id, batch) == version
            self.records_seen += 1

    def _check_rows(self, batch: int, version: int) -> None:
        until(lambda: self.history.knows(version), what=f"the history of version {version}")
        path = self.work / "out" / str(batch)
        found = pq.read_table(path).sort_by("sale")
        sales = np.arange(market.ROWS_PER_BATCH) + batch * market.ROWS_PER_BATCH
        notes = self.history.notes_at(version)[market.keys_of(sales)]
        assert found["sale"].to_pylist() == sales.tolist()
        assert found["id"].to_pylist() == market.keys_of(sales).tolist()
        assert found["note"].fill_null(market.ABSENT).to_pylist() == notes.tolist()
        shutil.rmtree(path)


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    (tmp_path / "history").mkdir()
    first = market.rows(np.flatnonzero(market.first_notes() != market.ABSENT), 1)
    Master.build(first, key="id", path=tmp_path / "master", page_bytes=4096).close()
    running = [Program(name, tmp_path, work=tmp_path / "logs") for name in ("on_soak", "on_changes")]
    try:
        yield Soak(tmp_path, running[0], market.History(tmp_path / "history"))
        (tmp_path / "stop").touch()
        assert [program.wait(60) for program in running] == [0, 0], [program.told() for program in running]
    finally:
        for program in running:
            program.end()
    until(lambda: not list((tmp_path / "pages").iterdir()), what="a directory without page files")


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 120)
def test_every_row_is_explained_and_nothing_grows(soak):
    until((soak.work / "progress").exists, 90, "a first micro-batch")
    began = time.monotonic()
    while time.monotonic() < began + 60 * MINUTES:
        assert soak.driver.process.poll() is None, soak.driver.told()
        soak.look()
        if time.monotonic() > began + 60 * MINUTES * WARM_UP:
            soak.sample()
        time.sleep(0.2)
    batches, versions = len(soak.versions), len(set(soak.versions))
    print(f"{batches} micro-batches saw {versions} versions, {soak.pages_read} pages read")
    print(soak.samples[0], soak.samples[-1], f"page files {soak.most_page_file_bytes}", sep="\n")
    assert batches > LEAST_BATCHES_PER_MINUTE * MINUTES
    assert versions > batches / 4
    assert soak.records_seen > batches / 4
    assert soak.pages_read > 0
    assert 0 < soak.most_page_file_bytes <= market.MEMORY_BYTES
    for what, share, slack, level in (
        ("driver_bytes", 0.10, 4 << 20, median),
        ("worker_bytes", 0.10, 4 << 20, median),
        ("driver_files", 0, 4, median),
        # Between tasks: while one runs, the files of the pages that it reads are open too.
        ("worker_files", 0, 4, min),
        ("java_files", 0.25, 20, median),
    ):
        _assert_flat([getattr(sample, what) for sample in soak.samples], share, slack, level)
    assert max(sample.page_files for sample in soak.samples) < MOST_PAGE_FILES


def _assert_flat(series: list[int], share: float, slack: int, level: Callable[[list[int]], float]) -> None:
    half = len(series) // 2
    before, after = level(series[:half]), level(series[half:])
    assert after <= before * (1 + share) + slack, series


def _occupied(directory: Path) -> int:
    found = 0
    for path in directory.rglob("*.arena"):
        with suppress(FileNotFoundError):
            found += path.stat().st_blocks * 512
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _private_bytes(pid: int) -> int:
    """Resident memory without what is shared: page files and others have limits of their own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def _open_files(pid: int) -> list[str]:
    names = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                names.append(os.readlink(entry.path))
    return names
