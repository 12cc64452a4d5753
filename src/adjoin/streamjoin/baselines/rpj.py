"""RPJ: tuples leave whose partition is least likely to come from the other input."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.stamps import Stamps
from adjoin.streamjoin.baselines.hashed import MergingJoin
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.baselines.probing import Probing
from adjoin.streamjoin.baselines.run_merging import Merging
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.pair_join import DiskJoin
from adjoin.streamjoin.memory.flush_policy import FlushPolicy, Leaving, Shortage
from adjoin.streamjoin.memory.tuples import Keys


class RPJ(MergingJoin):
    """Joins two streams in bounded memory; it keeps what the arrivals of the other input will ask for.

    How it works: see `SpillingJoin` for the phases. How likely the next row is to come from each input and
    to lie in each partition is estimated from the arrivals. When memory is full, tuples leave that the least
    likely rows would match. While nothing arrives, that task is done which promises most pairs for each
    block: a partition on disk with memory, as in `XJoin`, or a merge of runs, as in `HashMergeJoin`.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        fan_in: Most runs that are merged at a time (F); by default 10, fewer in a small memory.
        **options: Those of `TwoInputJoin`, but for `within`, `between` and `max_outer`.

    Reference:
        Tao, Yiu, Papadias, Hadjieleftheriou, Mamoulis: RPJ: Producing Fast Join Results on Streams through
        Rate-based Optimization, SIGMOD 2005.

    Departures:
        - A partition leaves a block at a time, and none that has less than half a block: unlikely ones would
          be written a few tuples at a time.
        - Arrivals are forgotten slowly, by half in about the time in which memory fills anew.
        - A task's promise is the number of pairs that it would see, with the same chance of a match each.
        - What is left at the end is joined as in `DINER`.
    """

    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        policy = LeastLikely(Partitions.of_memory(self._sizes.slots))
        return policy, BestTask(self._disk_join, self._stamps, policy, self._fan_in, self._sizes.task_bytes)


class LeastLikely(PartitionPolicy):
    """Flushes tuples of the partition that the other side is least likely to send next.

    Attributes:
        arrivals: Recent arrivals of each side, by partition.
    """

    def __init__(self, partitions: Partitions) -> None:
        super().__init__(partitions)
        self.arrivals: Array = np.zeros((2, partitions.count))

    def added(self, side: int, keys: Keys) -> None:
        """Count them, in memory and among the arrivals."""
        super().added(side, keys)
        low, _ = keys[0]
        held = int(self.tuples.sum())
        self.arrivals *= 0.5 ** (len(low) / max(held, 1))
        self.arrivals[side] += self.count(low)

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """A block of that partition; half a block at least, unless no partition has so many tuples."""
        there = self.tuples.copy()
        if shortage.preferred is not None:
            there[1 - shortage.preferred] = 0
        worth = np.minimum(np.array(shortage.rows)[:, None] // 2, there.max())
        chances = np.where(there >= np.maximum(worth, 1), self.arrivals[::-1], np.inf)
        side, partition = divmod(int(np.argmin(chances)), self.partitions.count)
        bounds = self.partitions.bounds(partition)
        yield Leaving(side, shortage.inputs[side].index.between(*bounds, shortage.rows[side]))

    def to_json(self) -> dict[str, Any]:
        """What must be known to go on."""
        return {**super().to_json(), "arrivals": self.arrivals.tolist()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        super().restore(saved)
        self.arrivals[:] = saved["arrivals"]


class BestTask(Reactive):
    """Probes or merges, whichever promises more pairs for each block."""

    def __init__(
        self, disk: DiskJoin, stamps: Stamps, policy: PartitionPolicy, fan_in: int, notes_bytes: int
    ) -> None:
        self._probing = Probing(disk, stamps, policy, notes_bytes // 2)
        self._merging = Merging(disk, policy.partitions, fan_in, notes_bytes // 2, self._probing)

    @property
    def is_interrupted(self) -> bool:  # type: ignore[override]
        """Whether either was."""
        return self._probing.is_interrupted or self._merging.is_interrupted

    def arrived(self, side: int, low: Array) -> None:
        """Only what is in memory is probed."""
        self._probing.arrived(side, low)

    def flushed(self, side: int, blocks: range) -> None:
        """Both must know."""
        self._probing.flushed(side, blocks)
        self._merging.flushed(side, blocks)

    def has_more(self) -> bool:
        """Whether either has."""
        return self._probing.has_more() or self._merging.has_more()

    def work(self) -> Iterator[pa.RecordBatch]:
        """The task that promises most."""
        if self._probing.is_interrupted:
            yield from self._probing.work()
        elif self._merging.is_interrupted or self._merges():
            yield from self._merging.work()
            self._probing.recount()
        else:
            yield from self._probing.work()

    def _merges(self) -> bool:
        _, blocks_squared = self._merging.best()
        rows_of_a_block = self._probing.on_disk.sum() / max(self._probing.blocks.sum(), 1)
        return blocks_squared * rows_of_a_block**2 > self._probing.best_rate()

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array | None:
        """Those that were merged."""
        return self._merging.met_blocks(side, blocks, other)

    def met_tuples(
        self, side: int, low: Array, arrived: Array, left: Array, other_left: Array
    ) -> Array | None:
        """Those that were probed."""
        return self._probing.met_tuples(side, low, arrived, left, other_left)

    def to_json(self) -> dict[str, Any]:
        """What must be known to go on."""
        return {"probing": self._probing.to_json(), "merging": self._merging.to_json()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        self._probing.restore(saved["probing"])
        self._merging.restore(saved["merging"])

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself."""
        self._merging.check_invariants()
        if not self._merging.is_interrupted:  # until then tuples are in two runs
            self._probing.check_invariants()
