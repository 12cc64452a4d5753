"""The work of one Spark application: the contenders that share it, one after another."""

import json
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark import check, eventlog, session
from benchmarks.spark.cases import Effort
from benchmarks.spark.contenders.catalogue import contender_class
from benchmarks.spark.contenders.contender import OUTPUT_COLUMNS, STREAM_TYPES, Setup
from benchmarks.spark.datasets import FILES_PER_BATCH, SCRATCH_PREFIX

_LOOK_SECONDS = 1


@dataclass(frozen=True)
class Task:
    """What to measure, as sent to the process."""

    contender: str
    master: str
    sales: str
    checked_sales: str
    batch_rows: int
    memory_bytes: int
    partitions: int
    tasks_timed: bool
    effort: dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Spark's numbers for one micro-batch."""

    rows_out: int
    add_batch_seconds: float
    trigger_seconds: float
    observed: dict[str, Any]


class Application:
    """One Spark session and its scratch folder."""

    def __init__(self, scratch: Path, driver_memory: str, event_log: bool) -> None:
        self.scratch = scratch
        self.event_log = scratch / "events" if event_log else None
        self.spark: SparkSession = session.start(scratch, driver_memory, self.event_log)
        self._queries = 0

    def measure(self, task: Task) -> dict[str, Any]:
        """Run the stream, then its beginning once more into files to check."""
        kind = contender_class(task.contender)
        started = time.perf_counter()
        setup = Setup(self.spark, Path(task.master), task.memory_bytes, task.partitions)
        with closing(kind(setup)) as contender:
            frame = contender.join(self._read(task.sales))
            prepare_seconds = time.perf_counter() - started
            effort = Effort(**task.effort)
            opened = time.time()
            batches, plan = self._stream(frame, effort)
            closed = time.time()
            check.check_plan(kind, plan)
            check.check_rows(task.contender, task.batch_rows, [each.rows_out for each in batches])
            held_bytes = contender.held_bytes()
            answer = self._write(contender.join(self._read(task.checked_sales)))
        measured = effort.measured([each.trigger_seconds for each in batches])
        if not measured:
            raise check.CheckError(f"{task.contender} ended after {len(batches)} batches, too few to measure")
        return {
            **_describe([batches[at] for at in measured]),
            "warm_batches": measured.start,
            "prepare_seconds": prepare_seconds,
            "held_bytes": held_bytes or "",
            "answer": asdict(answer),
            "window": eventlog.Window(1000 * opened, 1000 * closed),
        }

    def try_to_measure(self, task: Task) -> dict[str, Any]:
        """Measure; a failing contender is a result too, wrong rows or plans are not."""
        try:
            return {**self.measure(task), "failure": ""}
        except check.CheckError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the others must run
            traceback.print_exc()
            return {"failure": (str(error).strip() or repr(error)).splitlines()[0][:200]}

    def _read(self, sales: str) -> DataFrame:
        reader = self.spark.readStream.schema(STREAM_TYPES).option("maxFilesPerTrigger", FILES_PER_BATCH)
        return reader.parquet(sales)

    def _stream(self, frame: DataFrame, effort: Effort) -> tuple[list[Batch], str]:
        writer = frame.writeStream.format("noop").option("checkpointLocation", self._folder("checkpoint"))
        query = writer.trigger(availableNow=True).start()
        while not query.awaitTermination(_LOOK_SECONDS):
            if effort.measured([each.trigger_seconds for each in _batches(query)]):
                break
        batches = _batches(query)
        # the plan that really ran: hints may be ignored, and adaptive execution may replan
        plan = query._jsq.explainInternal(False)
        query.stop()
        return batches, plan

    def _write(self, frame: DataFrame) -> check.Tally:
        folder = self._folder("answer")
        writer = frame.select(*OUTPUT_COLUMNS).writeStream.format("parquet").option("path", folder)
        writer = writer.option("checkpointLocation", self._folder("checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        tally = check.of_files(Path(folder))
        shutil.rmtree(folder)
        return tally

    def _folder(self, name: str) -> str:
        self._queries += 1
        return str(self.scratch / f"{name}-{self._queries}")


def _batches(query: StreamingQuery) -> list[Batch]:
    return [
        Batch(
            rows_out=progress.sink.numOutputRows,
            add_batch_seconds=progress.durationMs["addBatch"] / 1000,
            trigger_seconds=progress.durationMs["triggerExecution"] / 1000,
            observed={name: row.asDict(recursive=True) for name, row in progress.observedMetrics.items()},
        )
        for progress in query.recentProgress
        if progress.numInputRows
    ]


def _describe(batches: list[Batch]) -> dict[str, Any]:
    add, trigger = (
        [getattr(each, name) for each in batches] for name in ("add_batch_seconds", "trigger_seconds")
    )
    return {
        "batches": len(batches),
        "rows_out": sum(each.rows_out for each in batches),
        "add_batch_seconds": statistics.median(add),
        "add_batch_seconds_max": max(add),
        "trigger_seconds": statistics.median(trigger),
        "trigger_seconds_max": max(trigger),
        "metrics": batches[-1].observed,
    }


def measure(tasks: list[Task]) -> list[dict[str, Any]]:
    """The results of all tasks, which share an application."""
    kinds = [contender_class(task.contender) for task in tasks]
    heap = max((kind.driver_memory for kind in kinds), key=lambda text: int(text.removesuffix("g")))
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=Path(tasks[0].sales).parents[1]) as folder:
        application = Application(Path(folder), heap, any(task.tasks_timed for task in tasks))
        results = [application.try_to_measure(task) for task in tasks]
        application.spark.stop()
        for task, result in zip(tasks, results, strict=True):
            window = result.pop("window", None)
            if window and task.tasks_timed and application.event_log:
                log, skipped = application.event_log, result["warm_batches"]
                result.update(asdict(eventlog.evenness(log, task.partitions, window, skipped)))
    return results


if __name__ == "__main__":
    print(json.dumps(measure([Task(**task) for task in json.loads(sys.argv[1])]), default=str))
