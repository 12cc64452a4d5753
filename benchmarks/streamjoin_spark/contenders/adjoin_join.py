"""adjoin: `join` and `join_all`."""

from typing import Any, ClassVar

from pyspark.sql import DataFrame, functions

import adjoin
from benchmarks.spark.contenders.contender import PlanRule
from benchmarks.streamjoin_spark.contenders.contender import Contender, Inputs
from benchmarks.streamjoin_spark.contenders.spark_join import ROCKSDB
from benchmarks.streamjoin_spark.shapes import BOUND_SECONDS, CHAIN_ON, WITHIN

_ADJOIN: Any = adjoin


class Join(Contender):
    """Two streams by equality, band or range."""

    name: ClassVar[str] = "adjoin.join"
    function: ClassVar[str] = "join"
    settings: ClassVar[str] = (
        "`adjoin.join(left, right, on=..., memory=...)` with `time`, `before` and `after` where there is a "
        "bound; heap of 2 GB; RocksDB with the settings of `spark rocksdb v2`, in bounded memory"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=("TransformWithState",), lacks=("StreamingSymmetricHashJoin",))
    conf: ClassVar[dict[str, str]] = {
        **ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    }
    driver_memory: ClassVar[str] = "2g"

    @classmethod
    def missing(cls) -> str:
        """Whether this version can do it."""
        return "" if hasattr(adjoin, cls.function) else f"this version has no adjoin.{cls.function}"

    def join(self, inputs: Inputs) -> DataFrame:
        """Join."""
        first, second = inputs
        on: dict[str, Any] = {"on": self.shape.columns(first)[0]}
        if on["on"] == "price":
            on["within"] = WITHIN
        elif on["on"] == "position":
            on["between"] = tuple(self.shape.columns(second)[:2])
        if self.shape.times:
            on["time"] = (self.shape.times[first], self.shape.times[second])
            on |= {"before": "0 seconds", "after": f"{BOUND_SECONDS} seconds"}
        left, right = self.watermarked(inputs).values()
        if "between" in on:  # the intervals are on the left
            left, right = right, left
        joined: DataFrame = _ADJOIN.join(left, right, memory=self.memory_bytes, **on)
        return joined


class JoinAll(Join):
    """A chain of streams."""

    name: ClassVar[str] = "adjoin.join_all"
    function: ClassVar[str] = "join_all"
    settings: ClassVar[str] = "`adjoin.join_all(inputs, on=[...], memory=...)`; heap of 2 GB"

    def join(self, inputs: Inputs) -> DataFrame:
        """Join; whatever prefix the columns of the result have, their last part is unique."""
        joined: DataFrame = _ADJOIN.join_all(dict(inputs), on=list(CHAIN_ON), memory=self.memory_bytes)
        found = {
            column: next(name for name in joined.columns if name.endswith(column))
            for column in self.shape.output
        }
        return joined.select(*(functions.col(f"`{name}`").alias(column) for column, name in found.items()))
