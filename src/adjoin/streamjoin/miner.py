"""MINER: DINER for any number of inputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.base.three_regions import ThreeRegions
from adjoin.streamjoin.manyway.many_join import ManyJoin, reactive_memory
from adjoin.streamjoin.manyway.nested_loops import ManyNestedLoops
from adjoin.streamjoin.manyway.spec import ManyInputs


class MINER(SpillingJoin):
    """Joins any number of streams in bounded memory, with as many results as possible while they arrive.

    How it works: see `SpillingJoin` for the phases. Every input has an ordered index for each of its join
    attributes. An arriving row probes one relation after the other, the most selective condition first, and
    stops at the first that has no match for it; no intermediate results are stored. *Flush policy*
    (`ThreeRegions`): tuples of the largest input leave, from that region of any of its attributes which had
    the fewest matches per tuple. *Reactive phase* (`ManyNestedLoops`): blocks of one
    relation are joined with all combinations of blocks of the others, one after the other.

    Args:
        relations: The schema of every input, by name.
        on: Conditions such as "r1.a = r2.b", "abs(r1.a - r2.b) <= 5" or "r2.c between r1.a and r1.b". They
            must connect the relations as a tree; several equalities of the same two relations are a key of
            several columns.
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        seed: Seed of the pseudo-random positions at which the clocks start.
        columns: Columns of the results, `<relation>_<column>`; all by default.
        block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Example:
        >>> import adjoin, pyarrow as pa
        >>> orders = pa.record_batch({"id": [1, 2], "item": ["pen", "ink"]})
        >>> paid = pa.record_batch({"order": [2, 1], "card": [7, 8]})
        >>> cards = pa.record_batch({"id": [8, 7], "name": ["Ada", "Bob"]})
        >>> schemas = {"orders": orders.schema, "paid": paid.schema, "cards": cards.schema}
        >>> on = ["orders.id = paid.order", "paid.card = cards.id"]
        >>> with adjoin.MINER(schemas, on, memory="4MB", columns=["orders_item", "cards_name"]) as join:
        ...     arrivals = [("orders", orders), ("cards", cards), ("paid", paid)]
        ...     result = pa.Table.from_batches(join.run(arrivals))
        >>> sorted(zip(*result.to_pydict().values()))
        [('ink', 'Bob'), ('pen', 'Ada')]

    Cost:
        Time O(log n) for each relation to find the matches of a row among n tuples, and O(log² n) at worst
        for each match in a range, however long. The cleanup phase reads every relation once for each part of
        those before it that fits in memory, the smallest first.

    Reference:
        Bornea, Vassalos, Kotidis, Deligiannakis: Adaptive Join Operators for Result Rate Optimization on
        Streaming Inputs, IEEE Transactions on Knowledge and Data Engineering, 2010. Section 4.

        ============ ==================================== ==========================
        symbol       meaning                              here
        ============ ==================================== ==========================
        LocalJoins   matches along a condition            ProbeOrder
        JoinedOuter  outer blocks that have been joined   Box.joined
        JoinedInner  inner blocks they were joined with   Box.joined
        CurrInner    next inner block                     Box.at
        ============ ==================================== ==========================

    Departures:
        - Departures of `DINER`.
        - A join bit is set by a match along its attribute, whether or not it leads to a result.
        - Selectivities fade, instead of being zeroed at every flush.
        - Any tree of relations, not only chains; attributes with the same keys share an index.
        - Of an inner block only the tuples that match are kept; if there are none, blocks of the relations
          after it are not read.
        - The cleanup phase does not loop over combinations of blocks, whose number is a product: it keeps the
          matching tuples of one relation after the other.
    """

    def __init__(
        self,
        relations: Mapping[str, pa.Schema],
        on: Sequence[str],
        memory: int | str = "64MB",
        *,
        seed: int = 0,
        columns: Sequence[str] | None = None,
        block_bytes: int | None = None,
        max_outer: int | None = None,
        least_outer: int | None = None,
        max_new: int = 1000,
        wait_seconds: float = 0.025,
        spill: str | Path | None = None,
        clock: Clock | None = None,
        disk: Cost | None = None,
    ) -> None:
        seed = whole_number("seed", seed, 0)
        spec = ManyInputs(relations, on, columns)
        options = SpillOptions(
            memory, block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk
        )
        memory_of_phases = reactive_memory(spec)
        storage = Storage(spec, options, memory_of_phases)
        policy = ThreeRegions([len(edges) for edges in spec.attributes], seed)
        reactive = ManyNestedLoops(spec, storage, memory_of_phases)
        super().__init__(spec, storage, ManyJoin(spec, storage), policy, reactive)
