"""A snapshot is complete: a join restored from it returns exactly the results that are missing."""

from collections.abc import Iterable

import pyarrow as pa
import pytest

from adjoin import AdjoinError
from tests.conformance.registry import STREAM_JOIN
from tests.conformance.streamjoin import workloads
from tests.conformance.streamjoin.checks.exact import MEMORY, RANGE, THREE, by_side
from tests.conformance.streamjoin.subjects import (
    Join,
    StreamJoinSubject,
    results_of,
    watched,
)
from tests.conformance.streamjoin.workloads import Arrival, Workload, with_pauses
from tests.conformance.subjects import assert_sound, collected
from tests.oracle import assert_same_rows

COUNTERS = (
    *("rows_in", "rows_out", "results_online", "results_reactive", "results_cleanup"),
    *("blocks_flushed", "input_buffer_rows_max"),
)


def assert_exact_over_snapshots(
    subject: StreamJoinSubject, workload: Workload, script: Iterable[Arrival], where: str
) -> None:
    """Replacing the join by a restored one after every item changes neither results nor counters."""
    join = subject.make(workload, **MEMORY[where])
    found: list[pa.RecordBatch] = []
    for item in script:
        found += watched(join, results_of(join, item))
        join = successor(subject, workload, join, where)
    found += watched(join, join.finish())
    metrics = join.metrics()
    results = collected(found, join.schema)
    join.close()
    assert_same_rows(results, subject.expected(workload), f"{subject.name}, {workload.name}, restored")
    assert metrics["rows_in"] == sum(map(len, workload.inputs.values()))
    assert metrics["rows_out"] == len(results)
    assert (metrics["blocks_flushed"] > 0) == (where == "on disk" and subject.spills)


def successor(subject: StreamJoinSubject, workload: Workload, join: Join, where: str) -> Join:
    """A new join restored from a snapshot of this one, which is closed."""
    after = subject.make(workload, **MEMORY[where])
    after.restore(list(join.snapshot()))
    told = [{name: each.metrics()[name] for name in COUNTERS} for each in (join, after)]
    assert told[0] == told[1]
    join.close()
    assert_sound(after)
    return after


@STREAM_JOIN.check(order=("in turn", "left first", "random"), where=MEMORY)
def check_restored_after_every_batch(subject: StreamJoinSubject, order: str, where: str) -> None:
    held = workloads.usual()
    assert_exact_over_snapshots(subject, held, held.script(order=order), where)


@STREAM_JOIN.check(seconds=(0.03, 0.3))
def check_restored_after_every_pause(subject: StreamJoinSubject, seconds: float) -> None:
    """Also in the middle of work on disk that a pause started."""
    held = workloads.hot_key()
    assert_exact_over_snapshots(subject, held, with_pauses(held.script(), 2, seconds), "on disk")


@STREAM_JOIN.check(needs=["range"], workload=RANGE)
def check_restored_range(subject: StreamJoinSubject, workload: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact_over_snapshots(subject, held, with_pauses(held.script(), 3, 0.1), "on disk")


@STREAM_JOIN.check(needs=["many inputs"], workload=THREE)
def check_three_restored(subject: StreamJoinSubject, workload: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact_over_snapshots(subject, held, with_pauses(held.script(), 3, 0.1), "on disk")


@STREAM_JOIN.check(side=("left", "right"))
def check_restored_after_the_end_of_a_side(subject: StreamJoinSubject, side: str) -> None:
    held = workloads.usual()
    rows = by_side(held)
    other = "right" if side == "left" else "left"
    ended: list[Arrival] = [(side, None)]
    assert_exact_over_snapshots(subject, held, [*rows[side], *ended, *rows[other]], "on disk")
    join = subject.make(held)
    join.end(side)
    join = successor(subject, held, join, "on disk")
    with pytest.raises(AdjoinError, match=f"{side} input has ended"):
        join.push(*rows[side][0])
    join.close()


@STREAM_JOIN.check()
def check_snapshot_changes_nothing(subject: StreamJoinSubject) -> None:
    """Taking a snapshot has no effect on the join."""
    held = workloads.usual()
    join = subject.make(held)
    found: list[pa.RecordBatch] = []
    for item in held.script():
        before = join.metrics()
        assert list(join.snapshot())
        assert join.metrics() == before
        found += watched(join, results_of(join, item))
    found += watched(join, join.finish())
    results = collected(found, join.schema)
    join.close()
    assert_same_rows(results, subject.expected(held), "snapshots in between")
