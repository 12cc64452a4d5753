"""A driver that runs streaming queries to the end of their input, or one to the step at which it must die.

Arguments: the directory of the test, and a file that will say which queries. The driver is started before
that is known, so that its start, which takes longest, goes on while the one before it dies.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import adjoin
from tests.spark import faulty_daemon
from tests.spark.faulty_daemon import Fault
from tests.spark.programs import kill_group, read_json, session

IN_WORKER = ("link", "recorded", "input", "last row")
"""Steps that `faulty_daemon` knows."""
SCHEMA = "id bigint, sale bigint, amount double"


@dataclass(frozen=True)
class Victim:
    """One query, its sink, and its end.

    Attributes:
        work: The directory of the test.
        sink: "files", Spark's own, or "foreach", which replaces what a micro-batch wrote before.
        step: Where to die; "none" to live.
        batch: In which micro-batch.
    """

    work: Path
    sink: str
    step: str
    batch: int

    @property
    def out(self) -> Path:
        return self.work / self.sink / "out"

    @property
    def checkpoint(self) -> Path:
        return self.work / self.sink / "checkpoint"

    @property
    def marks(self) -> dict[str, Path]:
        """Files of Spark that show that a step is done."""
        return {
            "offsets": self.checkpoint / "offsets" / str(self.batch),
            "metadata": self.out / "_spark_metadata" / str(self.batch),
            "committed": self.checkpoint / "commits" / str(self.batch),
        }

    def run(self, spark: SparkSession) -> None:
        faults = [Fault(self.step, self.batch, "driver")] if self.step in IN_WORKER else []
        faulty_daemon.plan(self.work / "plan", *faults)
        if self.step in self.marks:
            threading.Thread(target=self._die_at, args=[self.marks[self.step]], daemon=True).start()
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(self.work / self.sink / "in"))
        result = adjoin.enrich(stream, self.work / "master", on="id", how="left", partitions=2)
        self._start(result).awaitTermination()

    def _start(self, result: DataFrame) -> StreamingQuery:
        writer = result.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(availableNow=True)
        if self.sink == "files":
            return writer.format("parquet").start(str(self.out))
        return writer.foreachBatch(self._write).start()

    def _write(self, df: DataFrame, batch_id: int) -> None:
        is_last = batch_id == self.batch
        if is_last and self.step == "body":
            kill_group()
        df.write.mode("overwrite").parquet(str(self.out / f"{batch_id:05d}"))
        if is_last and self.step == "written":
            kill_group()

    @staticmethod
    def _die_at(mark: Path) -> None:
        while not mark.exists():
            time.sleep(0.000_2)
        kill_group()


def told(path: Path) -> list[tuple[str, str, int]]:
    """Wait for the orders: sink, step and micro-batch of each query."""
    while not path.exists():
        assert os.getppid() > 1, "the process that gives orders has ended"
        time.sleep(0.02)
    return [tuple(order) for order in read_json(path)]


if __name__ == "__main__":
    directory, orders = map(Path, sys.argv[1:])
    with session(**faulty_daemon.SETTINGS) as spark_session:
        for sink, step, batch in told(orders):
            Victim(directory, sink, step, batch).run(spark_session)
