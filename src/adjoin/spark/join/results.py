"""Results on their way from the files of operators back to Spark."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from adjoin.errors import StorageError
from adjoin.spark.join.bucket_operator import results_in
from adjoin.spark.metrics.metrics import report_row
from adjoin.spark.types import to_spark


@dataclass(frozen=True)
class ResultReader:
    """What a Spark task does with the tickets of the buckets it has just joined: it reads their results.

    It runs in the task that joined them, so the files are on its host.

    Attributes:
        schema: Exactly what Spark takes back, the report last.
    """

    schema: pa.Schema

    def read(self, tickets: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function that Spark runs on every partition."""
        report = self.schema.field(-1)
        for batch in tickets:
            for path, facts in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for results in self._results(path):
                    with_report = results.append_column(report, pa.nulls(results.num_rows, report.type))
                    yield to_spark(with_report, self.schema)
                yield report_row(self.schema, dict(facts))

    @staticmethod
    def _results(path: str | None) -> Iterator[pa.RecordBatch]:
        if path is None:
            return
        try:
            yield from results_in(path)
        except FileNotFoundError as error:
            raise StorageError(f"{path} is gone: another attempt at this micro-batch has begun") from error
