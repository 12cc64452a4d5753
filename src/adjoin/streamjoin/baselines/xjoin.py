"""XJoin: hash partitions, the largest of which leaves."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.streamjoin.base.spec import On
from adjoin.streamjoin.baselines.hashed import HashedJoin
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.baselines.probing import Probing
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.memory.flush_policy import FlushPolicy, Leaving, Shortage


class XJoin(HashedJoin):
    """Joins two streams in bounded memory; the larger partitions make room.

    How it works: see `SpillingJoin` for the phases. When memory is full, the largest hash partition of either
    input is written. While nothing arrives, a partition on disk is joined with what the other input has of it
    in memory.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        **options: Those of `TwoInputJoin`, but for `within` and `between`.

    Reference:
        Urhan, Franklin: XJoin: A Reactively-Scheduled Pipelined Join Operator, IEEE Data Engineering Bulletin
        23(2), 2000.

    Departures:
        - The partition that is joined next is the one with most pairs to be expected for each block, instead
          of one above a threshold.
        - What is left at the end is joined as in `DINER`.
    """

    def __init__(
        self, left: pa.Schema, right: pa.Schema, on: On, memory: int | str = "64MB", **options: Any
    ) -> None:
        super().__init__(left, right, on, memory, **{"max_outer": 2, "max_new": 0, **options})

    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        policy = LargestPartition(Partitions.of_memory(self._sizes.slots))
        return policy, Probing(self._disk_join, self._stamps, policy, self._sizes.task_bytes)


class LargestPartition(PartitionPolicy):
    """Flushes the largest partition of either side."""

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """All its tuples, about so many at a time."""
        tuples = self.tuples
        if shortage.preferred is not None:
            tuples = tuples * (np.arange(2) == shortage.preferred)[:, None]
        side, partition = divmod(int(np.argmax(tuples)), self.partitions.count)
        yield from self.all_of(shortage, side, partition)
