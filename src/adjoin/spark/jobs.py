"""Run work on executors and collect the results."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from adjoin.memory.heap import return_freed_memory
from adjoin.spark.reason import reason
from adjoin.spark.types import from_spark

_RESULT = "result binary"


def run(df: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> list[Any]:
    """What the work yields on all partitions: few and small objects that fit into the driver.

    If a partition is attempted several times, Spark takes the result of one attempt.

    Raises:
        AdjoinError: As raised on the executor.
    """

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return_freed_memory()
        for result in work(batches):
            yield pa.record_batch({"result": pa.array([pickle.dumps(result)], pa.binary())})

    with as_raised():
        return [pickle.loads(row.result) for row in df.mapInArrow(packed, _RESULT).collect()]


def fetch(df: DataFrame, schema: pa.Schema) -> pa.Table:
    """All rows, which must fit into the driver, in the types of a master with this schema.

    Raises:
        AdjoinError: As raised on an executor.
    """
    with as_raised():
        table = df.toArrow()
    nothing = pa.record_batch([pa.nulls(0, field.type) for field in table.schema], names=table.column_names)
    batches = [from_spark(batch, schema) for batch in (nothing, *table.to_batches())]
    return pa.Table.from_batches(batches)


@contextmanager
def as_raised() -> Iterator[None]:
    """Raise the executor's error instead of Spark's report of it."""
    try:
        yield
    except PySparkException as error:
        raised = reason(error)
        if raised is None:
            raise
        raise raised from error


@contextmanager
def kept(df: DataFrame) -> Iterator[None]:
    """Cache the rows, so that they are computed once however often they are used."""
    if df.storageLevel != StorageLevel.NONE:
        yield
        return
    df.persist()
    try:
        yield
    finally:
        df.unpersist()
