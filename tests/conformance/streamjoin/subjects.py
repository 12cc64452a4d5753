"""The joins of streams under test: what each promises, and how a check drives it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Protocol

import pyarrow as pa

from adjoin import (
    DINER,
    MINER,
    RPJ,
    BudgetError,
    HashMergeJoin,
    MJoin,
    Pause,
    ProgressiveMergeJoin,
    SymmetricHashJoin,
    XJoin,
)
from adjoin.arrow.encodings import declared_type
from adjoin.master.device import Cost
from adjoin.operators.clock import SimulatedClock
from tests.conformance.streamjoin.reference import ManyReference, Reference
from tests.conformance.streamjoin.workloads import Arrival, Link, Workload
from tests.conformance.subjects import Subject, assert_sound, assert_within_budget, collected
from tests.oracle import assembled, assert_same_rows, taken

AMPLE = 16 << 20
"""Memory that holds every workload."""
LONG_SECONDS = 3600.0


class Join(Protocol):
    """What every join of streams can do."""

    schema: pa.Schema

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...
    def offer(self, side: str, batch: pa.RecordBatch) -> bool: ...
    def end(self, side: str) -> None: ...
    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]: ...
    def finish(self) -> Iterator[pa.RecordBatch]: ...
    def run(self, arrivals: Iterable[Any]) -> Iterator[pa.RecordBatch]: ...
    def snapshot(self) -> Iterator[tuple[str, bytes]]: ...
    def restore(self, values: Iterable[tuple[str, bytes]]) -> None: ...
    def metrics(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class StreamJoinSubject(Subject):
    """A join of streams.

    It may be able of "spill" (keeps on disk what memory cannot hold), "reactive" (joins what is on disk
    while nothing arrives), "early" (emits a result as soon as its rows are there, if memory holds them),
    "range" (within, between), and takes either "two inputs" or "many inputs".

    Attributes:
        options: What it is given unless a check says otherwise.
    """

    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def spills(self) -> bool:
        return "spill" in self.able

    def make(self, workload: Workload, memory: int | None = None, **options: Any) -> Join:
        """A join on a simulated clock and disk, by default with so little memory that it spills if it can."""
        room = (self.least(workload) if self.spills else AMPLE) if memory is None else memory
        usual = {"clock": SimulatedClock(), "disk": Cost(8e-3, 4e-5), "block_bytes": 4096}
        return self._made(workload, {**usual, **self.options, "memory": room, **options})

    def _made(self, workload: Workload, options: dict[str, Any]) -> Join:
        if "many inputs" in self.able:
            conditions = [text for link in workload.links for text in conditions_of(link)]
            return self.kind(workload.schemas, conditions, **options)
        (link,) = workload.links
        return self.kind(*workload.schemas.values(), **link.predicate.options, **options)

    def least(self, workload: Workload) -> int:
        """The least memory that works, as named by the error for less."""
        return _least(self, workload)

    def expected(self, workload: Workload, suffix: str = "_right") -> pa.Table:
        """The oracle's results in the form of the contract."""
        rows = [pa.array(numbers) for numbers in workload.results]
        if "two inputs" in self.able:
            (link,) = workload.links
            left, right = workload.inputs.values()
            pairs = (workload.results[0], workload.results[1])
            table = assembled(left, right, pairs, link.predicate, "inner", None, suffix)
        else:
            columns = {
                f"{name}_{column}": values
                for (name, table), numbers in zip(workload.inputs.items(), rows, strict=True)
                for column, values in zip(table.column_names, taken(table, numbers).columns, strict=True)
            }
            table = pa.table(columns)
        types = [declared_type(column.type) for column in table.columns]
        return table.cast(pa.schema(list(zip(table.column_names, types, strict=True))))


@cache
def _least(subject: StreamJoinSubject, workload: Workload) -> int:
    try:
        subject.make(workload, memory=1).close()
    except BudgetError as error:
        return numbers_after("memory=", str(error))[-1]
    raise AssertionError(f"{subject.name} takes a memory of one byte")


def numbers_after(name: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(rf"{name}(\d+)", text)]


