"""The interface of a contender that runs on Spark."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql import DataFrame

from benchmarks.spark.contenders.contender import PlanRule
from benchmarks.streamjoin_spark.shapes import DELAY_SECONDS, Shape

Inputs = Mapping[str, DataFrame]


class Contender(ABC):
    """A way to join streams."""

    name: ClassVar[str]
    settings: ClassVar[str]
    plan: ClassVar[PlanRule]
    conf: ClassVar[dict[str, str]]
    driver_memory: ClassVar[str] = "8g"

    def __init__(self, shape: Shape, memory_bytes: int) -> None:
        self.shape = shape
        self.memory_bytes = memory_bytes

    @classmethod
    def missing(cls) -> str:
        """Why it cannot take part here, or nothing."""
        return ""

    @abstractmethod
    def join(self, inputs: Inputs) -> DataFrame:
        """All columns of the shape's output, in any order."""

    def watermarked(self, inputs: Inputs) -> dict[str, DataFrame]:
        """The inputs, with watermarks where the shape has event times."""
        return {
            name: frame.withWatermark(self.shape.times[name], f"{DELAY_SECONDS} seconds")
            if name in self.shape.times
            else frame
            for name, frame in inputs.items()
        }
