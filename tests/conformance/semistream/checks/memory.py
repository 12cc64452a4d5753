"""The budget is never exceeded, every budget gives the same rows, and one that is too small is an error."""

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import BudgetError
from tests.conformance.batches import numbered
from tests.conformance.registry import SEMI_STREAM
from tests.conformance.semistream import workloads
from tests.conformance.semistream.snapshots import Snapshot
from tests.conformance.semistream.subjects import SemiStreamSubject, assert_exact
from tests.conformance.semistream.workloads import HOWS, Workload
from tests.conformance.values import strings
from tests.oracle import Predicate

LADDER = ("+0", "+1", "+1000", "+4096", "+10 %", "+25 %", "+50 %", "+100 %", "+300 %", "all")


def rung(subject: SemiStreamSubject, snapshot: Snapshot, step: str) -> int:
    """A budget between the least that works and one that holds everything."""
    least = subject.least(snapshot)
    if step == "all":
        return subject.all_in_memory(snapshot)
    if step.endswith("%"):
        return least + least * int(step.strip("+ %")) // 100
    return least + int(step)


@SEMI_STREAM.check(how=HOWS, budget=LADDER)
def check_budgets(subject: SemiStreamSubject, how: str, budget: str) -> None:
    workload = workloads.large()
    memory = rung(subject, workload.snapshot, budget)
    assert_exact(subject, workload, workload.batches(400), how=how, memory=memory)


@SEMI_STREAM.check(budget=LADDER)
def check_groups_budgets(subject: SemiStreamSubject, budget: str) -> None:
    workload = workloads.groups()
    assert_exact(subject, workload, how="left", memory=rung(subject, workload.snapshot, budget))


@SEMI_STREAM.check(needs=["range"], budget=LADDER)
def check_range_budgets(subject: SemiStreamSubject, budget: str) -> None:
    workload = workloads.large_between()
    assert_exact(subject, workload, how="left", memory=rung(subject, workload.snapshot, budget))


@SEMI_STREAM.check(batch_rows=(1, 51, 10_000), how=("inner", "left"))
def check_least_batch_rows(subject: SemiStreamSubject, batch_rows: int, how: str) -> None:
    workload = workloads.usual()
    memory = subject.least(workload.snapshot)
    assert_exact(subject, workload, workload.batches(batch_rows), how=how, memory=memory)


@SEMI_STREAM.check(shape=workloads.SHAPES)
def check_least_shape(subject: SemiStreamSubject, shape: str) -> None:
    workload = workloads.shape(shape)
    assert_exact(subject, workload, how="left", memory=subject.least(workload.snapshot))


@SEMI_STREAM.check()
def check_budget_is_the_one_given(subject: SemiStreamSubject) -> None:
    held = workloads.usual().snapshot
    memory = subject.least(held) + 12_345
    operator = subject.make(held, memory=memory, on="k")
    metrics = operator.metrics()
    operator.close()
    assert metrics["memory_bytes"] == memory
    assert 0 < metrics["peak_bytes"] <= memory


@SEMI_STREAM.check(missing_bytes=(1, 1024, None), shape=("usual", "groups", "empty master"))
def check_below_least(subject: SemiStreamSubject, missing_bytes: int | None, shape: str) -> None:
    workload = workloads.shape(shape) if shape in workloads.SHAPES else getattr(workloads, shape)()
    least = subject.least(workload.snapshot)
    memory = 1 if missing_bytes is None else least - missing_bytes
    with pytest.raises(BudgetError) as error:
        subject.make(workload.snapshot, memory=memory, on="k").close()
    assert least in numbers_in(str(error.value)), f"{least} bytes would do, but the error says: {error.value}"


def numbers_in(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d|\d", text)]


@SEMI_STREAM.check(row_bytes=(5_000, 60_000, 1_000_000), how=("inner", "anti"))
def check_wide_stream_rows(subject: SemiStreamSubject, row_bytes: int, how: str) -> None:
    """A stream row too wide for the budget: correct results, or an error that names a sufficient budget."""
    widths = [row_bytes if i % 7 == 3 else 5 for i in range(20)]
    stream = numbered(
        pa.table({"k": pa.array(np.arange(20) * 60), "note": ["n" * width for width in widths]})
    )
    workload = Workload("wide rows", workloads.usual().snapshot, stream, Predicate("k"))
    memory = subject.least(workload.snapshot)
    try:
        assert_exact(subject, workload, workload.batches(6), how=how, memory=memory)
    except BudgetError as error:
        named = max(numbers_in(str(error)))
    else:
        return
    assert named > memory, "the error names no budget that works"
    assert_exact(subject, workload, workload.batches(6), how=how, memory=named)


@SEMI_STREAM.check(row_bytes=(1, 50, 2_000), budget=("+0", "+25 %", "+300 %"), batch_rows=(100, 1_000))
def check_row_widths(subject: SemiStreamSubject, row_bytes: int, budget: str, batch_rows: int) -> None:
    """Rows of ordinary width, many times more than the budget holds."""
    base = workloads.large()
    stream = base.stream.append_column(
        "note", strings(len(base.stream), np.random.default_rng(0), row_bytes + 1)
    )
    workload = Workload(f"rows of {row_bytes} bytes", base.snapshot, stream, base.predicate)
    memory = rung(subject, workload.snapshot, budget)
    assert_exact(subject, workload, workload.batches(batch_rows), how="left", memory=memory)


@SEMI_STREAM.check()
def check_failed_construction_leaves_nothing(subject: SemiStreamSubject) -> None:
    """An operator whose construction failed does not affect the next one."""
    workload = workloads.usual()
    with suppress(BudgetError):
        subject.make(workload.snapshot, memory=1, on="k")
    assert_exact(subject, workload, how="inner")


@SEMI_STREAM.check(input_rows=(1, 10, 100_000), stream_rows=(1, 10, 100_000), needs=["thresholds"])
def check_thresholds(subject: SemiStreamSubject, input_rows: int, stream_rows: int) -> None:
    """How many rows are collected before work starts affects speed only."""
    options: dict[str, Any] = {"input_rows": input_rows, "stream_rows": stream_rows}
    workload = workloads.usual()
    assert_exact(subject, workload, workload.batches(50), how="left", **options)
    assert_exact(subject, workload, workload.batches(50), memory=subject.least(workload.snapshot), **options)
