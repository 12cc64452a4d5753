"""From construction to close: run, pauses, metrics, bad input."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import AdjoinError, OptionError, Pause, SchemaError
from adjoin.operators.clock import SimulatedClock
from tests.conformance.registry import SEMI_STREAM
from tests.conformance.semistream import workloads
from tests.conformance.semistream.script import Item
from tests.conformance.semistream.subjects import LONG_SECONDS, Operator, SemiStreamSubject
from tests.conformance.semistream.workloads import HOWS, Workload
from tests.conformance.subjects import assert_within_budget, collected
from tests.oracle import assert_same_rows

COUNTERS = ("rows_in", "rows_out", "rows_unmatched", "cache_hits", "pages_read", "seeks", "bytes_read")


def made(subject: SemiStreamSubject, workload: Workload, how: str = "left", **options: Any) -> Operator:
    return subject.make(workload.snapshot, how=how, **workload.predicate.options, **options)


@SEMI_STREAM.check(how=HOWS, pause_every=(1, 3))
def check_run(subject: SemiStreamSubject, how: str, pause_every: int) -> None:
    """`run` over batches and pauses returns the same rows and never exceeds the budget."""
    workload = workloads.usual()
    clock = SimulatedClock()
    items: list[Item] = []
    for number, batch in enumerate(workload.batches(60)):
        items += [batch, Pause(0.5)] if number % pause_every == 0 else [batch]
    operator = made(subject, workload, how, clock=clock)

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in operator.run(items):
            assert_within_budget(operator)
            yield batch

    rows = collected(watched(), operator.schema_of(workload.stream.schema))
    operator.close()
    assert_same_rows(rows, workload.expected(how), "run")


@SEMI_STREAM.check()
def check_run_of_nothing(subject: SemiStreamSubject) -> None:
    for items in ([], [Pause(1.0)], [Pause(1.0), Pause(2.0)]):
        operator = made(subject, workloads.usual(), clock=SimulatedClock())
        assert list(operator.run(items)) == []
        operator.close()


@SEMI_STREAM.check(how=HOWS)
def check_idle_answers_everything(subject: SemiStreamSubject, how: str) -> None:
    """After a long pause no row is pending: all are answered before the stream ends."""
    workload = workloads.usual()
    operator = made(subject, workload, how)
    batches = [out for batch in workload.batches(100) for out in operator.push(batch)]
    batches += operator.idle(LONG_SECONDS)
    rows = collected(batches, operator.schema_of(workload.stream.schema))
    assert_same_rows(rows, workload.expected(how), "after idle")
    assert sum(len(batch) for batch in operator.finish()) == 0
    operator.close()


@SEMI_STREAM.check()
def check_idle_between(subject: SemiStreamSubject) -> None:
    """Rows that follow a pause are answered like those before it."""
    workload = workloads.groups()
    operator = made(subject, workload)
    batches: list[pa.RecordBatch] = []
    for batch in workload.batches(20):
        batches += operator.idle(0.01)
        batches += operator.push(batch)
        batches += operator.idle(LONG_SECONDS)
    batches += operator.finish()
    rows = collected(batches, operator.schema_of(workload.stream.schema))
    operator.close()
    assert_same_rows(rows, workload.expected("left"), "idle between")


@SEMI_STREAM.check(how=HOWS, workload=("usual", "groups", "hot_key"))
def check_metrics(subject: SemiStreamSubject, how: str, workload: str) -> None:
    """Counters never decrease, and their final values are right."""
    held = getattr(workloads, workload)()
    operator = made(subject, held, how)
    before = dict.fromkeys(COUNTERS, 0)
    given = 0
    for batch in [*held.batches(80), None]:
        outputs = operator.finish() if batch is None else operator.push(batch)
        given += sum(len(out) for out in outputs)
        after = operator.metrics()
        fallen = [name for name in COUNTERS if after[name] < before[name]]
        assert not fallen, f"{fallen} fell from {before} to {after}"
        before = after
    operator.close()
    _assert_true(before, held, given)


def _assert_true(metrics: dict[str, int], workload: Workload, given: int) -> None:
    assert metrics["rows_in"] == len(workload.stream)
    assert metrics["rows_out"] == given
    assert metrics["rows_unmatched"] == workload.unmatched()
    assert 0 <= metrics["cache_hits"] <= metrics["rows_in"]
    assert 0 <= metrics["seeks"] <= metrics["pages_read"]
    assert metrics["bytes_read"] >= 4096 * metrics["pages_read"]
    assert (metrics["bytes_read"] == 0) == (metrics["pages_read"] == 0)
    assert metrics["seconds_waiting_max"] >= 0.0


@SEMI_STREAM.check(needs=["store"])
def check_reads_are_counted(subject: SemiStreamSubject) -> None:
    """Nothing is cached at first, so the first answers need reads."""
    workload = workloads.usual()
    operator = made(subject, workload, "inner")
    for batch in workload.batches(80):
        list(operator.push(batch))
    list(operator.finish())
    metrics = operator.metrics()
    operator.close()
    assert metrics["pages_read"] > 0
    assert metrics["cache_hits"] < metrics["rows_in"]


@SEMI_STREAM.check(waiting_seconds=(0.0, 5.0))
def check_waiting_is_measured(subject: SemiStreamSubject, waiting_seconds: float) -> None:
    """No row is reported to have waited longer than the time that passed."""
    workload = workloads.usual()
    clock = SimulatedClock()
    operator = made(subject, workload, clock=clock)
    for batch in workload.batches(100):
        list(operator.push(batch))
        clock.sleep(waiting_seconds)
    list(operator.idle(waiting_seconds))
    list(operator.finish())
    passed = clock.now()
    waited = operator.metrics()["seconds_waiting_max"]
    operator.close()
    assert 0.0 <= waited <= passed + 1e-9, f"{waited} s waited, {passed} s passed"


@SEMI_STREAM.check()
def check_close_twice(subject: SemiStreamSubject) -> None:
    operator = made(subject, workloads.usual())
    list(operator.push(workloads.usual().batches(50)[0]))
    operator.close()
    operator.close()


@SEMI_STREAM.check()
def check_two_at_once(subject: SemiStreamSubject) -> None:
    """Two operators over one master do not affect each other."""
    workload = workloads.usual()
    operators = [made(subject, workload, how) for how in ("left", "anti")]
    outputs: list[list[pa.RecordBatch]] = [[], []]
    for batch in workload.batches(90):
        for operator, output in zip(operators, outputs, strict=True):
            output.extend(operator.push(batch))
    for how, operator, output in zip(("left", "anti"), operators, outputs, strict=True):
        output.extend(operator.finish())
        rows = collected(output, operator.schema_of(workload.stream.schema))
        operator.close()
        assert_same_rows(rows, workload.expected(how), how)


@SEMI_STREAM.check()
def check_unknown_how(subject: SemiStreamSubject) -> None:
    with pytest.raises(OptionError, match="outer"):
        made(subject, workloads.usual(), "outer")


@SEMI_STREAM.check()
def check_unknown_columns(subject: SemiStreamSubject) -> None:
    with pytest.raises(SchemaError, match="colour"):
        made(subject, workloads.usual(), columns=["colour"])


@SEMI_STREAM.check()
def check_on_must_name_the_key(subject: SemiStreamSubject) -> None:
    """`on` must name the master's key."""
    with pytest.raises(SchemaError, match="price"):
        subject.make(workloads.usual().snapshot, on="price")


