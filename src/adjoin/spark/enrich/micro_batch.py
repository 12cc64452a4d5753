"""Which micro-batch the code that runs here belongs to."""

from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class MicroBatch:
    """Which micro-batch of which streaming query a task belongs to."""

    query_id: str
    batch_id: int

    @classmethod
    def current(cls, context: TaskContext | SparkContext) -> "MicroBatch | None":
        """That of the task, or of the thread of the driver, that runs here; None if it belongs to none."""
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        return cls(query_id, int(batch_id)) if query_id and batch_id else None

    @classmethod
    def around(cls, df: DataFrame) -> "MicroBatch | None":
        """That of the `foreachBatch` body that runs here; None elsewhere, and on Connect, which is silent.

        Threads that the body starts itself are not known to Spark.
        """
        context: Any = getattr(df.sparkSession, "sparkContext", None)
        return None if context is None else cls.current(context)
