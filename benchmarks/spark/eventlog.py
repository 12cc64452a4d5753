"""How long the tasks after a shuffle took, from Spark's event log."""

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Evenness:
    """The slowest task and the one with the most rows, each relative to the median of its micro-batch."""

    slowest_to_median: float
    rows_to_median: float


@dataclass(frozen=True)
class _Task:
    milliseconds: int
    rows: int


@dataclass(frozen=True)
class Window:
    """The time in which one stream ran, in milliseconds since 1970, like Spark's times."""

    start: float
    end: float


def evenness(log: Path, partitions: int, window: Window, skipped_batches: int) -> Evenness:
    """The median over the micro-batches of one stream, without the first ones."""
    stages = _routed_stages(log, partitions, window)[skipped_batches:]
    if not stages:
        raise AssertionError(f"no micro-batch was routed to {partitions} partitions")
    return Evenness(
        statistics.median(_against_median([task.milliseconds for task in tasks]) for tasks in stages),
        statistics.median(_against_median([task.rows for task in tasks]) for tasks in stages),
    )


def _against_median(values: list[int]) -> float:
    # of two values the lower is the median: the larger is never twice their mean
    return max(values) / max(1, statistics.median_low(values))


def _routed_stages(log: Path, partitions: int, window: Window) -> list[list[_Task]]:
    """The tasks of every stage that reads a shuffle in this many partitions, in order."""
    stages: dict[int, list[_Task]] = defaultdict(list)
    for file in sorted(log.iterdir()):
        for line in file.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["Event"] != "SparkListenerTaskEnd" or not event.get("Task Metrics"):
                continue
            if window.start <= event["Task Info"]["Launch Time"] <= window.end:
                stages[event["Stage ID"]].append(_task(event["Task Metrics"]))
    routed = [stages[stage] for stage in sorted(stages) if any(task.rows for task in stages[stage])]
    return [tasks for tasks in routed if len(tasks) == partitions]


def _task(metrics: dict[str, Any]) -> _Task:
    return _Task(metrics["Executor Run Time"], metrics["Shuffle Read Metrics"]["Total Records Read"])