def conditions_of(link: Link) -> list[str]:
    """The link as the conditions that MINER takes."""
    predicate = link.predicate
    if predicate.between is not None:
        (key,) = predicate.names.values()
        low, high = predicate.between
        return [f'{link.other}."{key}" between {link.one}."{low}" and {link.one}."{high}"']
    pairs = [(f'{link.one}."{one}"', f'{link.other}."{other}"') for one, other in predicate.names.items()]
    if predicate.within is None:
        return [f"{one} = {other}" for one, other in pairs]
    ((one, other),) = pairs
    within = predicate.within
    if isinstance(within, timedelta):
        within = f"interval '{within // timedelta(microseconds=1)} microseconds'"
    return [f"abs({one} - {other}) <= {within}"]


_SPILLING = frozenset({"two inputs", "spill", "early"})
_REACTIVE = _SPILLING | {"reactive"}
_MANY = frozenset({"many inputs", "spill", "early"})
REFERENCES = (
    StreamJoinSubject("StreamReference", Reference, _REACTIVE | {"range"}, all_types=True),
    StreamJoinSubject("ManyReference", ManyReference, _MANY | {"reactive"}),
)
# RPJ has the probing of XJoin and the merging of hash-merge join; MJoin is MINER but for what it flushes.
JOINS = [
    *REFERENCES,
    StreamJoinSubject(
        "DINER", DINER, _REACTIVE | {"range"}, all_types=True, leads=True, options={"max_outer": 3}
    ),
    StreamJoinSubject("SymmetricHashJoin", SymmetricHashJoin, frozenset({"two inputs", "early"})),
    StreamJoinSubject("XJoin", XJoin, _REACTIVE, quick_one_in=24),
    StreamJoinSubject(
        "ProgressiveMergeJoin", ProgressiveMergeJoin, frozenset({"two inputs", "spill", "range"})
    ),
    StreamJoinSubject("HashMergeJoin", HashMergeJoin, _REACTIVE, quick_one_in=24, options={"fan_in": 3}),
    StreamJoinSubject("RPJ", RPJ, _REACTIVE, options={"fan_in": 3}),
    StreamJoinSubject("MINER", MINER, _MANY | {"reactive", "range"}, leads=True, options={"max_outer": 3}),
    StreamJoinSubject("MJoin", MJoin, _MANY | {"range"}, quick_one_in=24),
    StreamJoinSubject("CompleteDINER", DINER, _SPILLING | {"range"}, options={"results": "complete"}),
]


def play(join: Join, arrivals: Iterable[Arrival]) -> list[pa.RecordBatch]:
    """Feed the script to the join, then finish it; the budget is checked after every step and batch."""
    found = []
    for item in arrivals:
        found += watched(join, results_of(join, item))
        assert_sound(join)
    return found + watched(join, join.finish())


def watched(join: Join, results: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The results of a call; the budget is checked after each."""
    found = []
    for batch in results:
        assert_within_budget(join)
        found.append(batch)
    assert_within_budget(join)
    return found


def results_of(join: Join, item: Arrival) -> Iterable[pa.RecordBatch]:
    if isinstance(item, Pause):
        return join.idle(item.seconds)
    side, batch = item
    if batch is None:
        join.end(side)
        return ()
    return join.push(side, batch)


def answer(
    subject: StreamJoinSubject, workload: Workload, script: Iterable[Arrival] | None = None, **options: Any
) -> tuple[pa.Table, dict[str, Any]]:
    """All results for the script, and the metrics at the end."""
    join = subject.make(workload, **options)
    try:
        found = play(join, workload.script() if script is None else script)
        return collected(found, join.schema), join.metrics()
    finally:
        join.close()


def assert_exact(
    subject: StreamJoinSubject, workload: Workload, script: Iterable[Arrival] | None = None, **options: Any
) -> None:
    """The join returns exactly the oracle's rows; with the default memory it must have spilled."""
    found, metrics = answer(subject, workload, script, **options)
    suffix = {"suffix": options["suffix"]} if "suffix" in options else {}
    wanted = subject.expected(workload, **suffix)
    assert_same_rows(found, wanted, f"{subject.name}, {workload.name}, {options}")
    if "memory" not in options and workload.spills and subject.spills:
        assert metrics["blocks_flushed"] > 0, "these rows should not fit in memory"