@SEMI_STREAM.check()
def check_missing_stream_column(subject: SemiStreamSubject) -> None:
    operator = made(subject, workloads.usual())
    stream = pa.table({"product": [1, 2]})
    with pytest.raises(SchemaError, match="'k'"):
        operator.schema_of(stream.schema)
    with pytest.raises(SchemaError, match="'k'"):
        list(operator.push(stream.to_batches()[0]))
    operator.close()


@SEMI_STREAM.check()
def check_key_of_another_type(subject: SemiStreamSubject) -> None:
    operator = made(subject, workloads.usual())
    stream = pa.table({"k": ["one", "two"]})
    with pytest.raises(SchemaError, match=r"string.*int64|int64.*string"):
        list(operator.push(stream.to_batches()[0]))
    operator.close()


@SEMI_STREAM.check()
def check_name_taken_twice(subject: SemiStreamSubject) -> None:
    """The suffix produces a name that already exists."""
    operator = made(subject, workloads.usual())
    stream = pa.table({"k": [1], "price": [2], "price_master": [3]})
    with pytest.raises(SchemaError, match="price_master"):
        operator.schema_of(stream.schema)
    operator.close()


@SEMI_STREAM.check(needs=["range"], key=("string", "int64+int64"))
def check_range_without_order(subject: SemiStreamSubject, key: str) -> None:
    workload = workloads.of_key_type(key)
    with pytest.raises(AdjoinError, match="k0"):
        subject.make(workload.snapshot, on=workload.predicate.on, within=1)


@SEMI_STREAM.check()
def check_refused_batch_changes_nothing(subject: SemiStreamSubject) -> None:
    """A rejected batch has no effect on the rows around it."""
    workload = workloads.usual()
    operator = made(subject, workload)
    stranger = pa.table({"product": np.arange(3)}).to_batches()[0]
    batches: list[pa.RecordBatch] = []
    for batch in workload.batches(200):
        batches += operator.push(batch)
        with pytest.raises(SchemaError):
            list(operator.push(stranger))
    batches += operator.finish()
    rows = collected(batches, operator.schema_of(workload.stream.schema))
    operator.close()
    assert_same_rows(rows, workload.expected("left"), "refused batches between")
