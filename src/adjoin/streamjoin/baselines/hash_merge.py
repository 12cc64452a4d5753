"""Hash-merge join: pairs of hash partitions leave together, and are merged on disk."""

from collections.abc import Iterator

import numpy as np

from adjoin.streamjoin.base.condition import LEFT, RIGHT
from adjoin.streamjoin.baselines.hashed import MergingJoin
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.baselines.run_merging import Merging
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.memory.flush_policy import FlushPolicy, Leaving, Shortage

_BALANCE = 1 / 16
"""By so much of the tuples in memory one input may have more than the other."""


class HashMergeJoin(MergingJoin):
    """Joins two streams in bounded memory; both sides of a partition make room.

    How it works: see `SpillingJoin` for the phases. When memory is full, a partition of both inputs is
    written, a large one that leaves the inputs balanced. While nothing arrives, sorted runs of a partition
    are merged, and joined on the way.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        fan_in: Most runs that are merged at a time (F); by default 10, fewer in a small memory.
        **options: Those of `TwoInputJoin`, but for `within`, `between` and `max_outer`.

    Reference:
        Mokbel, Lu, Aref: Hash-Merge Join: A Non-blocking Join Algorithm for Producing Fast and Early Join
        Results, ICDE 2004.

    Departures:
        - Which tuples have met is known from their moments as well as from their runs, so that it does not
          matter whether both sides of a partition could be written.
        - A key with more tuples than a merge can hold is joined by reading ahead.
        - What is left at the end is joined as in `DINER`.
    """

    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        policy = BalancedPair(Partitions.of_memory(self._sizes.slots))
        return policy, Merging(self._disk_join, policy.partitions, self._fan_in, self._sizes.task_bytes)


class BalancedPair(PartitionPolicy):
    """Flushes a partition of both sides: the largest of those after which memory is balanced."""

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """All its tuples, about so many at a time."""
        more_left = self.tuples[LEFT] - self.tuples[RIGHT]
        imbalance = abs(more_left.sum() - more_left)
        limit = max(abs(more_left.sum()), _BALANCE * self.tuples.sum())
        total = self.tuples.sum(axis=0)
        allowed = (imbalance <= limit) & (total > 0)
        if not allowed.any():
            allowed = total > 0
        partition = int(np.argmax(np.where(allowed, total, -1)))
        for side in (LEFT, RIGHT):
            yield from self.all_of(shortage, side, partition)
