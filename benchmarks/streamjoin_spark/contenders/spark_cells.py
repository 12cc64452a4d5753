"""Band and range joins as they are written on Spark: an equality join of cells, with a filter."""

from typing import ClassVar

from pyspark.sql import DataFrame, functions

from benchmarks.spark.contenders.contender import PlanRule
from benchmarks.streamjoin_spark.contenders.contender import Contender, Inputs
from benchmarks.streamjoin_spark.contenders.spark_join import RocksDB4, SparkJoin
from benchmarks.streamjoin_spark.shapes import WITHIN

_PRICE_CELL = 4 * WITHIN
_SPAN_CELL = 2_000


class Cells(Contender):
    """One side is copied into all cells that its partners may be in, the other is in one cell."""

    name: ClassVar[str] = "spark cells"
    settings: ClassVar[str] = (
        f"offers and intervals are exploded into cells of {_PRICE_CELL:g} and {_SPAN_CELL:,}, joined by cell "
        "and filtered; else as `spark rocksdb v4`"
    )
    plan: ClassVar[PlanRule] = SparkJoin.plan
    conf: ClassVar[dict[str, str]] = RocksDB4.conf

    def join(self, inputs: Inputs) -> DataFrame:
        """Cut, join, filter."""
        cut = self._prices if "offers" in inputs else self._spans
        (first, left), (second, right) = cut(self.watermarked(inputs)).items()
        condition = f"{first}.cell = {second}.cell AND {self.shape.condition}"
        return left.alias(first).join(right.alias(second), functions.expr(condition))

    @staticmethod
    def _prices(inputs: Inputs) -> dict[str, DataFrame]:
        cells = (
            f"sequence(floor((price - {WITHIN}) / {_PRICE_CELL}), floor((price + {WITHIN}) / {_PRICE_CELL}))"
        )
        return {
            "offers": inputs["offers"].withColumn("cell", functions.explode(functions.expr(cells))),
            "bids": inputs["bids"].withColumn("cell", functions.expr(f"floor(price / {_PRICE_CELL})")),
        }

    @staticmethod
    def _spans(inputs: Inputs) -> dict[str, DataFrame]:
        cells = f"sequence(lower div {_SPAN_CELL}, upper div {_SPAN_CELL})"
        return {
            "points": inputs["points"].withColumn("cell", functions.expr(f"position div {_SPAN_CELL}")),
            "spans": inputs["spans"].withColumn("cell", functions.explode(functions.expr(cells))),
        }
