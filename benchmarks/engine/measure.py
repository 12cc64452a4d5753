"""The work of one process: one contender, one case, one repetition."""

import json
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import return_freed_memory
from benchmarks.engine import check, datasets, workload
from benchmarks.engine.cases import Effort
from benchmarks.engine.contenders.catalogue import contender_class
from benchmarks.engine.contenders.contender import Answers, Contender, Setup


@dataclass(frozen=True)
class Task:
    """What to measure, as sent to the process."""

    contender: str
    variant: str
    filtered: bool
    path: str
    stream: str
    batch_rows: int
    memory_bytes: int
    effort: dict[str, Any]


@dataclass
class Watch:
    """Times a contender, and checks its answers with the clock stopped."""

    contender: Contender
    expected: check.Tally = field(default_factory=check.Tally)
    actual: check.Tally = field(default_factory=check.Tally)
    batch_seconds: list[float] = field(default_factory=list)
    end_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self.batch_seconds) + self.end_seconds

    def batch(self, keys: np.ndarray) -> None:
        """Send one batch and check the answers."""
        check.expect(self.expected, keys)
        batch = pa.RecordBatch.from_arrays([pa.array(keys)], schema=workload.STREAM_SCHEMA)
        started = time.perf_counter()
        answers = list(self.contender.answer(batch))
        self.batch_seconds.append(time.perf_counter() - started)
        self._collect(answers)
        if self.contender.whole_batches:
            check.settle(self.expected, self.actual)

    def end(self, last: bool) -> None:
        """Drain pending rows; now every row must have been returned."""
        started = time.perf_counter()
        answers = list(self.contender.finish() if last else self.contender.drain())
        self.end_seconds = time.perf_counter() - started
        self._collect(answers)
        check.settle(self.expected, self.actual)

    def _collect(self, answers: Answers) -> None:
        for answer in answers:
            check.collect(self.actual, answer)


def _batches(task: Task, start_row: int, rows: int) -> Iterator[np.ndarray]:
    stream = Path(task.stream)
    for start in range(start_row, start_row + rows, task.batch_rows):
        yield datasets.keys_in(stream, start, task.batch_rows)


def _warm_up(contender: Contender, task: Task, effort: Effort) -> Watch:
    watch = Watch(contender)
    for keys in _batches(task, 0, effort.warm_rows):
        watch.batch(keys)
        if watch.seconds > effort.warm_seconds:
            break
    watch.end(last=False)
    return watch


def _measure(contender: Contender, task: Task, effort: Effort) -> Watch:
    watch = Watch(contender)
    for keys in _batches(task, effort.warm_rows, effort.rows):
        watch.batch(keys)
        if effort.spent(watch.seconds, len(watch.batch_seconds)):
            break
    watch.end(last=True)
    return watch


def measure(task: Task) -> dict[str, Any]:
    """Warm up, measure and describe the result."""
    effort = Effort(**task.effort)
    kind = contender_class(task.contender, task.filtered)
    contender = kind(Setup(Path(task.path), task.variant, task.memory_bytes))
    warm = _warm_up(contender, task, effort)
    watch = _measure(contender, task, effort)
    metrics = contender.metrics()
    contender.close()
    rows = len(watch.batch_seconds) * task.batch_rows
    return {
        "warm_rows": len(warm.batch_seconds) * task.batch_rows,
        "batches": len(watch.batch_seconds),
        "rows": rows,
        "rows_out": watch.actual.rows,
        "seconds": watch.seconds,
        "rows_per_second": rows / watch.seconds,
        "batch_seconds_median": statistics.median(watch.batch_seconds),
        "batch_seconds_max": max(watch.batch_seconds),
        "resident_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "metrics": metrics,
    }


if __name__ == "__main__":
    return_freed_memory()  # the resident size is one of the measurements
    print(json.dumps(measure(Task(**json.loads(sys.argv[1]))), default=float))
