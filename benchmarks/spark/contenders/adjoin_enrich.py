"""adjoin: `enrich` with a master and default routing."""

from typing import ClassVar

from pyspark.sql import DataFrame

import adjoin
from benchmarks.spark.contenders.contender import Contender, PlanRule
from benchmarks.spark.contenders.routing import ROUTED_PLAN


class Enrich(Contender):
    """Routed by key ranges, joined by SSIJ in page memory that stays warm."""

    name: ClassVar[str] = "enrich"
    store: ClassVar[str] = "adjoin"
    settings: ClassVar[str] = (
        '`adjoin.enrich(stream, master, on="key", memory=...)`, inner, routed; memory is 5 % of the master; '
        "pages of 8 KiB, direct I/O, so none of them is in the system's page cache"
    )
    plan: ClassVar[PlanRule] = PlanRule(has=ROUTED_PLAN, lacks=("Join",))

    def join(self, stream: DataFrame) -> DataFrame:
        """Enrich."""
        return adjoin.enrich(
            stream,
            str(self.setup.master),
            on="key",
            memory=self.setup.memory_bytes,
            partitions=self.setup.partitions,
        )

    def held_bytes(self) -> int | None:
        """The budget, including page index and all working memory."""
        return self.setup.memory_bytes
