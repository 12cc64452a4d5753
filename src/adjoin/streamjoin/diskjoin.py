"""Blocks on disk joined with each other, one inner block at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.kernels.intervals import overlap_ranges
from adjoin.kernels.search import expand_part
from adjoin.kernels.sorting import argsort_keys
from adjoin.streamjoin.blocks import Blocks
from adjoin.streamjoin.counts import Counts
from adjoin.streamjoin.grid import LEFT, RIGHT, Grid, Step
from adjoin.streamjoin.results import Results, sizes_of
from adjoin.streamjoin.spec import TwoInputs
from adjoin.streamjoin.tuples import Tuples, places_of

OUTER_BYTES = 48
"""Of a tuple of an outer block beside its slot: interval, place and both moments."""


class DiskJoin:
    """Joins the blocks of two inputs, every pair of tuples that were never in memory together.

    Args:
        spec: The join.
        inputs: The inputs; outer blocks are read into slots of theirs.
        blocks: Their blocks.
        results: Builds results.
        counts: Where reads are counted.
        limit_pairs: Pairs handled at a time.

    Attributes:
        grid: Which blocks have been joined.
    """

    def __init__(
        self,
        spec: TwoInputs,
        inputs: Sequence[Tuples],
        blocks: Sequence[Blocks],
        results: Results,
        counts: Counts,
        limit_pairs: int,
    ) -> None:
        self._spec = spec
        self._inputs = inputs
        self._blocks = blocks
        self._results = results
        self._counts = counts
        self._limit_pairs = limit_pairs
        self._outer: _Outer | None = None
        self.grid = Grid()

    @property
    def _lengths(self) -> tuple[int, int]:
        return len(self._blocks[LEFT]), len(self._blocks[RIGHT])

    def has_more(self, most_outer: int) -> bool:
        """Whether there are blocks that have not been joined with each other."""
        return self.grid.next_step(self._lengths, most_outer) is not None

    def join_next(self, most_outer: int) -> Iterator[pa.RecordBatch]:
        """Join one inner block with at most so many outer ones, which stay in memory until `close`."""
        step = self.grid.next_step(self._lengths, most_outer)
        if step is not None:
            yield from self._join(step)
            self.grid.finished()

    def close(self) -> None:
        """Give the memory of the outer blocks back."""
        if self._outer is not None:
            self._outer.close()
            self._outer = None

    def check_invariants(self) -> None:
        """Raise AssertionError if the grid contradicts itself."""
        self.grid.check_invariants(self._lengths)

    def _join(self, step: Step) -> Iterator[pa.RecordBatch]:
        outer, inner = self._load_outer(step), 1 - step.outer
        first, last = self._blocks[inner].reach_of(step.inner_block)
        if first > outer.reach[-1] or last < outer.low[0]:
            return
        block, rows = self._blocks[inner].read(step.inner_block)
        self._count_read(inner, step.inner_block)
        begin, count = overlap_ranges(outer.low, outer.reach, block.low, block.high)
        ends, sizes = np.cumsum(count, dtype=np.int64), sizes_of(rows)
        for start in range(0, int(ends[-1]), self._limit_pairs):
            owner, at = expand_part(begin, ends, start, min(start + self._limit_pairs, int(ends[-1])))
            # Tuples that were in memory together have met there.
            is_new = (outer.arrived[at] >= block.left) | (block.arrived[owner] >= outer.left[at])
            if not self._spec.are_points[step.outer]:
                is_new &= outer.high[at] >= block.low[owner]
            owner, at = owner[is_new], at[is_new]
            if len(at):
                places = places_of(outer.place[at])
                yield from (batch for batch, _ in self._results.beside(inner, rows, sizes, owner, places))

    def _load_outer(self, step: Step) -> "_Outer":
        """The outer blocks of a step in memory, as one sorted list."""
        wanted = step.outer, step.outer_begin, step.outer_end
        if self._outer is None or self._outer.blocks != wanted:
            self.close()
            self._outer = _Outer(wanted, self._inputs[step.outer], self._blocks[step.outer])
            for number in range(step.outer_begin, step.outer_end):
                self._count_read(step.outer, number, is_first=number == step.outer_begin)
        return self._outer

    def _count_read(self, side: int, number: int, *, is_first: bool = True) -> None:
        self._counts.pages_read += 1
        self._counts.seeks += is_first
        self._counts.bytes_read += self._blocks[side].bytes_of(number)


class _Outer:
    """Outer blocks in memory, sorted by the lower ends of their tuples' intervals."""

    def __init__(self, wanted: tuple[int, int, int], tuples: Tuples, blocks: Blocks) -> None:
        self.blocks = wanted
        self._tuples = tuples
        self._slots: list[int] = []
        low, high, place, arrived, left = [], [], [], [], []
        for number in range(wanted[1], wanted[2]):
            slot = tuples.take_slot()
            self._slots.append(slot)
            try:
                block = blocks.read_into(number, tuples.slots, slot)
            except BaseException:
                self.close()
                raise
            low.append(block.low)
            high.append(block.high)
            place.append((np.int64(slot) << 32) + np.arange(len(block.low)))
            arrived.append(block.arrived)
            left.append(np.full(len(block.low), block.left))
        order = argsort_keys(np.concatenate(low))
        self.low, self.high, self.place, self.arrived, self.left = (
            np.concatenate(parts)[order] for parts in (low, high, place, arrived, left)
        )
        self.reach = np.maximum.accumulate(self.high)

    def close(self) -> None:
        for slot in self._slots:
            self._tuples.free_slot(slot)
