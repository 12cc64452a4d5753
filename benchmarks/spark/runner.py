"""Runs the contenders of some cases, normally each in its own application."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.harness.results import Result
from benchmarks.spark import check
from benchmarks.spark.cases import Case
from benchmarks.spark.contenders.catalogue import contender_class
from benchmarks.spark.datasets import Sales, master_of, sales_of
from benchmarks.spark.measure import Task

_REPOSITORY = Path(__file__).resolve().parents[2]
_READ_BYTES = 8 << 20


@dataclass(frozen=True)
class Plan:
    """What all cases of one run share."""

    data: Path
    seed: int
    only_contenders: tuple[str, ...] = ()


class Preparation:
    """One case, with its data on disk."""

    def __init__(self, plan: Plan, case: Case) -> None:
        self._plan = plan
        self.case = case
        wanted = plan.only_contenders or case.contenders
        self.contenders = [name for name in case.contenders if name in wanted]
        self._sales = Sales(
            case.master_rows, case.batch_rows, case.effort.most_batches, case.placement, plan.seed
        )

    def task(self, name: str) -> Task:
        """The task of a contender's application."""
        data, case, store = self._plan.data, self.case, contender_class(name).store
        return Task(
            contender=name,
            master=str(master_of(data, store, case.master_rows)) if store else "",
            sales=str(sales_of(data, self._sales)),
            checked_sales=str(self._checked_sales),
            batch_rows=case.batch_rows,
            memory_bytes=case.memory_bytes,
            partitions=case.partitions,
            tasks_timed=case.tasks_timed,
            effort=asdict(case.effort),
        )

    def result(self, name: str, outcome: Result) -> Result:
        """The result, once its rows are found correct."""
        case = self.case
        if not outcome["failure"]:
            expected = self._expected_join if contender_class(name).joins else self._expected_identity
            check.settle(name, expected, check.Tally(**outcome.pop("answer")))
        return {
            "setting": case.setting,
            "case": case.name,
            "master_rows": case.master_rows,
            "batch_rows": case.batch_rows,
            "partitions": case.partitions,
            "memory_bytes": case.memory_bytes,
            "contender": name,
            "seed": self._plan.seed,
            **outcome,
        }

    @cached_property
    def _checked_sales(self) -> Path:
        return sales_of(self._plan.data, self._sales.beginning())

    @cached_property
    def _expected_join(self) -> check.Tally:
        return check.of_join(
            self._checked_sales, master_of(self._plan.data, "parquet", self.case.master_rows)
        )

    @cached_property
    def _expected_identity(self) -> check.Tally:
        return check.of_identity(self._checked_sales)


def run(cases: list[Preparation], together: bool) -> Iterator[Result]:
    """One repetition of every contender of every case, each in a fresh application or all in one."""
    contenders = [(case, name) for case in cases for name in case.contenders]
    for group in [contenders] if together else [[each] for each in contenders]:
        load = os.getloadavg()[0]  # far above the number of cores, other work disturbed the times
        tasks = [case.task(name) for case, name in group]
        for task in tasks:
            _read_through(Path(task.master))
        outcomes = _in_process(tasks)
        for (case, name), outcome in zip(group, outcomes, strict=True):
            yield {**case.result(name, outcome), "load_average": load}


def _read_through(master: Path) -> None:
    """Load the whole master into the system's page cache."""
    room = bytearray(_READ_BYTES)
    files = [master] if master.is_file() else [path for path in master.rglob("*") if path.is_file()]
    for path in files if str(master) != "." else ():
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass


def _in_process(tasks: list[Task]) -> list[Result]:
    """The results of one application; if it fails as a whole, all its contenders have failed."""
    command = [sys.executable, "-m", "benchmarks.spark.measure", json.dumps([asdict(task) for task in tasks])]
    # Python workers import the contenders from here
    paths = [str(_REPOSITORY), os.environ.get("PYTHONPATH", "")]
    child = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )
    if child.returncode == 0:
        results: list[Result] = json.loads(child.stdout.splitlines()[-1])
        return results
    sys.stderr.write(child.stderr)
    names = ", ".join(task.contender for task in tasks)
    if "CheckError" in child.stderr:
        raise SystemExit(f"{names}: wrong rows or plan, see above")
    last_line = (child.stderr.strip() or "no message").splitlines()[-1]
    if child.returncode < 0:
        last_line = f"ended by signal {-child.returncode}"
    return [{"failure": last_line[:200]} for _ in tasks]
