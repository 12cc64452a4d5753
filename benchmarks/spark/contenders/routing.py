"""The routing of `enrich`, for contenders that should pay for it too."""

from pyspark.sql import DataFrame, functions

ROUTED_PLAN = (
    "rangepartitioning(xxhash64(shiftright(",
    ", xxhash64(",
    "MapInArrow",
)  # as in the plan of `enrich`
_GROUP_BITS = 9  # 16 pages of 49 rows, rounded down to a power of two: what `enrich` computes for this master


def routed(stream: DataFrame, partitions: int) -> DataFrame:
    """Groups of neighboring keys in random order, cut into ranges with the same number of rows."""
    group = functions.xxhash64(functions.shiftright("key", _GROUP_BITS))
    return stream.repartitionByRange(partitions, group, "key", functions.xxhash64(*stream.columns))
