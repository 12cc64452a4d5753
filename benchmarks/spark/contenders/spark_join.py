"""Spark's own stream-static join: the master is scanned in every micro-batch."""

from typing import ClassVar

from pyspark.sql import DataFrame, functions
from pyspark.storagelevel import StorageLevel

from benchmarks.spark.contenders.contender import Contender, PlanRule, Setup
from benchmarks.spark.session import CORES

_STORAGE = StorageLevel.MEMORY_AND_DISK_DESER
_MERGE_PARTITIONS = 16


class SparkBroadcast(Contender):
    """The micro-batch is broadcast to all tasks, and each of them scans its part of the master."""

    name: ClassVar[str] = "spark broadcast stream"
    store: ClassVar[str] = "parquet"
    settings: ClassVar[str] = (
        "`broadcast(stream).join(master, 'key')`, master read from Parquet as Spark writes it by default "
        "(sorted, snappy), in the system's page cache"
    )
    plan: ClassVar[PlanRule] = PlanRule(
        has=("BroadcastHashJoin", "BuildLeft"), lacks=("SortMergeJoin", "InMemoryTableScan")
    )

    def join(self, stream: DataFrame) -> DataFrame:
        """Join with a hint on the stream."""
        return functions.broadcast(stream).join(self._master(), "key")

    def _master(self) -> DataFrame:
        return self.setup.spark.read.parquet(str(self.setup.master))


class SparkMerge(SparkBroadcast):
    """Both sides are shuffled and sorted, including the master."""

    name: ClassVar[str] = "spark sort-merge"
    settings: ClassVar[str] = (
        f"`stream.hint('merge').join(master, 'key')`, {_MERGE_PARTITIONS} shuffle partitions"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=("SortMergeJoin",), lacks=("BroadcastHashJoin",))

    def join(self, stream: DataFrame) -> DataFrame:
        """Join with a hint for the plan."""
        self.setup.spark.conf.set("spark.sql.shuffle.partitions", _MERGE_PARTITIONS)
        return stream.hint("merge").join(self._master(), "key")

    def close(self) -> None:
        """Restore the session's settings."""
        self.setup.spark.conf.set("spark.sql.shuffle.partitions", CORES)


class SparkCached(SparkBroadcast):
    """The master is in Spark's memory; every micro-batch still scans it and never sees its updates."""

    name: ClassVar[str] = "spark cached master"
    settings: ClassVar[str] = (
        "`broadcast(stream).join(master.persist(), 'key')`, storage level MEMORY_AND_DISK_DESER (default), "
        "heap of 8 GB, filled before the stream starts; the table shows its memory"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=("BroadcastHashJoin", "BuildLeft", "InMemoryTableScan"))
    driver_memory: ClassVar[str] = "8g"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._cached = self._master().persist(_STORAGE)
        self._cached.count()

    def join(self, stream: DataFrame) -> DataFrame:
        """Join with the persisted master."""
        return functions.broadcast(stream).join(self._cached, "key")

    def held_bytes(self) -> int | None:
        """The memory of Spark's storage, by its own account."""
        kept = self.setup.spark.sparkContext._jsc.sc().getRDDStorageInfo()
        spilled = sum(each.diskSize() for each in kept)
        if spilled:
            raise AssertionError(f"{spilled} bytes of the cached master are on disk; give more driver memory")
        return sum(each.memSize() for each in kept)

    def close(self) -> None:
        """Free the storage."""
        self._cached.unpersist(blocking=True)
