"""A driver whose streaming query joins micro-batch after micro-batch.

Argument: the directory of the test; it ends when there is a file named "stop".
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import EnrichListener, EnrichProgress
from tests.spark.market import MEMORY_BYTES, stream
from tests.spark.programs import session, write_json


def run(spark: SparkSession, work: Path) -> None:
    def write(df: DataFrame, batch_id: int) -> None:
        df.drop("name").write.mode("overwrite").parquet(str(work / "out" / f"{batch_id}"))

    def note(progress: EnrichProgress) -> None:
        with (work / "progress").open("a") as file:
            file.write(json.dumps([progress.batch_id, progress.master_version, progress.pages_read]) + "\n")

    spark.streams.addListener(EnrichListener(note))
    result = adjoin.enrich(
        stream(spark), work / "master", on="id", how="left", memory=MEMORY_BYTES, partitions=2
    )
    writer = result.writeStream.foreachBatch(write).option("checkpointLocation", str(work / "checkpoint"))
    query = writer.start()
    write_json(work / "query", str(query.id))
    while not (work / "stop").exists():
        query.awaitTermination(1)
        assert query.isActive, query.exception()
    query.stop()


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    with session(**{"spark.adjoin.arena.dir": str(directory / "pages")}) as spark_session:
        run(spark_session, directory)
