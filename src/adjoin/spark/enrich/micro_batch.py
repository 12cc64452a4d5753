"""The micro-batch that the running code belongs to."""

from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a streaming query."""

    query_id: str
    batch_id: int

    @classmethod
    def current(cls, context: TaskContext | SparkContext) -> "MicroBatch | None":
        """The micro-batch of this task or of this driver thread; None if there is none."""
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        return cls(query_id, int(batch_id)) if query_id and batch_id else None

    @classmethod
    def around(cls, df: DataFrame) -> "MicroBatch | None":
        """The micro-batch whose `foreachBatch` body is running; None elsewhere, and on Connect.

        Spark does not know about threads that the body starts itself.
        """
        context: Any = getattr(df.sparkSession, "sparkContext", None)
        return None if context is None else cls.current(context)
