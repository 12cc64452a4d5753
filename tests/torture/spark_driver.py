"""A driver that joins a stream with a master while it changes the master, until both are done.

Arguments: the directory of the case, the URL of Spark, and the kind, seed and number of the case.
"""

import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import Master
from tests.spark.programs import session
from tests.torture.cases import Draw
from tests.torture.model import Model, Step

BATCHES = 16
STEPS = 16
ROWS = 120
COLUMNS = ("text", "n", "x")
"""Columns of the master in the result, which are kept while others are added."""
_PAUSE_SECONDS = 0.3


class Plan:
    """The steps of one case, which follow from the seed."""

    def __init__(self, draw: Draw) -> None:
        self.model = Model.drawn(draw, key="int64")
        self.sink = draw.choice(["files", "foreach"])
        self.steps: list[Step] = [self.model.build(200)]
        for _ in range(STEPS):
            what = draw.choices(["apply", "evolve", "compact", "vacuum"], [5, 1, 2, 2])[0]
            made = {
                "apply": lambda: self.model.apply(40),
                "evolve": lambda: self.model.evolve(only_add=True),
                "compact": self.model.compact,
                "vacuum": lambda: self.model.vacuum(draw.choice([1, 3])),
            }
            self.steps.append(made[what]())
        self.batches = [self.model.sales(ROWS, 1_000 * number) for number in range(BATCHES)]


class Driver:
    """One life of the driver; it resumes where the last one was killed."""

    def __init__(self, spark: SparkSession, work: Path, plan: Plan) -> None:
        self._spark, self._work, self._plan = spark, work, plan
        self._failure = ""

    def run(self) -> None:
        self._build()
        writer = threading.Thread(target=self._write, daemon=True)
        writer.start()
        self._join()
        writer.join()
        assert not self._failure, self._failure

    def _build(self) -> None:
        path = self._work / "m"
        if not (path / "versions").exists() or not list((path / "versions").iterdir()):
            self._note(self._plan.steps[0])
            source = self._spark.createDataFrame(self._plan.model.tables[1])
            Master.build(source, key="id", path=path, page_bytes=4096, filter_bits=8).close()

    def _note(self, step: Step) -> None:
        (self._work / "doing").write_text(step.what)

    def _join(self) -> None:
        schema = "id bigint, sale bigint"
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(self._work / "in"))
        arguments: dict[str, Any] = {
            "on": "id",
            "how": "left",
            "columns": list(COLUMNS),
            "memory": "8MB",
            "partitions": 2,
        }
        result = adjoin.enrich(stream, self._work / "m", **arguments)
        writer = result.writeStream.option("checkpointLocation", str(self._work / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        if self._plan.sink == "files":
            query = writer.format("parquet").start(str(self._work / "out"))
        else:
            query = writer.foreachBatch(self._put).start()
        query.awaitTermination()

    def _put(self, df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(str(self._work / "out" / f"{batch_id:05d}"))

    def _write(self) -> None:
        """Run the remaining steps in order."""
        try:
            with Master.open(self._work / "m") as master:
                revision = master.revision
            for step in self._plan.steps[1:]:
                if step.base >= revision:
                    self._note(step)
                    self._do(step)
                    time.sleep(_PAUSE_SECONDS)
            (self._work / "doing").write_text("nothing")
        except Exception:  # noqa: BLE001 (reported by the main thread)
            self._failure = traceback.format_exc()

    def _do(self, step: Step) -> None:
        with Master.open(self._work / "m") as master:
            if step.changes is None:
                getattr(master, step.what)(**step.options)
                return
            places = pa.array(range(len(step.changes)), pa.int64())
            changes = self._spark.createDataFrame(step.changes.append_column("place", places))
            master.apply(changes, **{**step.options, "memory": "16MB"}, order_by="place").close()


def main(work: Path, url: str, kind: str, seed: int, number: int) -> None:
    settings = {
        "spark.adjoin.arena.dir": str(work / "pages"),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "20",
        "spark.python.worker.faulthandler.enabled": "true",
    }
    with session(url, **settings) as spark:
        Driver(spark, work, Plan(Draw(kind, seed, number))).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
