"""The same sales joined by adjoin and by Spark itself, one after another, on an idle machine."""

import statistics
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import adjoin
from examples.demo.shop import SALES

_WARM_UP_BATCHES = 3
_BATCHES = 9


@dataclass(frozen=True)
class Comparison:
    """Median seconds per micro-batch."""

    batch_rows: int
    master_rows: int
    ours_seconds: float
    spark_seconds: float


def compare(
    spark: SparkSession, sales: Path, master: adjoin.Master, products: str, memory: str, directory: Path
) -> Comparison:
    """Cut the first sales into equal micro-batches and join them both ways."""
    batch_rows = _cut(sales, directory / "batches")
    reader = spark.readStream.schema(SALES).option("maxFilesPerTrigger", 1)
    stream = reader.parquet(str(directory / "batches"))
    known = spark.read.parquet(products)
    ours = adjoin.enrich(stream, master, on="product_id", how="left", memory=memory)
    theirs = stream.join(known, "product_id", "left")
    return Comparison(
        batch_rows,
        master.rows,
        _median_seconds(ours, directory / "ours_checkpoint"),
        _median_seconds(theirs, directory / "spark_checkpoint"),
    )


def _cut(sales: Path, target: Path) -> int:
    target.mkdir()
    table = ds.dataset(sales).to_table()
    rows = min(10_000, table.num_rows // _BATCHES)
    for number in range(_BATCHES):
        pq.write_table(table.slice(number * rows, rows), target / f"{number:03d}.parquet")
    return rows


def _median_seconds(result: DataFrame, checkpoint: Path) -> float:
    writer = result.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress.durationMs["addBatch"] for progress in query.recentProgress if progress.numInputRows]
    return statistics.median(batches[_WARM_UP_BATCHES:]) / 1000
