"""XJoin's second stage: a partition on disk joined with what is in memory of the other input."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.condition import LEFT, RIGHT
from adjoin.streamjoin.diskjoin import DiskJoin
from adjoin.streamjoin.partitions import PartitionPolicy
from adjoin.streamjoin.reactive import Reactive
from adjoin.streamjoin.results import sizes_of
from adjoin.streamjoin.rowstore import places_of
from adjoin.streamjoin.stamps import Stamps

_MOMENT_BITS = 48
_MOMENT = (1 << _MOMENT_BITS) - 1


@dataclass
class _Task:
    side: int
    partition: int
    moment: int
    left: list[int]


class Probing(Reactive):
    """A unit of work is a partition of one input on disk, joined with the other's in memory.

    The moment is noted: tuples that were on disk then have met those that were in memory then.

    Args:
        disk: Reads blocks.
        stamps: Gives moments.
        policy: Knows the partitions and how many tuples are in memory.
    """

    def __init__(self, disk: DiskJoin, stamps: Stamps, policy: PartitionPolicy) -> None:
        self._disk = disk
        self._stamps = stamps
        self._policy = policy
        self._partitions = policy.partitions
        self._task: _Task | None = None
        shape = 2, self._partitions.count
        self._moments = [np.empty(0, np.int64), np.empty(0, np.int64)]
        self.on_disk: Array = np.zeros(shape, np.int64)
        self.blocks: Array = np.zeros(shape, np.int64)
        self._disk_before: Array = np.zeros(shape, np.int64)
        self._arrived: Array = np.zeros(shape, np.int64)

    @property
    def held_bytes(self) -> int:  # type: ignore[override]
        """The moments, and once more while one is added; counters of all partitions."""
        return 2 * sum(moments.nbytes for moments in self._moments) + 8 * self.on_disk.nbytes

    @property
    def growth_bytes(self) -> int:  # type: ignore[override]
        """A moment for every partition of both sides, twice."""
        return 4 * self._moments[0].itemsize * self._partitions.count

    @property
    def is_interrupted(self) -> bool:  # type: ignore[override]
        """Whether blocks of a partition are still to be joined."""
        return self._task is not None

    def arrived(self, side: int, low: Array) -> None:
        """Tuples came into memory."""
        self._arrived[side] += self._policy.count(low)

    def flushed(self, side: int, blocks: range) -> None:
        """Blocks were written, each of one partition."""
        low, _ = self._disk.blocks[side].reaches(np.array(blocks))
        partition = self._partitions.of(low)
        rows = [self._disk.blocks[side].rows_in(range(block, block + 1)) for block in blocks]
        np.add.at(self.on_disk[side], partition, rows)
        np.add.at(self.blocks[side], partition, 1)

    def expected_pairs(self) -> Array:
        """Pairs that have not met, by side on disk and partition: about how many a unit of work would see."""
        new = np.minimum(self._arrived, self._policy.tuples)[::-1]
        since = self.on_disk - self._disk_before
        pairs: Array = (self._disk_before + since / 2) * new
        return pairs

    def best_rate(self) -> float:
        """The most pairs that a unit of work promises for each block."""
        return float(self._rates().max())

    def _rates(self) -> Array:
        rates: Array = self.expected_pairs() / np.maximum(self.blocks, 1)
        return rates

    def recount(self) -> None:
        """Blocks have been merged: count them again."""
        for side, blocks in enumerate(self._disk.blocks):
            low, _ = blocks.reaches(blocks.numbers)
            self.blocks[side] = self._policy.count(low)

    def has_more(self) -> bool:
        """Whether there is a partition with something on disk, and something new in the other's memory."""
        return self.is_interrupted or bool(self.expected_pairs().any())

    def work(self) -> Iterator[pa.RecordBatch]:
        """Join the partition from which most is to be expected for each block that is read."""
        if self._task is None:
            side, partition = divmod(int(np.argmax(self._rates())), self._partitions.count)
            yield from self.probe(side, partition)
        else:
            yield from self._go_on()

    def probe(self, side: int, partition: int) -> Iterator[pa.RecordBatch]:
        """Join a side's partition on disk with the other's in memory."""
        blocks = self._disk.blocks[side]
        numbers = blocks.numbers
        low, _ = blocks.reaches(numbers)
        wanted = np.sort(numbers[self._partitions.of(low) == partition])
        self._task = _Task(side, partition, self._stamps.next(), wanted.tolist())
        yield from self._go_on()

    def _go_on(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        assert task is not None
        while task.left:
            yield from self._join_block(task.side, task.left[0])
            del task.left[0]
        moments = self._moments[task.side]
        moment = (task.partition << _MOMENT_BITS) + task.moment
        self._moments[task.side] = np.insert(moments, np.searchsorted(moments, moment), moment)
        self._disk_before[task.side, task.partition] = self.on_disk[task.side, task.partition]
        self._arrived[1 - task.side, task.partition] = 0
        self._task = None

    def _join_block(self, side: int, number: int) -> Iterator[pa.RecordBatch]:
        block, rows = self._disk.read(side, number)
        other, sizes = self._disk.inputs[1 - side], sizes_of(rows)
        for some in other.index.matches(block.low, block.high, self._disk.limit_pairs):
            arrived = other.arrived_at(some.place)
            left = block.left[some.owner]
            is_new = arrived > left
            gone = self._have_met(side, block.low[some.owner], arrived, np.full(len(left), _MOMENT))
            chosen = np.flatnonzero(is_new & ~gone)
            if len(chosen):
                places = self._disk.results.in_slots(1 - side, places_of(some.place[chosen]))
                found = self._disk.results.beside(side, rows, sizes, some.owner[chosen], places)
                yield from (batch for batch, _ in found)

    def met_tuples(
        self, side: int, low: Array, arrived: Array, left: Array, other_left: Array
    ) -> Array | None:
        """Those one of which was on disk, the other in memory at a moment that was noted."""
        if not any(map(len, self._moments)):
            return None
        latest = np.maximum(arrived, np.minimum(left, other_left))
        leaves = np.maximum(left, other_left)
        # The one that left first was on disk then, on its side.
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
        """Moments and counters."""
        return {
            "moments": [moments.tolist() for moments in self._moments],
            "on_disk": self.on_disk.tolist(),
            "blocks": self.blocks.tolist(),
            "disk_before": self._disk_before.tolist(),
            "arrived": self._arrived.tolist(),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        self._moments = [np.array(moments, np.int64) for moments in saved["moments"]]
        self.on_disk[:], self.blocks[:] = saved["on_disk"], saved["blocks"]
        self._disk_before[:], self._arrived[:] = saved["disk_before"], saved["arrived"]

    def check_invariants(self) -> None:
        """Raise AssertionError if counters contradict what is on disk."""
        for side, blocks in enumerate(self._disk.blocks):
            low, _ = blocks.reaches(blocks.numbers)
            partition = self._partitions.of(low)
            assert (np.bincount(partition, minlength=self._partitions.count) == self.blocks[side]).all()
            assert self.on_disk[side].sum() == blocks.rows
            assert (np.diff(self._moments[side]) > 0).all()
