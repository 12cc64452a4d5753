"""A driver whose workers fail and die by a plan; it goes on by itself, as Spark tries tasks again.

Arguments: the directory of the test, then faults as `point:batch:action`.
"""

import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import EnrichProgress
from tests.spark import faulty_daemon
from tests.spark.faulty_daemon import Fault
from tests.spark.goods import read_batches
from tests.spark.programs import session, write_json


def run(spark: SparkSession, work: Path) -> None:
    """One streaming query and one batch; both leave their rows, the query its progress."""

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(str(work / "out" / f"{batch_id:05d}"))

    stream = read_batches(spark, work / "in")
    result = adjoin.enrich(stream, work / "master", on="id", how="left", memory="64MB", partitions=2)
    writer = result.writeStream.foreachBatch(write).option("checkpointLocation", str(work / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    reported = [asdict(EnrichProgress.of(progress)[0]) for progress in query.recentProgress]
    static = adjoin.enrich(spark.read.parquet(str(work / "in")), work / "master", on="id", partitions=2)
    static.write.parquet(str(work / "static"))
    write_json(work / "progress.json", reported)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    described = [argument.split(":") for argument in sys.argv[2:]]
    faults = [Fault(point, int(batch), action) for point, batch, action in described]
    faulty_daemon.plan(directory / "plan", *faults)
    with session(**faulty_daemon.SETTINGS) as spark_session:
        run(spark_session, directory)
