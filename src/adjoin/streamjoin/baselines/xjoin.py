"""XJoin: hash partitions, the largest of which leaves."""

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
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.baselines.hashed import hashed_inputs
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.baselines.probing import Probing
from adjoin.streamjoin.twoway.pair_join import PairJoin


class XJoin(SpillingJoin):
    """Joins two streams in bounded memory; the largest partitions leave.

    How it works: see `SpillingJoin` for the phases. When memory is full, the largest hash partition of either
    input is written. While nothing arrives, a partition on disk is joined with the tuples of that partition
    that the other input has in memory.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        within, between: Refused: this join matches equal keys only.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns to keep in the results, whose order does not change; all by default.
        block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Reference:
        Urhan, Franklin: XJoin: A Reactively-Scheduled Pipelined Join Operator, IEEE Data Engineering Bulletin
        23(2), 2000.

    Departures:
        - The partition that is joined next is the one with the most expected pairs per block, instead of one
          above a threshold.
        - The cleanup phase is that of `DINER`.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        block_bytes: int | None = None,
        max_outer: int | None = 2,
        least_outer: int | None = None,
        max_new: int = 0,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        name = type(self).__name__
        spec = hashed_inputs(name, left, right, on, within, between, suffix, columns)
        options = SpillOptions(
            memory, block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk
        )
        storage = Storage(spec, options)
        pairs = PairJoin(spec, storage)
        policy = LargestPartition(Partitions.of_memory(storage.sizes.slots))
        super().__init__(spec, storage, pairs, policy, Probing(pairs, policy, storage.sizes.task_bytes))


class LargestPartition(PartitionPolicy):
    """Flushes the largest partition of either side."""

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """All its tuples, about a block at a time."""
        tuples = self.tuples
        if shortage.preferred is not None:
            tuples = tuples * (np.arange(2) == shortage.preferred)[:, None]
        side, partition = divmod(int(np.argmax(tuples)), self.partitions.count)
        yield from self.all_of(shortage, side, partition)
