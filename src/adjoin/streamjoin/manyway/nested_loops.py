"""The reactive phase of MINER: nested loops over blocks of all relations that can stop after every block."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.sizes import ManyReactiveMemory
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.disk.joined_blocks import Box, Step
from adjoin.streamjoin.manyway.graph import Edge
from adjoin.streamjoin.manyway.reloaded_tuples import ReloadedTuples
from adjoin.streamjoin.manyway.spec import ManyInputs


class ManyNestedLoops(ReactiveWork):
    """Joins blocks by nested loops.

    A unit of work is one block: an outer or inner block is kept, or an innermost block is joined with those
    that are kept. Of an inner block, only tuples that match the relation before it are kept; if there are
    none, the block is skipped, and blocks of the relations after it are not read.

    Args:
        spec: The join.
        storage: Holds the blocks.
        memory: How much is kept in memory.

    Attributes:
        box: Which blocks have been joined.
    """

    def __init__(self, spec: ManyInputs, storage: Storage, memory: ManyReactiveMemory) -> None:
        sizes = storage.sizes
        self._graph = spec.graph
        self._blocks = storage.blocks
        self._reloaded = ReloadedTuples(
            spec, storage, slots=memory.slots(sizes.max_outer), memory_bytes=sizes.reactive_bytes
        )
        self._most_outer = sizes.max_outer
        self._outer_bytes = 2 * sizes.max_outer * sizes.slot_bytes
        self._row_bytes = memory.row_bytes
        self._loaded: list[tuple[int, range]] = []
        self.box = Box()

    def has_more(self) -> bool:
        """Whether any blocks have not been joined with all others."""
        return self._next_step() is not None

    def _next_step(self) -> Step | None:
        lengths = [len(blocks) for blocks in self._blocks]
        return self.box.next_step(lengths, self._fitting, self._inner)

    def _inner(self, outer: int, joined: Sequence[int]) -> list[int]:
        """The other relations, each joined with an earlier one; those with the most blocks come last."""
        return [relation for relation, _ in self._graph.path(outer, joined)]

    def _fitting(self, relation: int, first: int) -> int:
        """How many blocks from this one on fit in memory together; at least one."""
        blocks = self._blocks[relation]
        left, number = self._outer_bytes, first
        while number < min(len(blocks), first + self._most_outer):
            left -= blocks.bytes_of(number) + blocks.rows_of(number) * self._row_bytes
            if left < 0:
                break
            number += 1
        return max(1, number - first)

    def work(self) -> Iterator[pa.RecordBatch]:
        """Keep a block, or join an innermost block."""
        step = self._next_step()
        if step is None or self._keeps_outer(step) or self._keeps_inner(step):
            return
        relation, number = step.inner[-1]
        batch = self._reloaded.read(relation, number, self._edges(step)[relation])
        for match, is_new in self._reloaded.joined(relation, batch):
            yield from self._reloaded.results(match, is_new)
        self.box.finished()

    def _keeps_outer(self, step: Step) -> bool:
        """Keep one more outer block; False if all are kept."""
        wanted = range(step.outer_begin, step.outer_end)
        if not self._loaded or (self._loaded[0][0], self._loaded[0][1].start) != (step.outer, wanted.start):
            self._drop(0)
            self._loaded = [(step.outer, wanted[:0])]
        there = len(self._loaded[0][1])
        if there == len(wanted):
            return False
        self._drop(1)  # these tuples matched fewer outer blocks
        self._reloaded.keep(step.outer, self._reloaded.read(step.outer, wanted[there]))
        self._loaded[0] = step.outer, wanted[: there + 1]
        return True

    def _keeps_inner(self, step: Step) -> bool:
        """Keep an inner block, or skip it; False if all but the innermost are kept."""
        edges = self._edges(step)
        for wheel, (relation, number) in enumerate(step.inner[:-1]):
            block = relation, range(number, number + 1)
            if wheel + 1 < len(self._loaded) and self._loaded[wheel + 1] == block:
                continue
            self._drop(wheel + 1)
            batch = self._reloaded.read(relation, number, edges[relation])
            if batch.num_rows:
                self._reloaded.keep(relation, batch)
                self._loaded.append(block)
            else:
                self.box.finished(wheel)
            return True
        return False

    def _edges(self, step: Step) -> dict[int, Edge]:
        """The edge from every inner relation to an earlier one."""
        return dict(self._graph.path(step.outer, self.box.joined))

    def _drop(self, first: int) -> None:
        """Drop the kept blocks of all relations but the first ones."""
        for relation, _ in self._loaded[first:]:
            self._reloaded.inputs[relation].clear()
        del self._loaded[first:]

    def close(self) -> None:
        """Release the memory."""
        self._drop(0)

    def met_combinations(self, blocks: Sequence[Array]) -> Array:
        """Those in the box."""
        return self.box.has_joined(blocks)

    def to_json(self) -> dict[str, Any]:
        """The box."""
        return self.box.to_json()

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from the state that `to_json` returned."""
        self.box = Box.from_json(saved)

    def check_invariants(self) -> None:
        """Raise AssertionError if the box contradicts itself."""
        self.box.check_invariants([len(blocks) for blocks in self._blocks])
        self._reloaded.check_invariants()
