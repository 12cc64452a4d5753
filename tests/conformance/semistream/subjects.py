"""The operators under test: what each promises, and how a check drives it."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
from tests.conformance.semistream.reference import Reference
from tests.conformance.semistream.script import Item, Refresh
from tests.conformance.semistream.snapshots import Shelf, Snapshot
from tests.conformance.semistream.workloads import Workload
from tests.conformance.subjects import Subject, assert_sound, assert_within_budget, collected
from tests.oracle import assert_same_rows

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
class SemiStreamSubject(Subject):
    """An operator that joins a stream with a master.

    It may be able of "range" (within, between), "filter" (asks the master's membership filter before it
    reads), "store" (reads a master on disk) and "thresholds" (takes input_rows, stream_rows and max_scan).

    Attributes:
        room_bytes: Its memory beyond the least, unless a check says otherwise.
    """

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
    """An operator with its pages in a file, which a predecessor may have left, and with a shared index."""

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
    """With phases so short that the cache holds rows for most of a stream."""

    def __init__(self, master: Any, memory: Any, **options: Any) -> None:
        super().__init__(master, memory, **{"input_rows": 16, "stream_rows": 24, **options})


class SSIJOnPageFile(OnPageFile, SSIJ):
    """The join of Spark tasks."""


_SSIJ = frozenset({"range", "filter", "store", "thresholds"})
_QUEUED = frozenset({"range", "filter", "store"})
_SCANNING = frozenset({"range", "store"})
OPERATORS = [
    SemiStreamSubject("Reference", Reference, frozenset({"range"}), all_types=True),
    SemiStreamSubject("SSIJ", SSIJ, _SSIJ, all_types=True, quick_one_in=4),
    SemiStreamSubject("SSIJOnPageFile", SSIJOnPageFile, _SSIJ),
    SemiStreamSubject("FrontStagedSSIJ", FrontStage(SSIJ), _SSIJ, all_types=True, room_bytes=2 * ROOM_BYTES),
    SemiStreamSubject("FrontStagedSSIJOnPageFile", FrontOnPageFile, _SSIJ, room_bytes=4 * ROOM_BYTES),
    SemiStreamSubject("HybridJoin", HybridJoin, _QUEUED),
    SemiStreamSubject("XHybridJoin", XHybridJoin, _QUEUED),
    SemiStreamSubject("IndexNestedLoopJoin", IndexNestedLoopJoin, _QUEUED),
    SemiStreamSubject("MeshJoin", MeshJoin, _SCANNING, all_types=True),
    SemiStreamSubject("RMeshJoin", RMeshJoin, _SCANNING),
    SemiStreamSubject("CMeshJoin", CMeshJoin, _SCANNING, room_bytes=2 * ROOM_BYTES),
    SemiStreamSubject("AutoJoin", AutoJoin, _SCANNING),
    SemiStreamSubject("FrontStagedXHybridJoin", FrontStage(XHybridJoin), _QUEUED, room_bytes=2 * ROOM_BYTES),
]


@dataclass
class Step:
    """One item of the script and the results it produced."""

    item: Item | None
    batches: list[pa.RecordBatch]


def play(subject: SemiStreamSubject, operator: Operator, items: Iterable[Item]) -> list[Step]:
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


def _outputs(subject: SemiStreamSubject, operator: Operator, item: Item | None) -> Iterator[pa.RecordBatch]:
    if item is None:
        return operator.finish()
    if isinstance(item, Pause):
        return operator.idle(item.seconds)
    if isinstance(item, Refresh):
        return operator.refresh(subject.master_of(item.snapshot))
    return operator.push(item)


def answer(
    subject: SemiStreamSubject, workload: Workload, items: Iterable[Item], how: str = "inner", **options: Any
) -> pa.Table:
    """All results for the script; budget and schema are checked along the way."""
    operator = subject.make(workload.snapshot, how=how, **workload.predicate.options, **options)
    try:
        schema = operator.schema_of(workload.stream.schema)
        steps = play(subject, operator, items)
        return collected((batch for step in steps for batch in step.batches), schema)
    finally:
        operator.close()


def assert_exact(
    subject: SemiStreamSubject,
    workload: Workload,
    items: Iterable[Item] | None = None,
    how: str = "inner",
    **options: Any,
) -> None:
    """The operator returns exactly the oracle's rows for this workload."""
    script = workload.batches() if items is None else items
    shape = {name: options[name] for name in ("columns", "suffix") if name in options}
    actual = answer(subject, workload, script, how, **options)
    assert_same_rows(
        actual, workload.expected(how, **shape), f"{subject.name}, {workload.name}, {how}, {options}"
    )
