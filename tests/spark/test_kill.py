"""The driver is killed between any two steps of a micro-batch, workers and tasks in the middle of one.

The master moves on while the driver is dead. What a micro-batch gives in the end is what the version gives
that was recorded for it, and every row is there once.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adjoin import Master
from adjoin.master.queries import QueryRecords
from tests.spark import faulty_daemon, programs
from tests.spark.faulty_daemon import Fault
from tests.spark.on_kill import Victim
from tests.spark.programs import Program, read_json
from tests.spark.shop import build, products, rows_of, sales, wanted, write_batches

ROWS = 600
STEPS = {
    "files": ["offsets", "record", "link", "linked", "input", "last row", "metadata", "committed"],
    "foreach": ["body", "recorded", "input", "written"],
}
UNDECIDED = {"offsets", "body", "record", "link"}
"""Steps at which no version is recorded yet."""


class Chain:
    """One query that dies again and again; each of its drivers goes on where the last one was killed."""

    def __init__(self, work: Path, sink: str) -> None:
        self.work, self.sink = work, sink
        self.batches: list[pa.Table] = []
        self.versions: list[int] = []
        (work / "in").mkdir()
        build(products(ROWS, note="v1"), work / "master").close()

    def kill_at(self, step: str) -> None:
        """One more micro-batch, in which the driver is killed; then the master moves on."""
        number = self._add_batch()
        program = self._start(step, number)
        assert program.wait() == -9, f"{step}: {program.told()}"
        is_recorded = self._record_of(number).exists()
        assert is_recorded == (step not in UNDECIDED)
        newest = Master.open(self.work / "master")
        self.versions.append(newest.version if is_recorded else newest.version + 1)
        newest.apply(changed(f"v{newest.version + 1}")).vacuum(keep=1)

    def hits(self, step: str) -> bool:
        """Kill at this step; False if the driver was faster than its killer."""
        self.kill_at(step)
        victim = self._victim(step, len(self.batches) - 1)
        is_committed = victim.marks["committed"].exists()
        return is_committed == (step == "committed")

    def finish(self) -> None:
        program = self._start("none", self._add_batch())
        assert program.wait() == 0, program.told()
        self.versions.append(Master.open(self.work / "master").version)

    def wanted(self, number: int):
        table = products(ROWS, note=f"v{self.versions[number]}")
        return wanted(self.batches[number], table, how="left")

    def _add_batch(self) -> int:
        number = len(self.batches)
        self.batches.append(sales(500, 2 * ROWS, seed=number + 1))
        pq.write_table(self.batches[-1], self.work / f"{number}.parquet")
        (self.work / f"{number}.parquet").rename(self.work / "in" / f"{number:05d}.parquet")
        return number

    def _start(self, step: str, number: int) -> Program:
        plan = {faulty_daemon.PLAN: str(self.work / "plan")}
        return Program("on_kill", self.work, self.sink, step, number, work=self.work / "logs", **plan)

    def _victim(self, step: str, number: int) -> Victim:
        return Victim(self.work, self.sink, step, number)

    def _record_of(self, number: int) -> Path:
        query_id = read_json(self.work / self.sink / "checkpoint" / "metadata")["id"]
        return Path(QueryRecords(self.work / "master").directory(query_id)) / f"{number:020d}.json"


def changed(note: str) -> pa.Table:
    return products(ROWS, note=note).append_column("_op", pa.array(["upsert"] * ROWS))


@pytest.mark.parametrize("sink", STEPS)
def test_the_driver_is_killed_between_any_two_steps(spark, tmp_path, sink):
    chain = Chain(tmp_path, sink)
    for step in STEPS[sink]:
        assert any(chain.hits(step) for _ in range(3)), f"the driver could not be killed at {step}"
    chain.finish()
    assert len(set(chain.versions)) > len(STEPS[sink]) // 2
    out = tmp_path / sink / "out"
    if sink == "files":
        written = spark.read.parquet(str(out)).toArrow()
        for number, batch in enumerate(chain.batches):
            of_batch = [value in set(batch["sale"].to_pylist()) for value in written["sale"].to_pylist()]
            assert rows_of(written.filter(pa.array(of_batch))) == chain.wanted(number), number
        assert len(written) == sum(len(batch) for batch in chain.batches)
    else:
        for number in range(len(chain.batches)):
            found = spark.read.parquet(str(out / f"{number:05d}"))
            assert rows_of(found) == chain.wanted(number), number


FAULTS = [
    Fault("room", 0, "full"),
    Fault("input", 1, "fail"),
    Fault("record", 2, "worker"),
    Fault("recorded", 3, "worker"),
    Fault("input", 4, "worker"),
    Fault("last row", 5, "worker"),
    Fault("last row", 6, "fail"),
    Fault("input", -1, "worker"),
]
KILLED_WITH_THE_ARENA = 4


def test_workers_die_and_tasks_fail_once(spark, tmp_path):
    table = products(20_000)
    batch = sales(4_000, 40_000)
    batches = [batch] * 8
    build(table, tmp_path / "master").close()
    write_batches(batches, tmp_path / "in")
    plan = tmp_path / "plan"
    told = [f"{fault.point}:{fault.batch}:{fault.action}" for fault in FAULTS]
    programs.run("on_faults", tmp_path, *told, work=tmp_path / "logs", **{faulty_daemon.PLAN: str(plan)})
    assert faulty_daemon.happened(plan) == len(FAULTS)
    for number in range(len(batches)):
        found = spark.read.parquet(str(tmp_path / "out" / f"{number:05d}"))
        assert rows_of(found) == wanted(batch, table, how="left"), number
    assert rows_of(spark.read.parquet(str(tmp_path / "static"))) == wanted(pa.concat_tables(batches), table)
    progress = read_json(tmp_path / "progress.json")
    assert [one["rows_in"] for one in progress] == [len(batch)] * len(batches)
    cold, killed, last = (_pages_read(progress[number]) for number in (0, KILLED_WITH_THE_ARENA, -1))
    # One of two workers died while it wrote into its arena: that one starts cold, and is warm again after.
    is_cold = [now > before / 2 for now, before in zip(killed, cold, strict=True)]
    assert sorted(is_cold) == [False, True], (cold, killed)
    assert sum(last) < sum(cold) / 10


def _pages_read(progress: dict) -> list[int]:
    return [task["pages_read"] for task in progress["tasks"]]
