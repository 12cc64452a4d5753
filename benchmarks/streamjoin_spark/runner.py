"""Runs the contenders of some cases, normally each in its own process."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.harness.results import Result
from benchmarks.spark.datasets import SCRATCH_PREFIX
from benchmarks.streamjoin_spark import check
from benchmarks.streamjoin_spark.cases import FLINK, Case
from benchmarks.streamjoin_spark.check import Tally
from benchmarks.streamjoin_spark.child import run as run_child
from benchmarks.streamjoin_spark.datasets import Inputs
from benchmarks.streamjoin_spark.flink import contenders as flink
from benchmarks.streamjoin_spark.measure import Task


@dataclass(frozen=True)
class Plan:
    """What all cases of one run share."""

    data: Path
    seed: int
    partitions: int
    only_contenders: tuple[str, ...] = ()


class Preparation:
    """One case, with its data on disk."""

    def __init__(self, plan: Plan, case: Case) -> None:
        self.plan = plan
        self.case = case
        self.inputs = Inputs(plan.data, case, plan.seed)
        wanted = plan.only_contenders or case.contenders
        self.contenders = [name for name in case.contenders if name in wanted]

    @cached_property
    def _expected(self) -> Tally:
        return check.of_inputs(self.case.join, self.inputs.written())

    def task(self, name: str) -> Task:
        """The task of a contender's application."""
        return Task(
            contender=name,
            shape=self.case.shape,
            inputs=str(self.inputs.written()),
            batch_rows=self.case.batch_rows,
            warm_batches=self.case.warm_batches,
            batches=self.case.batches,
            memory_bytes=self.case.memory_bytes,
            partitions=self.plan.partitions,
        )

    def result(self, name: str, outcome: Result) -> Result:
        """The result, once its rows are found correct."""
        if not outcome["failure"]:
            seen = [Tally(**each) for each in outcome.get("tallies", ())] or [Tally(**outcome["answer"])]
            check.settle(name, self._expected, sum(seen, Tally()))
        return {
            "setting": self.case.setting,
            "case": self.case.name,
            "contender": name,
            "seed": self.plan.seed,
            "batch_rows": self.case.batch_rows,
            "warm_batches": self.case.warm_batches,
            "batches": self.case.batches,
            "memory_bytes": self.case.memory_bytes,
            "partitions": flink.PARALLELISM if name in FLINK else self.plan.partitions,
            **{key: value for key, value in outcome.items() if key not in {"tallies", "answer"}},
        }


def run(cases: list[Preparation], together: bool) -> Iterator[Result]:
    """One repetition of every contender of every case, each in a fresh process or Spark's all in one."""
    pairs = [(case, name) for case in cases for name in case.contenders]
    on_spark = [pair for pair in pairs if pair[1] not in FLINK]
    groups = [on_spark] if together and on_spark else [[pair] for pair in on_spark]
    groups += [[pair] for pair in pairs if pair[1] in FLINK]
    tallies: dict[int, list[tuple[str, list[Tally]]]] = {}
    for group in groups:
        load = os.getloadavg()[0]  # far above the number of cores, other work disturbed the times
        for (case, name), outcome in zip(group, _outcomes(group), strict=True):
            if each := outcome.get("tallies"):
                tallies.setdefault(id(case), []).append((name, [Tally(**seen) for seen in each]))
            yield {**case.result(name, outcome), "load_average": load}
    for of_one_case in tallies.values():
        check.agree(of_one_case)


def _outcomes(group: list[tuple[Preparation, str]]) -> list[Result]:
    case, name = group[0]
    if name in FLINK:
        with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=case.plan.data) as scratch:
            return [flink.measure(name, case.case, case.inputs, Path(scratch))]
    return _application([case.task(name) for case, name in group])


def _application(tasks: list[Task]) -> list[Result]:
    """The results of one application; if it fails as a whole, all its contenders have failed."""
    given = json.dumps([asdict(task) for task in tasks])
    done = run_child([sys.executable, "-m", "benchmarks.streamjoin_spark.measure", given])
    if done.code == 0:
        results: list[Result] = json.loads(done.output.splitlines()[-1])
        if any(result["failure"] and not result["failure"].startswith("skipped") for result in results):
            sys.stderr.write(done.errors)
        return [{**result, **done.memory()} for result in results]
    sys.stderr.write(done.errors)
    if "CheckError" in done.errors:
        raise SystemExit(f"{', '.join(task.contender for task in tasks)}: wrong rows or plan, see above")
    last_line = (done.errors.strip() or "no message").splitlines()[-1]
    if done.code < 0:
        last_line = f"ended by signal {-done.code}"
    return [{"failure": last_line[:200], **done.memory()} for _ in tasks]
