"""A driver on a standalone cluster: joins, builds, applies, sees workers and an executor die, and is killed.

Arguments: the directory of the test, the address of the cluster.
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import adjoin
from adjoin import EnrichProgress, Master
from tests.spark import faulty_daemon
from tests.spark.faulty_daemon import Fault
from tests.spark.goods import products, read_batches
from tests.spark.programs import kill_group, session, write_json
from tests.spark.scenarios import Scenarios

ROWS = 3_000
LOST_AT = 1
"""The micro-batch in which an executor is killed."""
FAULTS = [
    Fault("room", 0, "full"),
    Fault("input", 1, "fail"),
    Fault("recorded", 2, "worker"),
    Fault("input", 3, "worker"),
    Fault("last row", 4, "worker"),
    Fault("last row", 5, "fail"),
]
COLD_AT = 3
"""The micro-batch in which a worker is killed while it holds its page file."""


class ClusterScenarios(Scenarios):
    def stream(self, name: str, source: str = "in") -> None:
        def write(df: DataFrame, batch_id: int) -> None:
            df.write.mode("overwrite").parquet(str(self.work / name / f"{batch_id:05d}"))

        result = adjoin.enrich(read_batches(self.spark, self.work / source), self.work / "master", on="id")
        writer = result.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.work / f"{name} checkpoint")).start()
        query.awaitTermination()
        progress = [EnrichProgress.of(one)[0] for one in query.recentProgress]
        self.report[name] = [[[task.rows_in, task.pages_read] for task in one.tasks] for one in progress]

    def with_faults(self, name: str, source: str, faults: list[Fault]) -> None:
        faulty_daemon.plan(self.work / "plan", *faults)
        self.stream(name, source)
        self.report[f"{name} faults"] = faulty_daemon.happened(self.work / "plan")

    def leave_a_query(self) -> None:
        """A query that is still running when the driver dies; only the executors own its page files."""
        result = adjoin.enrich(read_batches(self.spark, self.work / "in"), self.work / "master", on="id")
        writer = result.writeStream.format("noop").option("checkpointLocation", str(self.work / "left"))
        writer.start().processAllAvailable()
        self.report["page_files"] = len(list((self.work / "pages").rglob("*.arena")))

    def count_tasks(self) -> None:
        """How many tasks each executor has done so far."""
        listed = self.spark.sparkContext._jsc.sc().statusStore().executorList(True)
        executors = [listed.apply(number) for number in range(listed.size())]
        self.report["tasks"] = {one.id(): one.totalTasks() for one in executors if one.id() != "driver"}

    def build_and_apply(self) -> None:
        df = self.spark.createDataFrame(products(ROWS)).repartition(3)
        path = self.work / "built"
        built = Master.build(df, key="id", path=path, page_bytes=4096)
        changes = products(ROWS // 2, step=3, note="new").append_column(
            "_op", pa.array(["upsert", "delete"] * (ROWS // 4))
        )
        built.apply(self.spark.createDataFrame(changes).repartition(2), txn="once")
        Master.open(path).apply(self.spark.createDataFrame(changes), txn="once")
        static = self.spark.read.parquet(str(self.work / "in"))
        adjoin.enrich(static, path, on="id", how="left").write.parquet(str(self.work / "applied"))
        adjoin.enrich(static, path, on="id", version=1).write.parquet(str(self.work / "first"))


def run(spark: SparkSession, work: Path) -> None:
    scenarios = ClusterScenarios(spark, work)
    scenarios.batch()
    scenarios.stream("stream")
    scenarios.count_tasks()
    scenarios.build_and_apply()
    scenarios.with_faults("faulty", "same", FAULTS)
    scenarios.with_faults("lost", "in", [Fault("input", LOST_AT, "executor")])
    scenarios.leave_a_query()
    write_json(work / "report.json", scenarios.report)
    kill_group()


if __name__ == "__main__":
    directory, url = Path(sys.argv[1]), sys.argv[2]
    on_executors = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        f"spark.executorEnv.{faulty_daemon.PLAN}": str(directory / "plan"),
        "spark.adjoin.arena.dir": str(directory / "pages"),
        # Both executors must be up before the first task, so that both get some.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    with session(url, **on_executors, **faulty_daemon.SETTINGS) as spark_session:
        run(spark_session, directory)
