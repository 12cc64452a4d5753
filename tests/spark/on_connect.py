"""A Spark Connect client without a JVM: joins, metrics and builds go over the network.

Argument: the directory of the test.
"""

import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import EnrichListener, EnrichProgress, Master
from tests.spark.goods import products, read_batches
from tests.spark.programs import until, write_json
from tests.spark.scenarios import Scenarios

ROWS = 2_000


class ConnectScenarios(Scenarios):
    def stream(self) -> None:
        heard: list[EnrichProgress] = []
        listener = EnrichListener(heard.append)
        self.spark.streams.addListener(listener)
        stream = read_batches(self.spark, self.work / "in")
        result = adjoin.enrich(stream, self.work / "master", on="id", name="first")
        # Not routed: to find ranges Spark runs the first join twice, and Spark 4.1 counts its metrics twice.
        result = adjoin.enrich(result, self.work / "master", on="id", how="semi", route="none", name="second")
        writer = result.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.work / "stream checkpoint"))
        query = writer.start(str(self.work / "stream"))
        query.awaitTermination()
        shown = [one for progress in query.recentProgress for one in EnrichProgress.of(progress)]
        until(lambda: len(heard) >= len(shown), what="a listener that has heard everything")
        self.spark.streams.removeListener(listener)
        self.report["shown"] = [asdict(one) for one in shown]
        self.report["heard"] = [asdict(one) for one in heard]
        self.report["query"] = str(query.id)

    def foreach_batch(self) -> None:
        """The body runs on the server, in a separate Python process, and receives only plain values."""
        work = str(self.work)

        def write(df: DataFrame, batch_id: int) -> None:
            result = adjoin.enrich(df, f"{work}/master", on="id", how="anti")
            result.write.mode("overwrite").parquet(f"{work}/foreach/{batch_id:05d}")

        stream = read_batches(self.spark, self.work / "in")
        writer = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.work / "foreach checkpoint")).start()
        query.awaitTermination()

    def build_and_apply(self) -> None:
        rows = self.spark.createDataFrame(products(ROWS))
        built = Master.build(rows, key="id", path=self.work / "built", page_bytes=4096)
        changes = self.spark.createDataFrame(products(ROWS // 2, step=4, note="new")).selectExpr(
            "*", "'upsert' AS _op"
        )
        built.apply(changes, txn="once")
        static = self.spark.read.parquet(str(self.work / "in"))
        adjoin.enrich(static, self.work / "built", on="id").write.parquet(str(self.work / "applied"))

    def fail(self) -> None:
        """An error on executors reaches the client in three ways with the same line."""
        heard: list[tuple[str, adjoin.AdjoinError]] = []
        listener = EnrichListener(lambda _: None, on_error=lambda *error: heard.append(error))
        self.spark.streams.addListener(listener)
        (self.work / "file").touch()
        self.spark.conf.set("spark.adjoin.arena.dir", str(self.work / "file"))
        static = adjoin.enrich(self.spark.read.parquet(str(self.work / "in")), self.work / "master", on="id")
        stream = adjoin.enrich(read_batches(self.spark, self.work / "in"), self.work / "master", on="id")
        self.spark.conf.unset("spark.adjoin.arena.dir")
        found = []
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        for fail in (static.collect, query.awaitTermination):
            try:
                fail()
            except PySparkException as error:
                found.append(adjoin.reason(error))
        until(lambda: heard, what="a listener that has heard of the error")
        self.spark.streams.removeListener(listener)
        errors = [*found, heard[0][1]]
        self.report["reasons"] = [(type(error).__name__, str(error)) for error in errors]
        self.report["failed"] = heard[0][0] == str(query.id)

    def name_twice(self) -> None:
        stream = read_batches(self.spark, self.work / "in")
        result = adjoin.enrich(stream, self.work / "master", on="id", name="price")
        try:
            adjoin.enrich(result, self.work / "master", on="id", how="semi", name="price")
        except adjoin.OptionError as error:
            self.report["twice"] = str(error)

    def refuse(self) -> None:
        """Errors are raised before anything is sent to the server."""
        try:
            adjoin.enrich(self.spark.range(3).toDF("other"), self.work / "master", on="id")
        except adjoin.SchemaError as error:
            self.report["refusal"] = str(error)


def run(work: Path) -> None:
    warnings.simplefilter("ignore")  # what Connect says of static settings is meant for its own authors
    os.environ["SPARK_TESTING"] = "1"  # lets PySpark choose a free port
    builder = SparkSession.builder.remote("local[2]").appName("adjoin on Connect")
    spark = builder.config("spark.connect.grpc.binding.address", "127.0.0.1").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    try:
        scenarios = ConnectScenarios(spark, work)
        scenarios.batch()
        scenarios.stream()
        scenarios.foreach_batch()
        scenarios.refuse()
        scenarios.fail()
        scenarios.name_twice()
        scenarios.build_and_apply()
        write_json(work / "report.json", scenarios.report)
    finally:
        spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
