"""A program that runs Spark on whatever Java `ensure_java` finds, and prints what it saw."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from adjoin.java import ensure_java


def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["value"])


def main(work: Path) -> None:
    ensure_java()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .getOrCreate()
    )
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    print("java", jvm.java.lang.System.getProperty("java.home"))
    numbers = spark.range(5).selectExpr("id AS value")
    print("batch", sum(row.value for row in numbers.mapInArrow(double, "value long").collect()))
    spark.range(1, 6).selectExpr("id * 2 AS value").write.parquet(str(work / "input"))
    query = (
        spark.readStream.schema("value long")
        .parquet(str(work / "input"))
        .mapInArrow(double, "value long")
        .writeStream.format("memory")
        .queryName("doubled")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(work / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    print("stream", spark.sql("SELECT sum(value) AS total FROM doubled").collect()[0].total)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
