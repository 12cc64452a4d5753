"""Jobs on executors that fail after their work is done."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from adjoin.errors import StorageError
from adjoin.spark import jobs

Run = Callable[[DataFrame, Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]], list[Any]]


def failing_after(message: str, check: Callable[[Any], None] = lambda _: None) -> Run:
    """A `jobs.run` whose tasks raise a StorageError once they have a result, which is checked first."""

    def run(df: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> list[Any]:
        def fail_at_the_end(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
            for result in work(batches):
                check(result)
                raise StorageError(message)
            yield

        return jobs.run(df, fail_at_the_end)

    return run
