"""The reactive phase of XJoin: a partition on disk joined with the other input in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.result_builder import sizes_of
from adjoin.streamjoin.base.spec import LEFT, RIGHT
from adjoin.streamjoin.baselines.partitions import PartitionPolicy
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.twoway.pair_join import PairJoin

_COUNTERS = 10
"""Per partition and side: counts on disk and in memory, and what is derived from them."""
_MOMENT_BITS = 48
_MOMENT = (1 << _MOMENT_BITS) - 1


@dataclass
class _Task:
    side: int
    partition: int
    moment: int
    next_block: int = 0


class Probing(ReactiveWork):
    """Joins partitions on disk with memory.

    A unit of work joins a partition of one input on disk with the same partition of the other in memory. Its
    moment is recorded: it joined the tuples that were on disk then with those that were in memory then.

    Args:
        pairs: Reads and joins blocks.
        policy: Knows the partitions and how many tuples are in memory.
        notes_bytes: For counters and moments; when it is full, the rest is left to the cleanup phase.
    """

    def __init__(self, pairs: PairJoin, policy: PartitionPolicy, notes_bytes: int) -> None:
        self._pairs = pairs
        self._policy = policy
        self._partitions = policy.partitions
        self._task: _Task | None = None
        self._most_notes_bytes = notes_bytes
        shape = 2, self._partitions.count
        self._moments = [np.empty(0, np.int64), np.empty(0, np.int64)]
        self.on_disk: Array = np.zeros(shape, np.int64)
        self.blocks: Array = np.zeros(shape, np.int64)
        self._disk_before: Array = np.zeros(shape, np.int64)
        self._arrived: Array = np.zeros(shape, np.int64)

    @property
    def notes_bytes(self) -> int:
        """The moments, twice while one is added, and the counters of all partitions."""
        return 2 * sum(moments.nbytes for moments in self._moments) + _COUNTERS * self.on_disk.nbytes

    @property
    def _is_full(self) -> bool:
        return self.notes_bytes + 2 * self._moments[0].itemsize > self._most_notes_bytes

    @property
    def is_interrupted(self) -> bool:  # type: ignore[override]
        """Whether a partition was interrupted."""
        return self._task is not None

    def arrived(self, side: int, low: Array) -> None:
        """Count tuples that were added to memory."""
        self._arrived[side] += self._policy.count(low)

    def flushed(self, side: int, blocks: range) -> None:
        """Count blocks, each of one partition."""
        written = self._pairs.blocks[side]
        low = np.array([written.reach_of(block)[0] for block in blocks], np.int64)
        partition = self._partitions.of(low)
        np.add.at(self.on_disk[side], partition, [written.rows_of(block) for block in blocks])
        np.add.at(self.blocks[side], partition, 1)

    def expected_pairs(self) -> Array:
        """About how many new pairs a unit of work would compare, by side on disk and partition."""
        if self._is_full:
            return np.zeros(self.on_disk.shape)
        new = np.minimum(self._arrived, self._policy.tuples)[::-1]
        since = self.on_disk - self._disk_before
        pairs: Array = (self._disk_before + since / 2) * new
        return pairs

    def best_rate(self) -> float:
        """The most pairs per block that a unit of work promises."""
        return float(self._rates().max())

    def _rates(self) -> Array:
        rates: Array = self.expected_pairs() / np.maximum(self.blocks, 1)
        return rates

    def recount(self) -> None:
        """Count blocks again after a merge."""
        for side, blocks in enumerate(self._pairs.blocks):
            self.blocks[side] = sum(self._policy.count(low) for low in blocks.lows())

    def has_more(self) -> bool:
        """Whether any partition has tuples on disk and new ones in the memory of the other input."""
        return self.is_interrupted or bool(self.expected_pairs().any())

    def work(self) -> Iterator[pa.RecordBatch]:
        """Join the partition that promises the most pairs per block, or resume it."""
        if self._task is None:
            side, partition = divmod(int(np.argmax(self._rates())), self._partitions.count)
            yield from self.probe(side, partition)
        else:
            yield from self._continue()

    def probe(self, side: int, partition: int) -> Iterator[pa.RecordBatch]:
        """Join a side's partition on disk with the other's in memory."""
        self._task = _Task(side, partition, self._pairs.storage.moments.next())
        yield from self._continue()

    def _continue(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        assert task is not None
        bounds = self._partitions.bounds(task.partition)
        for number in self._pairs.blocks[task.side].reaching(*bounds, task.next_block):
            yield from self._join_block(task.side, number)
            task.next_block = number + 1
        moments = self._moments[task.side]
        moment = (task.partition << _MOMENT_BITS) + task.moment
        self._moments[task.side] = np.insert(moments, np.searchsorted(moments, moment), moment)
        self._disk_before[task.side, task.partition] = self.on_disk[task.side, task.partition]
        self._arrived[1 - task.side, task.partition] = 0
        self._task = None

    def _join_block(self, side: int, number: int) -> Iterator[pa.RecordBatch]:
        block, rows = self._pairs.read(side, number)
        other, sizes = self._pairs.storage.inputs[1 - side], sizes_of(rows)
        for some in other.index.matches(block.low, block.high, self._pairs.limit_pairs):
            arrived = other.arrived_at(some.place)
            left = block.left[some.owner]
            is_new = arrived > left
            gone = self._have_met(side, block.low[some.owner], arrived, np.full(len(left), _MOMENT))
            chosen = np.flatnonzero(is_new & ~gone)
            if len(chosen):
                places = self._pairs.results.in_slots(1 - side, places_of(some.place[chosen]))
                found = self._pairs.results.pairs(side, rows, sizes, some.owner[chosen], places)
                yield from (batch for batch, _ in found)

    def met_tuples(
        self, side: int, low: Array, arrived: Array, left: Array, other_left: Array
    ) -> Array | None:
        """Pairs were joined if one was on disk and the other in memory at a recorded moment."""
        if not any(map(len, self._moments)):
            return None
        latest = np.maximum(arrived, np.minimum(left, other_left))
        leaves = np.maximum(left, other_left)
        # The tuple that left first was the one on disk.
        first = np.where(left < other_left, side, 1 - side)
        met: Array = np.zeros(len(low), bool)
        for on_disk in (LEFT, RIGHT):
            mine = np.flatnonzero(first == on_disk)
            met[mine] = self._have_met(on_disk, low[mine], latest[mine], leaves[mine])
        return met

    def _have_met(self, side: int, low: Array, since: Array, until: Array) -> Array:
        """Whether a side's partition on disk was joined at a moment strictly between these two."""
        moments, partition = self._moments[side], self._partitions.of(low)
        if not len(moments):
            return np.zeros(len(low), bool)
        at = np.searchsorted(moments, (partition << _MOMENT_BITS) + since, "right")
        found = moments[np.minimum(at, len(moments) - 1)]
        met: Array = (at < len(moments)) & (found >> _MOMENT_BITS == partition) & ((found & _MOMENT) < until)
        return met

    def to_json(self) -> dict[str, Any]:
        """The moments and counters."""
        return {
            "moments": [moments.tolist() for moments in self._moments],
            "on_disk": self.on_disk.tolist(),
            "blocks": self.blocks.tolist(),
            "disk_before": self._disk_before.tolist(),
            "arrived": self._arrived.tolist(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self._moments = [np.array(moments, np.int64) for moments in saved["moments"]]
        self.on_disk[:], self.blocks[:] = saved["on_disk"], saved["blocks"]
        self._disk_before[:], self._arrived[:] = saved["disk_before"], saved["arrived"]

    def check_invariants(self) -> None:
        """Raise AssertionError if counters contradict what is on disk."""
        for side, blocks in enumerate(self._pairs.blocks):
            assert (sum(self._policy.count(low) for low in blocks.lows()) == self.blocks[side]).all()
            assert self.on_disk[side].sum() == blocks.rows
            assert (np.diff(self._moments[side]) > 0).all()
