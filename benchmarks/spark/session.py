"""One Spark application: two cores, local ports only, nothing shared with the next one."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from adjoin.java import ensure_java

CORES = 2


def start(scratch: Path, driver_memory: str, event_log: Path | None) -> SparkSession:
    """A session with all its files in `scratch`."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": driver_memory,
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if event_log is not None:
        event_log.mkdir()
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": event_log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
        }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("adjoin benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
