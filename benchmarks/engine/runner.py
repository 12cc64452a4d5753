"""Runs every contender of a case, one process at a time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.engine.cap import Group, evict, memory_cap
from benchmarks.engine.cases import Case, Effort
from benchmarks.engine.contenders.catalogue import contender_class
from benchmarks.engine.datasets import dataset_of, stream_of
from benchmarks.engine.measure import Task
from benchmarks.harness.results import Result

_STAYED_CACHED_BYTES = 16 << 20  # if more than this is cached outside the group, the cap means little


@dataclass(frozen=True)
class Plan:
    """What all cases of one run share."""

    data: Path
    seed: int
    effort: Effort
    repetitions: int
    only_contenders: tuple[str, ...] = ()
    all_variants: bool = True


def run_case(plan: Plan, case: Case) -> Iterator[Result]:
    """Run every variant once, then repeat each contender's best one."""
    for contender in case.contenders:
        if plan.only_contenders and contender not in plan.only_contenders:
            continue
        first: list[Result] = []
        variants = contender_class(contender, case.filtered).variants
        for variant in variants if plan.all_variants else variants[:1]:
            first.append(_run(plan, case, contender, variant, repetition=1))
            yield first[-1]
        best = max(first, key=lambda result: float(result["rows_per_second"]))["variant"]
        for repetition in range(2, plan.repetitions + 1):
            yield _run(plan, case, contender, best, repetition)


def _run(plan: Plan, case: Case, contender: str, variant: str, repetition: int) -> Result:
    path = dataset_of(plan.data, contender, case.filtered, case.master_rows)
    rows = plan.effort.warm_rows + plan.effort.rows
    stream = stream_of(plan.data, case.stream, case.master_rows, rows, plan.seed)
    task = Task(
        contender=contender,
        variant=variant,
        filtered=case.filtered,
        path=str(path),
        stream=str(stream),
        batch_rows=case.batch_rows,
        memory_bytes=case.memory_bytes,
        effort=asdict(plan.effort),
    )
    stayed_bytes = evict(path)
    with memory_cap(case.cap_bytes) as group:
        outcome = _in_process(task, group)
        peak_bytes = group.peak_bytes()
    return {
        "goal": case.goal,
        "stream": case.stream,
        "batch_rows": case.batch_rows,
        "master_rows": case.master_rows,
        "memory_bytes": case.memory_bytes,
        "contender": contender,
        "variant": variant,
        "repetition": repetition,
        "seed": plan.seed,
        "cap_bytes": case.cap_bytes or "",
        "cap": _cap_state(case, group, stayed_bytes),
        "peak_bytes": peak_bytes or outcome.get("resident_peak_bytes", ""),
        **outcome,
    }


def _cap_state(case: Case, group: Group, stayed_bytes: int) -> str:
    if case.cap_bytes is None:
        return "none"
    if not group.enforced:
        return f"not enforced: {group.reason}"
    if stayed_bytes > _STAYED_CACHED_BYTES:
        return f"not enforced: {stayed_bytes} bytes were cached outside the group"
    return "enforced"


def _in_process(task: Task, group: Group) -> Result:
    """The result of one child process; a failing contender is a result too, wrong rows are not."""
    command = group.command([sys.executable, "-m", "benchmarks.engine.measure", json.dumps(asdict(task))])
    child = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    if child.returncode == 0:
        return {**json.loads(child.stdout.splitlines()[-1]), "failure": ""}
    sys.stderr.write(child.stderr)
    last_line = (child.stderr.strip() or "no message").splitlines()[-1]
    if child.returncode < 0:
        last_line = f"ended by signal {-child.returncode}" + (" under the cap" if group.enforced else "")
    if "RowsDifferError" in last_line:
        raise SystemExit(f"{task.contender} {task.variant}: {last_line}")
    return {"rows_per_second": 0.0, "failure": last_line[:200]}
