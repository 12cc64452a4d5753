"""A shop on Spark: products as the master, sales as the stream, and the expected join."""

from collections import Counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.oracle import Predicate, expected
from tests.spark.goods import build, products, read_batches, sales, write_batches

__all__ = [
    "ON_ID",
    "as_dataframe",
    "build",
    "products",
    "read_batches",
    "rows_of",
    "sales",
    "wanted",
    "write_batches",
]

ON_ID = Predicate("id")


def rows_of(table: pa.Table | DataFrame) -> Counter[tuple[str, ...]]:
    """The multiset of rows, with values as strings, so that any of them can be counted."""
    if not isinstance(table, pa.Table):
        table = table.toArrow()
    names = sorted(table.column_names)
    return Counter(tuple(repr(row[name]) for name in names) for row in table.to_pylist())


def wanted(
    stream: pa.Table, master: pa.Table, predicate: Predicate = ON_ID, how: str = "inner", **options: Any
) -> Counter[tuple[str, ...]]:
    return rows_of(expected(stream, master, predicate, how, **options))


def as_dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The table on Spark; timestamps without a zone stay so, unlike with Spark's own conversion."""
    df = spark.createDataFrame(table)
    for field in table.schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            df = df.withColumn(field.name, df[field.name].cast("timestamp_ntz"))
    return df
