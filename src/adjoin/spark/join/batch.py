"""Joins of batch DataFrames: every bucket is joined within one task."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from adjoin.memory.heap import return_freed_memory
from adjoin.spark.join.options import SIDES, JoinOptions
from adjoin.spark.join.packs import unpacked
from adjoin.spark.types import to_spark


@dataclass(frozen=True)
class BatchJoin:
    """What a Spark task does with the packs of a bucket.

    Attributes:
        options: The join.
        schema: Exactly what Spark takes back, the report last.
    """

    options: JoinOptions
    schema: pa.Schema

    def join(self, packs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function that Spark runs on every partition."""
        return_freed_memory()
        report = self.schema.field(-1)
        with self.options.operator() as operator:
            for results in operator.run(self._arrivals(packs)):
                with_report = results.append_column(report, pa.nulls(results.num_rows, report.type))
                yield to_spark(with_report, self.schema)

    def _arrivals(self, packs: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in packs:
            sides, rows, data = (batch.column(name) for name in ("side", "rows", "data"))
            for side, count, value in zip(sides.to_pylist(), rows.to_pylist(), data, strict=True):
                if count:
                    yield SIDES[side], unpacked(value.as_buffer(), self.options.schemas[side])
