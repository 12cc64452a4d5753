"""A driver whose tasks fail once after they have written everything; Spark retries them.

Argument: the directory of the test.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from adjoin import Master
from adjoin.spark import apply as apply_module
from adjoin.spark import build as build_module
from adjoin.spark import jobs
from tests.spark.programs import session, write_json

ROWS = 4_000


def table() -> pa.Table:
    return pa.table({"id": pa.array(range(ROWS)), "name": [f"product {number}" for number in range(ROWS)]})


def changed() -> pa.Table:
    ids = range(0, 2 * ROWS, 2)
    return pa.table({"_op": ["upsert"] * ROWS, "id": pa.array(ids), "name": ["new"] * ROWS})


def fail_once(directory: Path) -> Callable[..., list[Any]]:
    """Stands in for `jobs.run`: the first attempt at each partition fails, one of them killing its worker."""

    def run(df: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> list[Any]:
        def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
            results = list(work(batches))
            context = TaskContext.get()
            assert context is not None
            flag = directory / str(context.partitionId())
            if not flag.exists():
                flag.touch()
                if context.partitionId() == 1:
                    os._exit(1)
                raise RuntimeError("as planned")
            yield from results

        return jobs.run(df, attempt)

    return run


def main(spark: SparkSession, work: Path) -> None:
    (work / "building").mkdir()
    (work / "applying").mkdir()
    for module, name in ((build_module, "building"), (apply_module, "applying")):
        vars(module).update(_ROWS_PER_TASK=1_500, _FEW_ROWS=0, run=fail_once(work / name))
    master = Master.build(
        spark.createDataFrame(table()), key="id", path=work / "master", page_bytes=4096, filter_bits=8
    )
    master.apply(spark.createDataFrame(changed()), ("changes", 0))
    failed = {name: len(list((work / name).iterdir())) for name in ("building", "applying")}
    write_json(work / "report.json", failed)


if __name__ == "__main__":
    with session() as spark_session:
        main(spark_session, Path(sys.argv[1]))
