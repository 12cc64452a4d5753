"""A driver that applies a change stream with a sequence, and dies before one of its changes to the master.

Arguments: the directory of the test, and before which step that alters a file, 0 for none. The driver, which
commits, counts them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from adjoin import etl
from adjoin.master import files
from adjoin.spark import apply as apply_module
from tests.spark.programs import kill_group, session

SCHEMA = "key long, value string, _op string, changed timestamp, tie long"
_change = files.change


def run(work: Path, stop_at: int) -> None:
    steps = 0

    def change(operation: str, path: str, action: Callable[[], Any]) -> Any:
        nonlocal steps
        steps += 1
        if steps == stop_at:
            kill_group()
        return _change(operation, path, action)

    body = etl.apply_changes(work / "master", "feed", sequence="changed", order_by="tie")

    def write(batch: DataFrame, batch_id: int) -> None:
        # Every other micro-batch is applied by executors.
        apply_module._FEW_ROWS = 50_000 * (batch_id % 2)
        apply_module._ROWS_PER_TASK = 40
        body(batch, batch_id)

    with session() as spark:
        files.change = change
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(work / "in"))
        writer = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(work / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
