"""How many tasks a session runs at once."""

from functools import lru_cache
from typing import Any

from pyspark.sql import functions as F


@lru_cache(maxsize=8)
def parallelism(session: Any) -> int:
    """Tasks that the session runs at once; Connect only reveals it in how many parts it makes of a range."""
    context = getattr(session, "sparkContext", None)
    if context is not None:
        return max(1, int(context.defaultParallelism))
    parts = session.range(1 << 12).select(F.spark_partition_id().alias("part")).distinct()
    return max(1, int(parts.count()))
