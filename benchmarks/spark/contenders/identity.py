"""No join at all: the cost of the way through Python, with output as wide as a join's."""

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.engine import workload
from benchmarks.spark.contenders.contender import MASTER_COLUMNS, OUTPUT_TYPES, Contender, PlanRule
from benchmarks.spark.contenders.routing import ROUTED_PLAN, routed

CONSTANTS = {"surrogate": 1, "price": 0.5, "text": "x" * workload.TEXT_BYTES}


def widen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append constants in place of the master's columns."""
    for batch in batches:
        wide = batch
        for name in MASTER_COLUMNS:
            kind = workload.SCHEMA.field(name).type
            wide = wide.append_column(name, pa.repeat(pa.scalar(CONSTANTS[name], type=kind), batch.num_rows))
        yield wide


class Identity(Contender):
    """The source's partitions, unchanged."""

    name: ClassVar[str] = "identity"
    store: ClassVar[str] = ""
    settings: ClassVar[str] = (
        "`mapInArrow` that appends constants as wide as the master's columns; no shuffle"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=("MapInArrow",), lacks=("Exchange", "Join"))
    joins: ClassVar[bool] = False

    def join(self, stream: DataFrame) -> DataFrame:
        """Widen."""
        return stream.mapInArrow(widen, OUTPUT_TYPES)


class RoutedIdentity(Identity):
    """The same after the routing of `enrich`."""

    name: ClassVar[str] = "identity routed"
    settings: ClassVar[str] = (
        "`identity` after the routing of `enrich`: "
        "`repartitionByRange(n, xxhash64(page group), key, xxhash64(all columns))`"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=ROUTED_PLAN, lacks=("Join",))

    def join(self, stream: DataFrame) -> DataFrame:
        """Route, then widen."""
        return super().join(routed(stream, self.setup.partitions))
