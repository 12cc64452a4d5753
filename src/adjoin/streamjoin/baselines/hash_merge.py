"""Hash-merge join: pairs of hash partitions leave together, and are merged on disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from adjoin.keys.predicate import Distance
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import Leaving, Shortage
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.spec import LEFT, RIGHT
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.baselines.hashed import (
    MERGE_MEMORY,
    checked_fan_in,
    fan_in_of,
    hashed_inputs,
    merge_blocks,
)
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.baselines.run_merging import RunMerging
from adjoin.streamjoin.twoway.pair_join import PairJoin

_BALANCE = 1 / 16
"""The share of the tuples in memory by which one input may have more than the other."""


class HashMergeJoin(SpillingJoin):
    """Joins two streams in bounded memory; both sides of a partition leave.

    How it works: see `SpillingJoin` for the phases. When memory is full, a hash partition of both inputs is
    written: the largest one that leaves the inputs balanced. While nothing arrives, sorted runs of a
    partition are merged, and joined in the process.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        fan_in: Maximum number of runs merged at a time (F); by default 10, fewer in a small memory.
        max_outer: Refused: the size of a merge is its fan-in.
        within, between: Refused: this join matches equal keys only.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns to keep in the results, whose order does not change; all by default.
        block_bytes, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Reference:
        Mokbel, Lu, Aref: Hash-Merge Join: A Non-blocking Join Algorithm for Producing Fast and Early Join
        Results, ICDE 2004.

    Departures:
        - Which tuples have been joined is known from their moments as well as from their runs, so it does not
          matter whether both sides of a partition could be written.
        - A key with more tuples than a merge can hold is joined by reading ahead.
        - The cleanup phase is that of `DINER`.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        fan_in: int | None = None,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        block_bytes: int | None = None,
        max_outer: int | None = None,
        least_outer: int | None = None,
        max_new: int = 0,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        fan_in = checked_fan_in(fan_in, max_outer)
        name = type(self).__name__
        spec = hashed_inputs(name, left, right, on, within, between, suffix, columns)
        most, fewest = merge_blocks(fan_in)
        fewest = fewest if least_outer is None else least_outer
        options = SpillOptions(memory, block_bytes, most, fewest, max_new, wait_seconds, spill, clock, disk)
        storage = Storage(spec, options, MERGE_MEMORY)
        pairs = PairJoin(spec, storage)
        policy = BalancedPair(Partitions.of_memory(storage.sizes.slots))
        reactive = RunMerging(pairs, policy.partitions, fan_in_of(storage, fan_in), storage.sizes.task_bytes)
        super().__init__(spec, storage, pairs, policy, reactive)


class BalancedPair(PartitionPolicy):
    """Flushes a partition of both sides: the largest of those after which memory is balanced."""

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """All its tuples, about a block at a time."""
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
