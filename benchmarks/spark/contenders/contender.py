"""The interface of a contender."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from benchmarks.engine import workload
from benchmarks.spark.datasets import SALES_SCHEMA

MASTER_COLUMNS = tuple(name for name in workload.SCHEMA.names if name != "key")
OUTPUT_COLUMNS = (*SALES_SCHEMA.names, *MASTER_COLUMNS)
STREAM_TYPES = "key long, sale long, amount double"
OUTPUT_TYPES = f"{STREAM_TYPES}, surrogate long, price double, text string"


@dataclass(frozen=True)
class Setup:
    """What a contender is given."""

    spark: SparkSession
    master: Path
    memory_bytes: int
    partitions: int


@dataclass(frozen=True)
class PlanRule:
    """What the plan of a micro-batch must and must not contain."""

    has: tuple[str, ...]
    lacks: tuple[str, ...] = field(default=())


class Contender(ABC):
    """A way to join a stream of sales with the master."""

    name: ClassVar[str]
    store: ClassVar[str]  # the form of the master it reads; empty if it reads none
    settings: ClassVar[str]
    plan: ClassVar[PlanRule]
    driver_memory: ClassVar[str] = "4g"
    joins: ClassVar[bool] = True  # an identity has constants in place of the master's columns

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def join(self, stream: DataFrame) -> DataFrame:
        """The stream's columns, then the master's without the key."""

    def held_bytes(self) -> int | None:
        """Memory that holds rows of the master between micro-batches, where it is known."""
        return None

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Release what it holds."""
