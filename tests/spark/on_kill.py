"""A driver that runs one streaming query to the end of its input, or to the step at which it must die.

Arguments: the directory of the test, the sink ("files" or "foreach"), the step, the micro-batch.
"""

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import adjoin
from tests.spark import faulty_daemon
from tests.spark.faulty_daemon import Fault
from tests.spark.goods import read_batches
from tests.spark.programs import kill_group, session

IN_WORKER = ("record", "link", "linked", "recorded", "input", "last row")
"""Steps that `faulty_daemon` knows."""


class Victim:
    """One query, its sink, and its end."""

    def __init__(self, work: Path, sink: str, step: str, batch: int) -> None:
        self.work, self.sink, self.step, self.batch = work, sink, step, batch
        self.out, self.checkpoint = work / sink / "out", work / sink / "checkpoint"
        self.marks = {
            "offsets": self.checkpoint / "offsets" / str(batch),
            "metadata": self.out / "_spark_metadata" / str(batch),
            "committed": self.checkpoint / "commits" / str(batch),
        }

    def run(self, spark: SparkSession) -> None:
        faults = [Fault(self.step, self.batch, "driver")] if self.step in IN_WORKER else []
        faulty_daemon.plan(self.work / "plan", *faults)
        if self.step in self.marks:
            threading.Thread(target=self._die_at, args=[self.marks[self.step]], daemon=True).start()
        stream = read_batches(spark, self.work / "in")
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


if __name__ == "__main__":
    directory, sink_name, last_step, last_batch = sys.argv[1:]
    with session(**faulty_daemon.SETTINGS) as spark_session:
        Victim(Path(directory), sink_name, last_step, int(last_batch)).run(spark_session)
