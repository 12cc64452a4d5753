"""Spark's own stream-stream joins, by equality."""

from typing import ClassVar

from pyspark.sql import DataFrame, functions

from benchmarks.spark.contenders.contender import PlanRule
from benchmarks.streamjoin_spark.contenders.contender import Contender, Inputs

_STORE = "spark.sql.streaming.stateStore"
_JOIN = "spark.sql.streaming.join"
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = {
    f"{_STORE}.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STORE}.rocksdb.blockCacheSizeMB": "256",
    f"{_STORE}.rocksdb.writeBufferSizeMB": "64",
}


class SparkJoin(Contender):
    """Two inputs by a condition with a time bound, or a chain of inputs by their common columns."""

    plan: ClassVar[PlanRule] = PlanRule(has=("StreamingSymmetricHashJoin",), lacks=("TransformWithState",))

    def join(self, inputs: Inputs) -> DataFrame:
        """Join, by Spark's own means."""
        if len(inputs) > 2:
            return self._chain(inputs)
        (first, left), (second, right) = self.watermarked(inputs).items()
        joined = left.alias(first).join(right.alias(second), functions.expr(self.shape.condition))
        return joined.drop(functions.col(f"{second}.{self.shape.columns(second)[0]}"))

    def _chain(self, inputs: Inputs) -> DataFrame:
        """Join each to the result so far, by the column that both have."""
        joined, *others = inputs.values()
        for other in others:
            (common,) = set(joined.columns) & set(other.columns)
            joined = joined.join(other, common)
        return joined


class RocksDB2(SparkJoin):
    """The state format that Spark uses by default, in RocksDB."""

    name: ClassVar[str] = "spark rocksdb v2"
    settings: ClassVar[str] = (
        "`left.join(right, condition)`, state format 2; RocksDB with changelog checkpoints, rows not "
        "counted, block cache of 256 MB and write buffers of 64 MB for each store; heap of 8 GB"
    )
    conf: ClassVar[dict[str, str]] = {**ROCKSDB, f"{_JOIN}.stateFormatVersion": "2"}


class RocksDB4(SparkJoin):
    """The newest state format, which finds expired rows by their time."""

    name: ClassVar[str] = "spark rocksdb v4"
    settings: ClassVar[str] = "the same with state format 4"
    conf: ClassVar[dict[str, str]] = {
        **ROCKSDB,
        f"{_JOIN}.stateFormatVersion": "4",
        f"{_JOIN}.stateFormatV4.enabled": "true",
    }


class InMemory(SparkJoin):
    """State in the heap, by the provider that Spark uses by default."""

    name: ClassVar[str] = "spark in memory"
    settings: ClassVar[str] = "the same with state format 2 and `HDFSBackedStateStoreProvider`"
    conf: ClassVar[dict[str, str]] = {
        f"{_STORE}.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider",
        f"{_JOIN}.stateFormatVersion": "2",
    }
