"""Hash-merge join's second phase: sorted runs of a partition become one, and are joined on the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.condition import LEFT, RIGHT
from adjoin.streamjoin.base.spec import SIDES
from adjoin.streamjoin.baselines.merge import Merge
from adjoin.streamjoin.baselines.partitions import Partitions
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.pair_join import DiskJoin

_SPAN = (np.int32, 2)
_GROUP = np.dtype([("number", np.int32), ("partition", np.int32), ("left", *_SPAN), ("right", *_SPAN)])
"""A run of each side, from a block up to another, that have been joined with each other; one may be empty."""
_LEAST_GROUPS = 16
_COPIES = 4
"""Of the list: itself, while it changes, and while the best partition is looked for."""


@dataclass
class _Task:
    groups: Array
    merge: Merge


class Merging(Reactive):
    """A unit of work merges some runs of a partition: they become one group, with one run on each side.

    Args:
        disk: Reads blocks.
        partitions: The partitions.
        fan_in: Most runs of a unit of work (F).
        notes_bytes: For the list of groups. When it is full, the one that is longest in it is forgotten: its
            blocks wait for the end.
        past: Knows pairs that have met in another way.
    """

    def __init__(
        self,
        disk: DiskJoin,
        partitions: Partitions,
        fan_in: int,
        notes_bytes: int,
        past: Reactive | None = None,
    ) -> None:
        self._most_groups = max(_LEAST_GROUPS, notes_bytes // (_COPIES * _GROUP.itemsize))
        self._disk = disk
        self._partitions = partitions
        self._fan_in = fan_in
        self._past = past
        self._groups: Array = np.empty(0, _GROUP)
        self._next_group = 0
        self._task: _Task | None = None
        self._known: tuple[tuple[int, int, bytes], Array] | None = None

    @property
    def is_interrupted(self) -> bool:  # type: ignore[override]
        """Whether a merge has not come to its end."""
        return self._task is not None

    def flushed(self, side: int, blocks: range) -> None:
        """Blocks of one partition were written: they continue a run, or are a new group."""
        low, _ = self._disk.blocks[side].reach_of(blocks.start)
        partition = self._partitions.of_key(low)
        last = self._groups[-1] if len(self._groups) else None
        continues = last is not None and self._continues(side, last, blocks.start, partition, low)
        number = int(last["number"]) if last is not None and continues else self._take_number()
        self._disk.blocks[side].set_group(blocks, number)
        if last is not None and continues:
            last[SIDES[side]][1] = blocks.stop
        else:
            runs = [(0, 0), (0, 0)]
            runs[side] = blocks.start, blocks.stop
            kept = self._groups[max(0, len(self._groups) + 1 - self._most_groups) :]
            self._groups = np.append(kept, np.array([(number, partition, *runs)], _GROUP))

    def _continues(self, side: int, group: Array, block: int, partition: int, low: int) -> bool:
        start, stop = group[SIDES[side]].tolist()
        is_next = start < stop == block and group["partition"] == partition and not _has(group, 1 - side)
        return bool(is_next and self._disk.blocks[side].reach_of(stop - 1)[1] <= low)

    def _take_number(self) -> int:
        self._next_group += 1
        return self._next_group - 1

    def best(self) -> tuple[int, float]:
        """A partition with many pairs of blocks that have not met; -1 if there is none.

        Returns:
            The partition, and how many such pairs its next merge joins for each block that it handles.
        """
        left, right = (_lengths(self._groups, side) for side in (LEFT, RIGHT))
        totals = [
            np.bincount(self._groups["partition"], weights, self._partitions.count)
            for weights in (left, right, left * right)
        ]
        unmet = totals[LEFT] * totals[RIGHT] - totals[2]
        if not unmet.any():
            return -1, 0.0
        partition = int(np.argmax(unmet / np.maximum(totals[LEFT] + totals[RIGHT], 1)))
        return partition, _promise(self._groups[self._some(partition)])

    def _some(self, partition: int) -> Array:
        """Small groups, with tuples of both sides, with no more runs than the fan-in."""
        there = np.flatnonzero(self._groups["partition"] == partition)
        groups = self._groups[there]
        blocks = _lengths(groups, LEFT) + _lengths(groups, RIGHT)
        order = np.lexsort((groups["number"], blocks))
        first = [order[_has(groups[order], side)][0] for side in (LEFT, RIGHT)]
        if first[LEFT] == first[RIGHT]:
            first[RIGHT] = order[order != first[LEFT]][0]
        order = np.concatenate([first, order[~np.isin(order, first)]])
        runs = np.cumsum(sum(_has(groups[order], side).astype(int) for side in (LEFT, RIGHT)))
        some: Array = there[order[: max(2, int(np.searchsorted(runs, self._fan_in, "right")))]]
        return some

    def has_more(self) -> bool:
        """Whether there are runs of both sides that have not met."""
        return self.is_interrupted or self.best()[0] >= 0

    def work(self) -> Iterator[pa.RecordBatch]:
        """Merge where most is to be expected."""
        if self._task is None:
            some = self._some(self.best()[0])
            groups = self._groups[some]
            runs = [[run for run in map(_run, groups[name]) if run] for name in SIDES]
            self._task = _Task(some, Merge(self._disk, runs, self._take_number(), self._past))
        task = self._task
        yield from task.merge.run()
        merged = self._groups[task.groups]
        for group in merged:
            for side, name in enumerate(SIDES):
                self._disk.blocks[side].drop(_run(group[name]))
        written = [(run.start, run.stop) for run in task.merge.written]
        group = np.array([(task.merge.group, merged["partition"][0], *written)], _GROUP)
        self._groups = np.append(np.delete(self._groups, task.groups), group)
        self._task = None

    def met_blocks(self, side: int, blocks: Array, other: int) -> Array:
        """Those of the same group."""
        group = self._disk.blocks[1 - side].group_of(other)
        met: Array = (self._groups_of(side, blocks) == group) & (group >= 0)
        return met

    def _groups_of(self, side: int, blocks: Array) -> Array:
        """The groups of these blocks; the same ones are asked for again and again."""
        asked = side, self._next_group, blocks.tobytes()
        if self._known is None or self._known[0] != asked:
            self._known = asked, self._disk.blocks[side].groups(blocks.tolist())
        return self._known[1]

    def to_json(self) -> dict[str, Any]:
        """The groups."""
        groups = [
            [*group.tolist()[:2], *group["left"].tolist(), *group["right"].tolist()] for group in self._groups
        ]
        return {"groups": groups, "next_group": self._next_group}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        self._next_group = saved["next_group"]
        groups = [(number, partition, (a, b), (c, d)) for number, partition, a, b, c, d in saved["groups"]]
        self._groups = np.array(groups, _GROUP)

    def check_invariants(self) -> None:
        """Raise AssertionError if groups contradict the blocks."""
        assert len(np.unique(self._groups["number"])) == len(self._groups)
        for side, name in enumerate(SIDES):
            blocks = self._disk.blocks[side]
            for group in self._groups:
                numbers = _run(group[name])
                low, reach = np.array([blocks.reach_of(n) for n in numbers], np.int64).reshape(-1, 2).T
                assert (reach[:-1] <= low[1:]).all()
                assert (self._partitions.of(low) == group["partition"]).all()
                assert (blocks.groups(numbers) == group["number"]).all()
        assert len(self._groups) <= self._most_groups


def _run(span: Array) -> range:
    return range(int(span[0]), int(span[1]))


def _lengths(groups: Array, side: int) -> Array:
    spans = groups[SIDES[side]]
    lengths: Array = spans[..., 1].astype(np.int64) - spans[..., 0]
    return lengths


def _has(groups: Array, side: int) -> Array:
    return _lengths(groups, side) > 0


def _promise(groups: Array) -> float:
    left, right = _lengths(groups, LEFT), _lengths(groups, RIGHT)
    unmet = left.sum() * right.sum() - (left * right).sum()
    return float(unmet / (2 * (left.sum() + right.sum())))
