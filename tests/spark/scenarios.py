"""The scenarios that every test driver runs, wherever it runs."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import adjoin


class Scenarios:
    """Each scenario writes its rows to a directory of its name, and everything else to the report."""

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self.spark, self.work = spark, work
        self.report: dict[str, Any] = {}

    def batch(self) -> None:
        static = self.spark.read.parquet(str(self.work / "in"))
        result = adjoin.enrich(static, self.work / "master", on="id", how="left")
        result.write.parquet(str(self.work / "batch"))
