"""A driver that exits without stopping its session, while listeners receive events all the time.

Arguments: the directory of the test, and how to end: "last line", "sys.exit", "error" or "stopped query".
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import adjoin
from tests.spark.goods import build, products
from tests.spark.programs import session_builder, until


def run(spark: SparkSession, work: Path, end: str) -> None:
    build(products(100), work / "master").close()
    spark.streams.addListener(adjoin.EnrichListener(lambda _: None))
    stream = spark.readStream.format("rate").option("rowsPerSecond", 1_000).load()
    joined = adjoin.enrich(stream.withColumnRenamed("value", "id"), work / "master", on="id", memory="16MB")
    query = joined.writeStream.format("noop").start()
    until(lambda: query.lastProgress, seconds=60, what="a micro-batch")
    if end == "stopped query":
        query.stop()
    if end == "sys.exit":
        sys.exit(0)
    if end == "error":
        raise SystemExit("as planned")
    print("the last line")


if __name__ == "__main__":
    # Kept alive to the end: without a reference nothing else would be different.
    SPARK = session_builder().getOrCreate()
    run(SPARK, Path(sys.argv[1]), sys.argv[2])
