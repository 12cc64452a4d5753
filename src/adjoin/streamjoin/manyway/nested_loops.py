"""MINER's reactive phase: blocks of all relations joined by nested loops that can stop after every block."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.sizes import ManyReactiveMemory
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.disk.joined_blocks import Box, Step
from adjoin.streamjoin.manyway.graph import Edge
from adjoin.streamjoin.manyway.recalled import Recalled
from adjoin.streamjoin.manyway.spec import ManyInputs


class ManyNestedLoops(ReactiveWork):
    """A unit of work is one block: one that is kept, or an innermost one joined with those that are kept.

    Of an inner block only tuples are kept that match some of the relation before it; where there is none, the
    wheel turns on, and blocks of the relations behind it are not read.

    Args:
        spec: The join.
        storage: Holds the blocks.
        memory: What is kept in memory.

    Attributes:
        box: Which blocks have been joined.
    """

    def __init__(self, spec: ManyInputs, storage: Storage, memory: ManyReactiveMemory) -> None:
        sizes = storage.sizes
        self._graph = spec.graph
        self._blocks = storage.blocks
        self._recalled = Recalled(
            spec, storage, slots=memory.slots(sizes.max_outer), memory_bytes=sizes.reading_bytes
        )
        self._most_outer = sizes.max_outer
        self._outer_bytes = 2 * sizes.max_outer * sizes.slot_bytes
        self._row_bytes = memory.row_bytes
        self._loaded: list[tuple[int, range]] = []
        self.box = Box()

    def has_more(self) -> bool:
        """Whether there are blocks that have not been joined with all others."""
        return self._next_step() is not None

    def _next_step(self) -> Step | None:
        lengths = [len(blocks) for blocks in self._blocks]
        return self.box.next_step(lengths, self._fitting, self._inner)

    def _inner(self, outer: int, joined: Sequence[int]) -> list[int]:
        """The other relations, each joined with one before it; those with most blocks come late."""
        return [relation for relation, _ in self._graph.path(outer, joined)]

    def _fitting(self, relation: int, first: int) -> int:
        """How many blocks from this one on have room together; one has in any case."""
        blocks = self._blocks[relation]
        left, number = self._outer_bytes, first
        while number < min(len(blocks), first + self._most_outer):
            left -= blocks.bytes_of(number) + blocks.rows_of(number) * self._row_bytes
            if left < 0:
                break
            number += 1
        return max(1, number - first)

    def work(self) -> Iterator[pa.RecordBatch]:
        """Keep a block, or join an innermost one."""
        step = self._next_step()
        if step is None or self._keeps_outer(step) or self._keeps_inner(step):
            return
        relation, number = step.inner[-1]
        batch = self._recalled.read(relation, number, self._edges(step)[relation])
        for match, is_new in self._recalled.joined(relation, batch):
            yield from self._recalled.results(match, is_new)
        self.box.finished()

    def _keeps_outer(self, step: Step) -> bool:
        """Keep one more outer block; False if all are there."""
        wanted = range(step.outer_begin, step.outer_end)
        if not self._loaded or (self._loaded[0][0], self._loaded[0][1].start) != (step.outer, wanted.start):
            self._drop(0)
            self._loaded = [(step.outer, wanted[:0])]
        there = len(self._loaded[0][1])
        if there == len(wanted):
            return False
        self._drop(1)  # what matched the outer blocks that were there
        self._recalled.keep(step.outer, self._recalled.read(step.outer, wanted[there]))
        self._loaded[0] = step.outer, wanted[: there + 1]
        return True

    def _keeps_inner(self, step: Step) -> bool:
        """Keep an inner block, or turn a wheel on; False if all but the innermost are there."""
        edges = self._edges(step)
        for wheel, (relation, number) in enumerate(step.inner[:-1]):
            block = relation, range(number, number + 1)
            if wheel + 1 < len(self._loaded) and self._loaded[wheel + 1] == block:
                continue
            self._drop(wheel + 1)
            batch = self._recalled.read(relation, number, edges[relation])
            if batch.num_rows:
                self._recalled.keep(relation, batch)
                self._loaded.append(block)
            else:
                self.box.finished(wheel)
            return True
        return False

    def _edges(self, step: Step) -> dict[int, Edge]:
        """Of every inner relation, the edge to one before it."""
        return dict(self._graph.path(step.outer, self.box.joined))

    def _drop(self, first: int) -> None:
        """Forget the blocks of all relations but the first so many of those that are kept."""
        for relation, _ in self._loaded[first:]:
            self._recalled.inputs[relation].clear()
        del self._loaded[first:]

    def close(self) -> None:
        """Give the memory back."""
        self._drop(0)

    def met_combinations(self, blocks: Sequence[Array]) -> Array:
        """Those in the box."""
        return self.box.has_joined(blocks)

    def to_json(self) -> dict[str, Any]:
        """The box."""
        return self.box.to_json()

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` said."""
        self.box = Box.from_json(saved)

    def check_invariants(self) -> None:
        """Raise AssertionError if the box contradicts itself."""
        self.box.check_invariants([len(blocks) for blocks in self._blocks])
        self._recalled.check_invariants()
