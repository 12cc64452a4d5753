"""DINER: double index nested loops with a flush policy that follows the data."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.errors import OptionError
from adjoin.keys.predicate import Distance
from adjoin.master.device import Cost
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.streamjoin.base.contract import SpillOptions
from adjoin.streamjoin.base.parts import ReactiveWork
from adjoin.streamjoin.base.spec import TwoInputs
from adjoin.streamjoin.base.storage import Storage
from adjoin.streamjoin.base.three_regions import ThreeRegions
from adjoin.streamjoin.complete.phases import CompleteJoin
from adjoin.streamjoin.complete.setting import Setting
from adjoin.streamjoin.complete.spec import CompleteInputs
from adjoin.streamjoin.complete.storage import PagedStorage
from adjoin.streamjoin.complete.time_bound import Span
from adjoin.streamjoin.twoway.nested_loops import NestedLoops
from adjoin.streamjoin.twoway.pair_join import PairJoin


class DINER(CompleteJoin):
    """Joins two streams in bounded memory, with as many results as possible while they arrive.

    How it works: see `SpillingJoin` for the phases. Tuples in memory are indexed in the order of their keys.
    *Flush policy* (`ThreeRegions`): for each input, the matches of the lowest keys in memory, of the highest
    and of those in the middle are counted, and the region with the fewest matches per tuple is flushed; in
    the middle a clock spares tuples that had a match since it last passed. *Reactive phase* (`NestedLoops`):
    blocks on disk are joined by nested loops that can hand over to arriving rows after every block.

    With `results="complete"`, all results of the rows so far have been returned after every call (see
    `CompleteJoin`): tuples that leave memory go to pages sorted by key, and arriving rows are joined with the
    other input's tuples in memory, then with its pages. One pass over the entries of all pages finds those
    that may hold one of the new keys, at a time that may match; they are read along the cheapest plan, many
    at a time, verified, and joined undecoded. With a bound on time, `expire` removes rows that can have no
    partner any more from memory and disk.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: Key: a name, a list of names, or `{"left column": "right column"}`.
        memory: Budget of the whole operator: bytes, or a string such as "64MB".
        how: "inner"; or "left", "right" or "full": rows of these sides without a partner are results, too; or
            "semi": left rows with a partner; or "anti": left rows without one. All but inner need
            `results="complete"`; rows without a partner are returned when they expire, and by `finish`. With
            right and full, a key column of the same name on both sides has the key of either.
        results: "early" (as in the paper: pairs that were never in memory together are joined in pauses and
            in the end) or "complete" (each call returns all results of the rows so far).
        time: A column of the left and one of the right with times: timestamps, dates or integers. Rows match
            only if left time - `before` <= right time <= left time + `after`, compared exactly in the finer
            unit of both columns; a null matches nothing. Needs `results="complete"`.
        before, after: Timedeltas, numbers of seconds, or strings such as "1 hour"; for integers, numbers in
            their unit. None: no bound on that side. Negative bounds leave out the time itself.
        seed: Seed of the pseudo-random position at which the clock starts.
        within: Band join: right key between left key - within and left key + within.
        between: Range join: right key between these two left columns; `on` names the right key.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns to keep in the results, whose order does not change; all by default.
        block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk: See `SpillOptions`.

    Example:
        >>> import adjoin, pyarrow as pa
        >>> orders = pa.record_batch({"order": [1, 2, 3], "item": ["pen", "ink", "pad"]})
        >>> paid = pa.record_batch({"order": [3, 1], "amount": [5, 7]})
        >>> with adjoin.DINER(orders.schema, paid.schema, on="order", memory="4MB") as join:
        ...     result = pa.Table.from_batches(join.run([("left", orders), ("right", paid)]))
        >>> sorted(zip(*result.to_pydict().values()))
        [(1, 'pen', 7), (3, 'pad', 5)]

    Cost:
        Time O(log n) to find the matches of a row among n in memory; in a range join O(log² n) for each match
        at worst, however long some of the intervals are. The cleanup phase reads the blocks of one input at
        most once for each time that it fills the memory with blocks of the other. With complete results, a
        batch of n rows reads each page whose keys and times it may match once for every c rows, where c are
        the rows that an eighth of the memory holds at 96 bytes each.

    Reference:
        Bornea, Vassalos, Kotidis, Deligiannakis: Adaptive Join Operators for Result Rate Optimization on
        Streaming Inputs, IEEE Transactions on Knowledge and Data Engineering, 2010. Algorithms 1 to 4.

        ============ ===================================== ================================
        paper        meaning                               here
        ============ ===================================== ================================
        Algorithm 1  arriving phase                        SpillingJoin._arriving_phase
        Algorithm 2  flushing policy                       ThreeRegions.choose
        Algorithm 3  update of statistics                  ThreeRegions.joined
        Algorithm 4  reactive phase (ReactiveNL)           NestedLoops, Box
        Index_i      tuples in memory                      Storage.inputs
        Disk_i       tuples on disk                        Storage.blocks
        MemThresh    the budget                            memory
        ATS, DTS     moments of arrival and departure      arrived, left
        MaxOuterMem  outer blocks of a reactive phase      max_outer
        MaxNewArr    rows that end a reactive phase        max_new
        WaitThresh   wait before a reactive phase          wait_seconds
        LastLwVal    bound of the lower region             RegionStatistics.lower
        LastUpVal    bound of the upper region             RegionStatistics.upper
        ============ ===================================== ================================

    Departures:
        - Rows come in batches: those of a batch are joined with the tuples in memory, and only then kept.
        - A moment is a number that only grows, and all tuples of a block leave at the same one, so that
          ties cannot hide or repeat a pair.
        - Inputs swap roles at the top of the loop over blocks, and the last inner block is joined, too
          (Algorithm 4, lines 14 to 20).
        - Before the cleanup phase all tuples in memory are written, since those of the two inputs may not
          have met.
        - Matches are credited one by one, to the region of each of the two tuples.
        - Where no tuple had a match since the last flush, the clock sweeps the middle; the upper region,
          which the paper flushes then, holds the latest tuples if keys grow over time.
        - Once an input has ended, tuples of the other leave first: no arrival will probe them.
        - An inner block that cannot match the outer blocks, by its range of keys, is not read.
        - Outer, semi and anti joins, bounds on time and complete results are not in the paper. With complete
          results there are no reactive and no cleanup phase, and pages of about 8 KiB in place of blocks.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        memory: int | str = "64MB",
        *,
        how: str = "inner",
        results: str = "early",
        time: tuple[str, str] | None = None,
        before: Span | None = None,
        after: Span | None = None,
        seed: int = 0,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
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
        policy = ThreeRegions(seed=whole_number("seed", seed, 0))
        options = SpillOptions(
            memory, block_bytes, max_outer, least_outer, max_new, wait_seconds, spill, clock, disk
        )
        if results == "complete":
            inputs = CompleteInputs(
                left, right, on, within, between, suffix, columns, how, time, before, after
            )
            paged = PagedStorage(inputs, options)
            pairs = PairJoin(inputs, paged)
            setting = Setting(inputs, paged, pairs.results, policy)
            super().__init__(inputs, paged, pairs, policy, ReactiveWork(), setting)
            return
        _check_early(results, how, (time, before, after))
        spec = TwoInputs(left, right, on, within, between, suffix, columns)
        storage = Storage(spec, options)
        pairs = PairJoin(spec, storage)
        reactive = NestedLoops(pairs, storage.sizes.max_outer)
        super().__init__(spec, storage, pairs, policy, reactive, None)


def _check_early(results: str, how: str, times: tuple[object, ...]) -> None:
    """Raise an OptionError for what only a join that returns all results at once can do."""
    if results != "early":
        raise OptionError(f'results={results!r} must be "early" or "complete"')
    if how != "inner":
        raise OptionError(
            f'how={how!r} needs results="complete"; with "early", only inner joins are possible'
        )
    if any(option is not None for option in times):
        raise OptionError('time=, before= and after= need results="complete"')
