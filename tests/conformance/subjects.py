"""The operators under test: what each promises, and how a check drives it."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from adjoin import (
    SSIJ,
    AutoJoin,
    CMeshJoin,
    FrontStage,
    HybridJoin,
    IndexNestedLoopJoin,
    MeshJoin,
    Pause,
    RMeshJoin,
    XHybridJoin,
)
from adjoin.memory.budget import parse_bytes
from adjoin.memory.page_memory import PageFile
from adjoin.operators.clock import SimulatedClock
from tests.conformance.reference import Reference
from tests.conformance.scripted import Item, Refresh
from tests.conformance.snapshots import Shelf, Snapshot
from tests.conformance.workloads import Workload
from tests.oracle import assert_same_rows, assert_same_schema

LONG_SECONDS = 3600.0
ROOM_BYTES = 64 << 10


class Operator(Protocol):
    """What every semi-stream operator can do."""

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...
    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]: ...
    def refresh(self, master: Any) -> Iterator[pa.RecordBatch]: ...
    def finish(self) -> Iterator[pa.RecordBatch]: ...
    def run(self, items: Iterable[Any]) -> Iterator[pa.RecordBatch]: ...
    def metrics(self) -> dict[str, Any]: ...
    def close(self) -> None: ...
    def schema_of(self, stream: pa.Schema) -> pa.Schema: ...


@dataclass(frozen=True)
class Subject:
    """An operator under test.

    Attributes:
        name: Shown in the test's id.
        kind: The class.
        able: What it can do beyond equality: "range" (within, between), "filter" (asks the master's
            membership filter before it reads), "store" (reads a master on disk), "thresholds" (takes
            input_rows, stream_rows and max_scan).
        one_of: `make test` runs one of so many settings of every check; `make test-slow` the others.
        room_bytes: What it is given beyond the least, unless a check says otherwise.
    """

    name: str
    kind: Callable[..., Operator] = field(repr=False)
    able: frozenset[str] = frozenset()
    one_of: int = 1
    room_bytes: int = ROOM_BYTES

    def master_of(self, snapshot: Snapshot) -> Any:
        return snapshot.master if "store" in self.able else snapshot

    def make(self, snapshot: Snapshot, memory: int | None = None, **options: Any) -> Operator:
        room = self.least(snapshot) + self.room_bytes if memory is None else memory
        return self.kind(self.master_of(snapshot), memory=room, **{"clock": SimulatedClock(), **options})

    def least(self, *snapshots: Snapshot) -> int:
        """The least budget that works for all of these versions."""
        kind: Any = self.kind
        return max(int(kind.least_memory(self.master_of(snapshot))) for snapshot in snapshots)

    def all_in_memory(self, snapshot: Snapshot) -> int:
        return self.least(snapshot) + 4 * snapshot.table.nbytes + (8 << 20)


class OnPageFile:
    """An operator with memory in a file that the one before may have left, and an index that all share."""

    _ended: bool

    def __init__(self, master: Any, memory: Any, **options: Any) -> None:
        self.file = PageFile(Shelf.page_file(), parse_bytes(memory))
        make: Any = super().__init__
        try:
            make(master, memory=memory, pages=self.file, shared_index=True, **options)
        except BaseException:
            self.file.close()
            raise

    @classmethod
    def least_memory(cls, master: Any, **_: Any) -> int:
        least: Any = super()
        return int(least.least_memory(master, pages=PageFile, shared_index=True))

    def metrics(self) -> dict[str, float]:
        behind: Any = super()
        metrics: dict[str, float] = behind.metrics()
        if not self._ended:
            assert os.stat(self.file.path).st_blocks * 512 <= metrics["memory_bytes"]
        return metrics

    def close(self) -> None:
        behind: Any = super()
        behind.close()
        self.file.close()
        Shelf.page_files.add(self.file.path)


class FrontOnPageFile(OnPageFile, FrontStage(SSIJ)):  # type: ignore[misc]
    """With phases so short that most of a stream comes when there are rows in the cache."""

    def __init__(self, master: Any, memory: Any, **options: Any) -> None:
        super().__init__(master, memory, **{"input_rows": 16, "stream_rows": 24, **options})


class SSIJOnPageFile(OnPageFile, SSIJ):
    """The join of Spark tasks."""


_SSIJ = frozenset({"range", "filter", "store", "thresholds"})
_QUEUED = frozenset({"range", "filter", "store"})
_SCANNING = frozenset({"range", "store"})
OPERATORS = [
    Subject("Reference", Reference, frozenset({"range"}), one_of=12),
    Subject("SSIJ", SSIJ, _SSIJ, one_of=4),
    Subject("SSIJOnPageFile", SSIJOnPageFile, _SSIJ, one_of=12),
    Subject("FrontStagedSSIJ", FrontStage(SSIJ), _SSIJ, one_of=12, room_bytes=2 * ROOM_BYTES),
    Subject(
        "FrontStagedSSIJOnPageFile",
        FrontOnPageFile,
        _SSIJ,
        one_of=12,
        room_bytes=4 * ROOM_BYTES,
    ),
    Subject("HybridJoin", HybridJoin, _QUEUED, one_of=12),
    Subject("XHybridJoin", XHybridJoin, _QUEUED, one_of=12),
    Subject("IndexNestedLoopJoin", IndexNestedLoopJoin, _QUEUED, one_of=12),
    Subject("MeshJoin", MeshJoin, _SCANNING, one_of=12),
    Subject("RMeshJoin", RMeshJoin, _SCANNING, one_of=12),
    Subject("CMeshJoin", CMeshJoin, _SCANNING, one_of=12, room_bytes=2 * ROOM_BYTES),
    Subject("AutoJoin", AutoJoin, frozenset({"range", "store"}), one_of=12),
    Subject("FrontStagedXHybridJoin", FrontStage(XHybridJoin), _QUEUED, one_of=12, room_bytes=2 * ROOM_BYTES),
]


@dataclass
class Step:
    """One item of the script, and what came out while it was worked on."""

    item: Item | None
    batches: list[pa.RecordBatch]


def play(subject: Subject, operator: Operator, items: Iterable[Item]) -> list[Step]:
    """Feed the script to the operator, watching its budget after every step and every batch."""
    steps = []
    for item in [*items, None]:
        batches = []
        for batch in _outputs(subject, operator, item):
            assert_within_budget(operator)
            batches.append(batch)
        assert_within_budget(operator)
        assert_sound(operator)
        steps.append(Step(item, batches))
    return steps


def _outputs(subject: Subject, operator: Operator, item: Item | None) -> Iterator[pa.RecordBatch]:
    if item is None:
        return operator.finish()
    if isinstance(item, Pause):
        return operator.idle(item.seconds)
    if isinstance(item, Refresh):
        return operator.refresh(subject.master_of(item.snapshot))
    return operator.push(item)


def assert_within_budget(operator: Operator) -> None:
    metrics = operator.metrics()
    assert metrics["peak_bytes"] <= metrics["memory_bytes"], (
        f"{metrics['peak_bytes']} bytes accounted of {metrics['memory_bytes']} given"
    )


def assert_sound(operator: Operator) -> None:
    """The operator's own invariants hold, if it can say them."""
    check_invariants = getattr(operator, "check_invariants", None)
    if check_invariants is not None:
        check_invariants()


def collected(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches as one table; each of them must have the schema that was promised."""
    held = list(batches)
    for batch in held:
        assert_same_schema(batch.schema, schema)
        batch.validate(full=True)
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in held], schema)


def answer(
    subject: Subject, workload: Workload, items: Iterable[Item], how: str = "inner", **options: Any
) -> pa.Table:
    """All rows that the operator gives for the script, budget and schema watched on the way."""
    operator = subject.make(workload.snapshot, how=how, **workload.predicate.options, **options)
    try:
        schema = operator.schema_of(workload.stream.schema)
        steps = play(subject, operator, items)
        return collected((batch for step in steps for batch in step.batches), schema)
    finally:
        operator.close()


def assert_exact(
    subject: Subject,
    workload: Workload,
    items: Iterable[Item] | None = None,
    how: str = "inner",
    **options: Any,
) -> None:
    """The operator gives exactly the oracle's rows for this workload."""
    script = workload.batches() if items is None else items
    shape = {name: options[name] for name in ("columns", "suffix") if name in options}
    actual = answer(subject, workload, script, how, **options)
    assert_same_rows(
        actual, workload.expected(how, **shape), f"{subject.name}, {workload.name}, {how}, {options}"
    )
