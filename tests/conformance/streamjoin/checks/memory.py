"""The budget is never exceeded, every budget gives the same results, and errors name the least one."""

from contextlib import suppress

import pyarrow as pa
import pytest

from adjoin import BudgetError
from tests.conformance.registry import STREAM_JOIN
from tests.conformance.streamjoin import workloads
from tests.conformance.streamjoin.checks.exact import by_side
from tests.conformance.streamjoin.subjects import (
    StreamJoinSubject,
    answer,
    assert_exact,
    numbers_after,
    results_of,
    watched,
)
from tests.conformance.streamjoin.workloads import SHAPES, Workload, rows_of, two, with_pauses
from tests.conformance.subjects import collected
from tests.oracle import Predicate, assert_same_rows

LADDER = ("+0", "+1", "+1000", "+4096", "+10 %", "+25 %", "+50 %", "+100 %", "+300 %")
WORKLOADS = ("usual", "string_key", "usual_within", "usual_between", "chain")


def rung(subject: StreamJoinSubject, workload: Workload, step: str) -> int:
    """A budget at or above the least that works."""
    least = subject.least(workload)
    if step.endswith("%"):
        return least + least * int(step.strip("+ %")) // 100
    return least + int(step)


@STREAM_JOIN.check(needs=["spill"], budget=LADDER, order=("in turn", "left first"))
def check_budgets(subject: StreamJoinSubject, budget: str, order: str) -> None:
    held = workloads.usual()
    script = with_pauses(held.script(order=order), 5, 0.2)
    assert_exact(subject, held, script, memory=rung(subject, held, budget))


@STREAM_JOIN.check(needs=["spill", "range"], workload=("usual_within", "usual_between"), budget=LADDER)
def check_range_budgets(subject: StreamJoinSubject, workload: str, budget: str) -> None:
    held = getattr(workloads, workload)()
    assert_exact(subject, held, with_pauses(held.script(), 5, 0.2), memory=rung(subject, held, budget))


@STREAM_JOIN.check(needs=["many inputs"], budget=LADDER)
def check_three_budgets(subject: StreamJoinSubject, budget: str) -> None:
    held = workloads.chain()
    assert_exact(subject, held, with_pauses(held.script(), 5, 0.2), memory=rung(subject, held, budget))


@STREAM_JOIN.check(needs=["spill"], batch_rows=(1, 51, 10_000))
def check_least_batch_rows(subject: StreamJoinSubject, batch_rows: int) -> None:
    held = workloads.hot_key()
    assert_exact(subject, held, held.script(batch_rows, "random"), memory=subject.least(held))


@STREAM_JOIN.check(missing_bytes=(1, 1024, None), workload=WORKLOADS)
def check_below_least(subject: StreamJoinSubject, missing_bytes: int | None, workload: str) -> None:
    """The error names the least budget, and that budget works."""
    held = getattr(workloads, workload)()
    if not set(needs_of(held)) <= subject.able:
        return
    least = subject.least(held)
    memory = 1 if missing_bytes is None else least - missing_bytes
    with pytest.raises(BudgetError) as error:
        subject.make(held, memory=memory).close()
    assert least in numbers_after("memory=", str(error.value)), f"{least} bytes would do, but: {error.value}"
    subject.make(held, memory=least).close()


def needs_of(workload: Workload) -> list[str]:
    """What a join must be able to do to run it."""
    ranges = ["range"] if any(link.predicate.is_range for link in workload.links) else []
    return [*ranges, *(["many inputs"] if len(workload.inputs) > 2 else [])]


@STREAM_JOIN.check()
def check_budget_is_the_one_given(subject: StreamJoinSubject) -> None:
    held = workloads.shape("one row each")
    memory = subject.least(held) + 12_345
    _, metrics = answer(subject, held, memory=memory)
    assert metrics["memory_bytes"] == memory
    assert 0 < metrics["peak_bytes"] <= memory


@STREAM_JOIN.check(needs=["spill"], shape=SHAPES)
def check_least_shape(subject: StreamJoinSubject, shape: str) -> None:
    held = workloads.shape(shape)
    assert_exact(subject, held, memory=subject.least(held))


@STREAM_JOIN.check(needs=["spill"], row_bytes=(25_000, 60_000), side=("left", "right"))
def check_wide_row(subject: StreamJoinSubject, row_bytes: int, side: str) -> None:
    """A row too wide for the budget is refused, the join goes on, and the error names enough memory."""
    held = workloads.shape("all keys equal")
    wide = with_wide_row(by_side(held, 10)[side][0][1], row_bytes)
    join = subject.make(held)
    found: list[pa.RecordBatch] = []
    messages: set[str] = set()
    for item in held.script(10):
        found += watched(join, results_of(join, item))
        for call in (join.push, join.offer):
            with pytest.raises(BudgetError) as refused:
                call(side, wide)
            messages.add(str(refused.value))
    found += watched(join, join.finish())
    results = collected(found, join.schema)
    join.close()
    assert_same_rows(results, subject.expected(held), "wide rows were refused")
    for message in messages:
        richer = subject.make(held, **enough_by(message))
        watched(richer, richer.push(side, wide))
        watched(richer, richer.finish())
        richer.close()


def enough_by(message: str) -> dict[str, int]:
    """The options that an error names as sufficient."""
    enough = {"memory": max(numbers_after("memory=", message))}
    if "block_bytes=" in message:
        enough["block_bytes"] = numbers_after("block_bytes=", message)[-1]
    return enough


def with_wide_row(batch: pa.RecordBatch, row_bytes: int) -> pa.RecordBatch:
    """The batch with a note of `row_bytes` bytes in one row."""
    at = batch.schema.names.index("note")
    notes = ["w" * (row_bytes if row == 5 else 9) for row in range(len(batch))]
    return batch.set_column(at, batch.schema.field(at), pa.array(notes))


@STREAM_JOIN.check(needs=["spill"], row_bytes=(1, 50, 1_500), budget=("+0", "+25 %"))
def check_row_widths(subject: StreamJoinSubject, row_bytes: int, budget: str) -> None:
    keys = [side["k"].combine_chunks() for side in workloads.usual().inputs.values()]
    sides = [rows_of({"k": key}, prefix, 1, row_bytes + 1) for prefix, key in zip("lr", keys, strict=True)]
    held = two(f"rows of {row_bytes} bytes", sides, Predicate("k"), spills=False)
    assert_exact(subject, held, memory=rung(subject, held, budget))


@STREAM_JOIN.check()
def check_failed_construction_leaves_nothing(subject: StreamJoinSubject) -> None:
    """A join whose construction failed does not affect the next one."""
    held = workloads.usual()
    with suppress(BudgetError):
        subject.make(held, memory=1)
    assert_exact(subject, held)
