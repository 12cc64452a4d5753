"""Symmetric hash join: both inputs in memory, or not at all."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from adjoin.errors import BudgetError
from adjoin.keys.predicate import Distance
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import FlushPolicy, Leaving, ReactiveWork, Shortage
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.baselines.hashed import hashed_inputs
from adjoin.streamjoin.twoway.pair_join import PairJoin


class SymmetricHashJoin(SpillingJoin):
    """Joins two streams that fit in memory; every result is returned as soon as its rows have arrived.

    Raises a `BudgetError` when the memory is full.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        within, between: Refused: this join matches equal keys only.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns to keep in the results, whose order does not change; all by default.
        block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Cost:
        Time O(log n) to find the matches of a row among n in memory.

    Reference:
        Wilschut, Apers: Dataflow Query Execution in a Parallel Main-Memory Environment, PDIS 1991.
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
        max_outer: int | None = 1,
        least_outer: int | None = None,
        max_new: int = 1000,
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
        policy = _NothingLeaves(storage.budget.total_bytes)
        super().__init__(spec, storage, PairJoin(spec, storage), policy, ReactiveWork())


class _NothingLeaves(FlushPolicy):
    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        raise BudgetError(
            f"memory={self._memory_bytes} is full with {sum(map(len, shortage.inputs)):,} rows; give more, "
            "or use DINER, which spills"
        )
