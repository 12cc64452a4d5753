"""The routing that `enrich` does, for contenders that are to pay for it too."""

from pyspark.sql import DataFrame, functions

ROUTED_PLAN = (
    "rangepartitioning(key",
    "xxhash64(key",
    "MapInArrow",
)  # the same words as in the plan of `enrich`


def routed(stream: DataFrame, partitions: int) -> DataFrame:
    """Ranges of keys, with equal keys spread where one of them fills more than a partition."""
    return stream.repartitionByRange(partitions, "key", functions.xxhash64(*stream.columns))
