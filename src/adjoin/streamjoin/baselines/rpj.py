"""RPJ: the tuples leave whose partition is least likely to arrive from the other input."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.keys.predicate import Distance
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import Leaving, ReactiveWork, Shortage
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.baselines.hashed import (
    MERGE_MEMORY,
    checked_fan_in,
    fan_in_of,
    hashed_inputs,
    merge_blocks,
)
from adjoin.streamjoin.baselines.partitions import PartitionPolicy, Partitions
from adjoin.streamjoin.baselines.probing import Probing
from adjoin.streamjoin.baselines.run_merging import RunMerging
from adjoin.streamjoin.memory.tuples import KeyIntervals
from adjoin.streamjoin.twoway.pair_join import PairJoin


class RPJ(SpillingJoin):
    """Joins two streams in bounded memory; it keeps the tuples that arrivals are most likely to match.

    How it works: see `SpillingJoin` for the phases. The probability that the next row belongs to an input and
    a partition is estimated from the arrivals. When memory is full, the tuples leave that the least likely
    rows would match. While nothing arrives, the task is done that promises the most pairs per block: joining
    a partition on disk with memory, as in `XJoin`, or merging runs, as in `HashMergeJoin`.

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
        Tao, Yiu, Papadias, Hadjieleftheriou, Mamoulis: RPJ: Producing Fast Join Results on Streams through
        Rate-based Optimization, SIGMOD 2005.

    Departures:
        - A partition leaves a block at a time, and only if it has at least half a block: otherwise unlikely
          ones would be written a few tuples at a time.
        - Arrivals fade: they lose half their weight in about the time in which memory fills again.
        - What a task promises is the number of pairs that it would compare, each equally likely to match.
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
        policy = LeastLikely(Partitions.of_memory(storage.sizes.slots))
        reactive = BestTask(pairs, policy, fan_in_of(storage, fan_in), storage.sizes.task_bytes)
        super().__init__(spec, storage, pairs, policy, reactive)


class LeastLikely(PartitionPolicy):
    """Flushes tuples of the partition that the other side is least likely to send next.

    Attributes:
        arrivals: Recent arrivals of each side, by partition.
    """

    def __init__(self, partitions: Partitions) -> None:
        super().__init__(partitions)
        self.arrivals: Array = np.zeros((2, partitions.count))

    def added(self, side: int, keys: KeyIntervals) -> None:
        """Count these tuples, in memory and among the arrivals."""
        super().added(side, keys)
        low, _ = keys[0]
        held = int(self.tuples.sum())
        self.arrivals *= 0.5 ** (len(low) / max(held, 1))
        self.arrivals[side] += self.count(low)

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        """A block of that partition; at least half a block, unless no partition has that many tuples."""
        there = self.tuples.copy()
        if shortage.preferred is not None:
            there[1 - shortage.preferred] = 0
        worth = np.minimum(np.array(shortage.rows)[:, None] // 2, there.max())
        chances = np.where(there >= np.maximum(worth, 1), self.arrivals[::-1], np.inf)
        side, partition = divmod(int(np.argmin(chances)), self.partitions.count)
        bounds = self.partitions.bounds(partition)
        yield Leaving(side, shortage.inputs[side].index.between(*bounds, shortage.rows[side]))

    def to_json(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return {**super().to_json(), "arrivals": self.arrivals.tolist()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        super().restore(saved)
        self.arrivals[:] = saved["arrivals"]


class BestTask(ReactiveWork):
    """Probes or merges, whichever promises more pairs per block."""

    def __init__(self, pairs: PairJoin, policy: PartitionPolicy, fan_in: int, notes_bytes: int) -> None:
        self._probing = Probing(pairs, policy, notes_bytes // 2)
        self._merging = RunMerging(pairs, policy.partitions, fan_in, notes_bytes // 2, self._probing)
        self.described = self._merging.described

    @property
    def is_interrupted(self) -> bool:  # type: ignore[override]
        """Whether either was interrupted."""
        return self._probing.is_interrupted or self._merging.is_interrupted

    def arrived(self, side: int, low: Array) -> None:
        """Tell the probing, which joins what is in memory."""
        self._probing.arrived(side, low)

    def flushed(self, side: int, blocks: range) -> None:
        """Tell both."""
        self._probing.flushed(side, blocks)
        self._merging.flushed(side, blocks)

    def has_more(self) -> bool:
        """Whether either has something to do."""
        return self._probing.has_more() or self._merging.has_more()

    def work(self) -> Iterator[pa.RecordBatch]:
        """Do the task that promises most."""
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
        """The state for a snapshot."""
        return {"probing": self._probing.to_json(), "merging": self._merging.to_json()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self._probing.restore(saved["probing"])
        self._merging.restore(saved["merging"])

    def check_invariants(self) -> None:
        """Raise AssertionError if something contradicts itself."""
        self._merging.check_invariants()
        if not self._merging.is_interrupted:  # until then tuples are in two runs
            self._probing.check_invariants()
