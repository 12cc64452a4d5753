"""The pipeline itself: all that a user has to write."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import adjoin
from adjoin import etl
from examples.demo.shop import CHANGES, SALES

CLOCK = "clock"


def load_sales(spark: SparkSession, sales: Path, master: str, facts: Path, memory: str) -> StreamingQuery:
    """Add price and name to every sale, replace its product with the warehouse key, write it exactly once."""
    stream = spark.readStream.schema(SALES).parquet(str(sales))
    stream = stream.observe(CLOCK, F.min("sold_at").alias("oldest"))
    enriched = adjoin.enrich(
        stream, master, on="product_id", how="left", columns=["price", "name"], memory=memory
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        keyed = etl.surrogate_keys(batch, master, on="product_id", key="product_key", memory=memory)
        keyed.write.mode("overwrite").parquet(str(facts / f"batch={batch_id}"))
        batch.unpersist()

    writer = enriched.writeStream.queryName("sales").foreachBatch(write)
    return writer.option("checkpointLocation", str(facts.with_name("facts_checkpoint"))).start()


def follow_changes(spark: SparkSession, changes: Path, master: str) -> StreamingQuery:
    """Keep the products up to date, applying each change exactly once."""
    stream = spark.readStream.schema(CHANGES).parquet(str(changes))
    body = etl.apply_changes(master, "prices", sequence="step")
    writer = stream.writeStream.queryName("changes").foreachBatch(body)
    return writer.option("checkpointLocation", str(changes.with_name("changes_checkpoint"))).start()
