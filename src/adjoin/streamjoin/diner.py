"""DINER: double index nested loops with a flush policy that follows the data."""

from typing import Any

import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.streamjoin.base.spec import On
from adjoin.streamjoin.base.two_inputs import TwoInputJoin
from adjoin.streamjoin.disk.idle_work import Reactive
from adjoin.streamjoin.disk.nested_loops import NestedLoops
from adjoin.streamjoin.memory.flush_policy import FlushPolicy
from adjoin.streamjoin.memory.three_regions import ThreeRegions


class DINER(TwoInputJoin):
    """Joins two streams in bounded memory, with as many results as possible while they arrive.

    How it works: see `SpillingJoin` for the phases. Tuples in memory are indexed in the order of their keys.
    When memory is full, those leave that bring least: for each input, the matches of the lowest keys in
    memory, of the highest and of those between are counted, and the region with the fewest for its size is
    flushed; in the middle a clock spares what was matched since it last passed.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator.
        seed: The clock begins at a random place.
        **options: Those of `TwoInputJoin`.

    Example:
        >>> import adjoin, pyarrow as pa
        >>> orders = pa.record_batch({"order": [1, 2, 3], "item": ["pen", "ink", "pad"]})
        >>> paid = pa.record_batch({"order": [3, 1], "amount": [5, 7]})
        >>> with adjoin.DINER(orders.schema, paid.schema, on="order", memory="4MB") as join:
        ...     result = pa.Table.from_batches(join.run([("left", orders), ("right", paid)]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 'pen', 7), (3, 'pad', 5)]

    Cost:
        Time O(log n) to find the matches of a row among n in memory; cleanup reads the blocks of one input
        once for every memory full of blocks of the other.

    Reference:
        Bornea, Vassalos, Kotidis, Deligiannakis: Adaptive Join Operators for Result Rate Optimization on
        Streaming Inputs, IEEE Transactions on Knowledge and Data Engineering, 2010. Algorithms 1 to 4.

        ============ ==================================== ==========================
        symbol       meaning                              here
        ============ ==================================== ==========================
        ATS, DTS     moments of arrival and departure     arrived, left
        MaxOuterMem  outer blocks of a reactive phase     max_outer
        MaxNewArr    rows that end a reactive phase       max_new
        WaitThresh   patience before a reactive phase     wait_seconds
        LastLwVal    bound of the lower region            Regions.lower
        LastUpVal    bound of the upper region            Regions.upper
        ============ ==================================== ==========================

    Departures:
        - Rows come in batches: those of a batch are joined with what is in memory when it arrives, then kept.
        - A moment is a number that only grows, and all tuples of a block leave at the same one, so that
          ties cannot hide or repeat a pair.
        - Roles are changed at the top of the loop over blocks, and the last inner block is joined (algorithm
          4, lines 14 to 20).
        - Before the cleanup all tuples in memory are written, since those of the two inputs may not have met.
        - Matches are credited one by one, to the region of each of the two tuples.
        - Where no tuple had a match since the last flush, the clock sweeps the middle; the upper region, that
          the paper flushes then, is what came last if keys grow over time.
        - Once an input has ended, tuples of the other leave first: nothing more will ask for them.
        - Blocks whose keys are too far apart are not read.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self._seed = whole_number("seed", seed, 0)
        super().__init__(left, right, on, memory, **options)

    def _strategy(self) -> tuple[FlushPolicy, Reactive]:
        return ThreeRegions(seed=self._seed), NestedLoops(self._disk_join, self._sizes.max_outer)
