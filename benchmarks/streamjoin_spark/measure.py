"""The work of one Spark application: the contenders that share it, one after another."""

import json
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark import session
from benchmarks.spark.check import CheckError, check_plan_of
from benchmarks.spark.datasets import SCRATCH_PREFIX
from benchmarks.streamjoin_spark.check import Tally, check_conf
from benchmarks.streamjoin_spark.contenders.catalogue import contender_class
from benchmarks.streamjoin_spark.contenders.contender import Contender
from benchmarks.streamjoin_spark.shapes import SHAPES, Shape

_OBSERVED = "answer"
_SHARED_CONF = {
    # sums of files for a checkpoint that nobody will read: without them all contenders are faster
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}


@dataclass(frozen=True)
class Task:
    """What to measure, as sent to the process."""

    contender: str
    shape: str
    inputs: str
    batch_rows: int
    warm_batches: int
    batches: int
    memory_bytes: int
    partitions: int


class Application:
    """One Spark session and its scratch folder."""

    def __init__(self, scratch: Path, driver_memory: str) -> None:
        self.scratch = scratch
        self.spark: SparkSession = session.start(scratch, driver_memory, None)
        self._queries = 0

    def try_to_measure(self, task: Task) -> dict[str, Any]:
        """Measure; a failing contender is a result too, wrong rows or plans are not."""
        kind = contender_class(task.contender)
        if reason := kind.missing():
            return {"failure": f"skipped: {reason}"}
        conf = {**_SHARED_CONF, **kind.conf, "spark.sql.shuffle.partitions": str(task.partitions)}
        for name, value in conf.items():
            self.spark.conf.set(name, value)
        try:
            return {**self.measure(task, kind), "failure": ""}
        except CheckError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the others must run
            traceback.print_exc()
            return {"failure": (str(error).strip() or repr(error)).splitlines()[0][:200]}
        finally:
            for name in conf:
                self.spark.conf.unset(name)

    def measure(self, task: Task, kind: type[Contender]) -> dict[str, Any]:
        """Run the streams to their end."""
        shape = SHAPES[task.shape]
        contender = kind(shape, task.memory_bytes)
        frame = contender.join({name: self._read(task, shape, name) for name in shape.inputs})
        self._queries += 1
        checkpoint = self.scratch / f"checkpoint-{self._queries}"
        began = time.perf_counter()
        query = (
            _observed(frame.select(*shape.output), shape)
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - began
        check_plan_of(task.contender, kind.plan, query._jsq.explainInternal(False))
        check_conf(task.contender, kind.conf, (checkpoint / "offsets" / "0").read_text())
        return {
            **_described(task, shape, query),
            "whole_seconds": seconds,
            "checkpoint_bytes": sum(each.stat().st_size for each in checkpoint.rglob("*") if each.is_file()),
        }

    def _read(self, task: Task, shape: Shape, name: str) -> DataFrame:
        reader = self.spark.readStream.schema(shape.inputs[name]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(Path(task.inputs) / name))


def _observed(frame: DataFrame, shape: Shape) -> DataFrame:
    """The same rows, counted and summed as they pass: every micro-batch that is timed is checked as well."""
    return frame.observe(
        _OBSERVED,
        functions.count(functions.lit(1)).alias("rows"),
        functions.expr(f"sum({shape.pairs()})").alias("pairs"),
        functions.expr(f"sum({shape.values()})").alias("values"),
    )


def _described(task: Task, shape: Shape, query: StreamingQuery) -> dict[str, Any]:
    progress: list[StreamingQueryProgress] = query.recentProgress
    with_rows = [each for each in progress if each.numInputRows]
    if len(with_rows) != task.warm_batches + task.batches:
        raise CheckError(f"{task.contender} ran {len(with_rows)} micro-batches with rows")
    steady = with_rows[task.warm_batches :]
    add, trigger = ([_seconds(each, of) for each in steady] for of in ("addBatch", "triggerExecution"))
    # the last one is that of the micro-batches without rows, whose number depends on the contender
    without_rows = sum((_tally(each) for each in progress if not each.numInputRows), Tally())
    state = steady[-1].stateOperators
    return {
        "add_batch_seconds": statistics.median(add),
        "add_batch_seconds_max": max(add),
        "trigger_seconds": statistics.median(trigger),
        "trigger_seconds_max": max(trigger),
        "rows_per_second": len(shape.inputs) * task.batch_rows / statistics.median(trigger),
        "rows_out": sum(_tally(each).rows for each in steady),
        "state_rows": sum(each.numRowsTotal for each in state),
        "state_memory_bytes": sum(each.memoryUsedBytes for each in state),
        "state_disk_bytes": sum(int(each.customMetrics.get("rocksdbSstFileSize", 0)) for each in state),
        "tallies": [asdict(each) for each in (*map(_tally, with_rows), without_rows)],
        "metrics": {"triggers": [_seconds(each, "triggerExecution") for each in with_rows]},
    }


def _seconds(progress: StreamingQueryProgress, of: str) -> float:
    return progress.durationMs[of] / 1000


def _tally(progress: StreamingQueryProgress) -> Tally:
    seen = progress.observedMetrics.get(_OBSERVED)
    return Tally(*(int(seen[name] or 0) for name in ("rows", "pairs", "values"))) if seen else Tally()


def measure(tasks: list[Task]) -> list[dict[str, Any]]:
    """The results of all tasks, which share an application."""
    kinds = [contender_class(task.contender) for task in tasks]
    heap = max((kind.driver_memory for kind in kinds), key=lambda text: int(text.removesuffix("g")))
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=Path(tasks[0].inputs).parent) as folder:
        application = Application(Path(folder), heap)
        results = [application.try_to_measure(task) for task in tasks]
        application.spark.stop()
    return results


if __name__ == "__main__":
    print(json.dumps(measure([Task(**task) for task in json.loads(sys.argv[1])]), default=str))
