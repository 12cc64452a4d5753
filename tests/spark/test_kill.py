"""The driver is killed with signal 9 between any two steps of a micro-batch, again and again.

The master moves on while the driver is dead. What a micro-batch gives in the end is what the version gives
that was recorded for it, and every row is there once.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from adjoin import Master
from adjoin.master.version_records import QueryRecords
from tests.spark import faulty_daemon
from tests.spark.on_kill import Victim
from tests.spark.programs import Program, read_json, write_json
from tests.spark.shop import build, products, rows_of, sales, wanted

ROWS = 600
STEPS = {
    "files": ["offsets", "link", "recorded", "input", "last row", "metadata", "committed"],
    "foreach": ["body", "written"],
}
"""In order of time: the log of the source, the record of the version before and after it has its name, rows
in the middle of the join and after it, the log of the sink, the log of the query."""
UNDECIDED = {"offsets", "body", "link"}
"""Steps at which no version is recorded yet."""


class Drivers:
    """Drivers in sequence; the next one starts while the one before it runs, and waits for orders."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._started: list[Program] = []
        self._start()

    def run(self, orders: list[tuple[str, str, int]], *, is_last: bool = False) -> Program:
        """Give orders to a driver and wait for its end."""
        driver = self._started[-1]
        write_json(self._orders(len(self._started)), orders)
        if not is_last:
            self._start()
        driver.wait()
        return driver

    def end(self) -> None:
        for driver in self._started:
            driver.end()

    def _start(self) -> None:
        orders = self._orders(len(self._started) + 1)
        plan = {faulty_daemon.PLAN: str(self._work / "plan")}
        self._started.append(Program("on_kill", self._work, orders, work=self._work / "logs", **plan))

    def _orders(self, number: int) -> Path:
        return self._work / f"orders {number}.json"


class Chain:
    """One query that is killed repeatedly; each driver resumes where the last one was killed."""

    def __init__(self, work: Path, sink: str) -> None:
        self.work, self.sink = work, sink
        self.batches: list[pa.Table] = []
        self.versions: list[int] = []
        (work / sink / "in").mkdir(parents=True)

    def dies_at(self, step: str, drivers: Drivers) -> bool:
        """One more micro-batch, in which the driver is killed; False if it ended before that."""
        victim = self.add_batch(step)
        driver = drivers.run([(self.sink, step, victim.batch)])
        assert driver.process.returncode == -signal.SIGKILL, f"{step}: {driver.told()}"
        is_recorded = self._record_of(victim).exists()
        assert is_recorded == (step not in UNDECIDED)
        newest = Master.open(self.work / "master")
        self.versions.append(newest.version if is_recorded else newest.version + 1)
        changed = products(ROWS, note=f"v{newest.version + 1}")
        newest.apply(changed.append_column("_op", pa.array(["upsert"] * ROWS))).vacuum(keep=1)
        return victim.marks["committed"].exists() == (step == "committed")

    def add_batch(self, step: str) -> Victim:
        number = len(self.batches)
        self.batches.append(sales(500, 2 * ROWS, seed=number + 1))
        aside = self.work / "aside.parquet"
        pq.write_table(self.batches[-1], aside)
        aside.rename(self.work / self.sink / "in" / f"{number:05d}.parquet")
        return Victim(self.work, self.sink, step, number)

    def wanted(self, number: int):
        """The expected rows for the version that this micro-batch began with."""
        table = products(ROWS, note=f"v{self.versions[number]}")
        return wanted(self.batches[number], table, how="left")

    def _record_of(self, victim: Victim) -> Path:
        query_id = read_json(victim.checkpoint / "metadata")["id"]
        return Path(QueryRecords(self.work / "master").directory(query_id)) / f"{victim.batch:020d}.json"


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    started = Drivers(tmp_path)
    try:
        yield started
    finally:
        started.end()


@pytest.mark.slow
def test_the_driver_is_killed_between_any_two_steps(spark, tmp_path, drivers):
    build(products(ROWS, note="v1"), tmp_path / "master").close()
    chains = {sink: Chain(tmp_path, sink) for sink in STEPS}
    for sink, steps in STEPS.items():
        for step in steps:
            assert any(chains[sink].dies_at(step, drivers) for _ in range(3)), f"it always lives past {step}"
    _finish(chains, drivers)
    assert len({version for chain in chains.values() for version in chain.versions}) > 5
    _check_files(spark, chains["files"])
    _check_foreach(spark, chains["foreach"])


def _finish(chains: dict[str, Chain], drivers: Drivers) -> None:
    """The last driver repeats what the others left undone, and survives."""
    victims = [chain.add_batch("none") for chain in chains.values()]
    orders = [(victim.sink, "none", victim.batch) for victim in victims]
    driver = drivers.run(orders, is_last=True)
    assert driver.process.returncode == 0, driver.told()
    for chain in chains.values():
        chain.versions.append(Master.open(chain.work / "master").version)


def _check_files(spark, chain: Chain) -> None:
    written = spark.read.parquet(str(chain.work / "files" / "out")).toArrow()
    assert len(written) == sum(map(len, chain.batches))
    for number, batch in enumerate(chain.batches):
        of_batch = pc.is_in(written["sale"], batch["sale"].combine_chunks())
        assert rows_of(written.filter(of_batch)) == chain.wanted(number), number


def _check_foreach(spark, chain: Chain) -> None:
    for number in range(len(chain.batches)):
        found = spark.read.parquet(str(chain.work / "foreach" / "out" / f"{number:05d}"))
        assert rows_of(found) == chain.wanted(number), number
