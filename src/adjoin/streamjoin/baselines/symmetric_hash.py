"""Symmetric hash join: both inputs in memory, or not at all."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from adjoin.errors import BudgetError
from adjoin.streamjoin.base.spec import On
from adjoin.streamjoin.baselines.hashed import HashedJoin
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.memory.flush_policy import FlushPolicy, Leaving, Shortage


class SymmetricHashJoin(HashedJoin):
    """Joins two streams that fit in memory; every result comes as soon as its rows are there.

    Raises a `BudgetError` when the memory is full.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        **options: Those of `TwoInputJoin` that concern memory and results.

    Cost:
        Time O(log n) to find the matches of a row among n in memory.

    Reference:
        Wilschut, Apers: Dataflow Query Execution in a Parallel Main-Memory Environment, PDIS 1991.
    """

    def __init__(
        self, left: pa.Schema, right: pa.Schema, on: On, memory: int | str = "64MB", **options: Any
    ) -> None:
        super().__init__(left, right, on, memory, **{"max_outer": 1, **options})

    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        return _NobodyLeaves(self._budget.total_bytes), Reactive()


class _NobodyLeaves(FlushPolicy):
    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes

    def choose(self, shortage: Shortage) -> Iterator[Leaving]:
        raise BudgetError(
            f"memory={self._memory_bytes} is full with {sum(map(len, shortage.inputs)):,} rows; give more, "
            f"or use DINER, which spills"
        )
