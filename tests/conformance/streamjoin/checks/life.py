"""From construction to close: early results, metrics, bad input, and behavior after errors."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from adjoin import AdjoinError, OptionError, Pause, SchemaError
from tests.conformance.registry import STREAM_JOIN
from tests.conformance.streamjoin import workloads
from tests.conformance.streamjoin.checks.exact import MEMORY
from tests.conformance.streamjoin.subjects import (
    AMPLE,
    Join,
    StreamJoinSubject,
    play,
    results_of,
    watched,
)
from tests.conformance.streamjoin.workloads import Arrival, two, with_pauses
from tests.conformance.subjects import assert_within_budget, collected
from tests.oracle import Predicate, assert_same_rows

PHASES = ("results_online", "results_reactive", "results_cleanup")
COUNTERS = (
    *("rows_in", "rows_out", *PHASES, "blocks_flushed", "input_buffer_rows_max"),
    *("pages_read", "seeks", "bytes_read"),
)


@STREAM_JOIN.check(pause_every=(1, 3))
def check_run(subject: StreamJoinSubject, pause_every: int) -> None:
    """`run` over batches, pauses and the end of an input returns the same rows, within the budget."""
    held = workloads.usual()
    ended: list[Arrival] = [("left", None)]
    join = subject.make(held)

    def results() -> Iterator[pa.RecordBatch]:
        for batch in join.run([*with_pauses(held.script(), pause_every, 0.1), *ended]):
            assert_within_budget(join)
            yield batch

    found = collected(results(), join.schema)
    join.close()
    assert_same_rows(found, subject.expected(held), "run")


@STREAM_JOIN.check()
def check_run_of_nothing(subject: StreamJoinSubject) -> None:
    for items in ([], [Pause(1.0)], [Pause(1.0), ("left", None)]):
        join = subject.make(workloads.usual())
        assert list(join.run(items)) == []
        join.close()


@STREAM_JOIN.check(workload=("usual", "hot_key"), where=MEMORY)
def check_metrics(subject: StreamJoinSubject, workload: str, where: str) -> None:
    """Counters never decrease, and their final values are right."""
    held = getattr(workloads, workload)()
    join = subject.make(held, **MEMORY[where])
    before: dict[str, Any] = dict.fromkeys(COUNTERS, 0)
    given = 0
    for item in [*with_pauses(held.script(), 4, 0.2), None]:
        outputs = join.finish() if item is None else results_of(join, item)
        given += sum(len(batch) for batch in outputs)
        after = join.metrics()
        fallen = [name for name in COUNTERS if after[name] < before[name]]
        assert not fallen, f"{fallen} fell from {before} to {after}"
        before = after
    join.close()
    assert before["rows_in"] == sum(map(len, held.inputs.values()))
    assert before["rows_out"] == given == sum(before[name] for name in PHASES)
    assert before["seeks"] <= before["pages_read"]
    assert (before["bytes_read"] == 0) == (before["pages_read"] == 0)
    assert (before["blocks_flushed"] > 0) == (where == "on disk" and subject.spills)


@STREAM_JOIN.check(needs=["early"], order=("in turn", "left first"))
def check_results_come_as_soon_as_their_rows(subject: StreamJoinSubject, order: str) -> None:
    """If memory holds everything, all results are online."""
    held = workloads.usual()
    join = subject.make(held, memory=AMPLE)
    given = sum(len(b) for item in held.script(order=order) for b in results_of(join, item))
    metrics = join.metrics()
    assert list(join.finish()) == []
    join.close()
    assert given == len(held.results[0]) == metrics["results_online"]


@STREAM_JOIN.check(needs=["spill"])
def check_results_come_before_the_end(subject: StreamJoinSubject) -> None:
    """Even if memory holds only a small part of the inputs."""
    held = workloads.hot_key()
    join = subject.make(held)
    given = sum(len(batch) for item in held.script() for batch in results_of(join, item))
    metrics = join.metrics()
    join.close()
    assert metrics["blocks_flushed"] > 0
    assert given > 0
    assert metrics["results_online"] == given


@STREAM_JOIN.check()
def check_close_twice(subject: StreamJoinSubject) -> None:
    held = workloads.usual()
    join = subject.make(held)
    for item in held.script()[:5]:
        list(results_of(join, item))
    join.close()
    join.close()


def assert_ended(join: Join) -> None:
    """Every call but `metrics` and `close` is refused."""
    held = workloads.usual()
    batch = held.inputs["left"].to_batches()[0]
    for call in (lambda: join.push("left", batch), lambda: join.idle(0.1), join.finish):
        with pytest.raises(AdjoinError, match="ended"):
            list(call())
    assert join.metrics()["memory_bytes"] > 0
    join.close()


@STREAM_JOIN.check()
def check_use_after_finish(subject: StreamJoinSubject) -> None:
    join = subject.make(workloads.usual())
    play(join, workloads.usual().script())
    assert_ended(join)


@STREAM_JOIN.check()
def check_use_after_close(subject: StreamJoinSubject) -> None:
    """Results requested before `close` raise an error after it, rather than end early."""
    held = workloads.usual()
    join = subject.make(held)
    for item in held.script()[:5]:
        list(results_of(join, item))
    results = join.finish()
    join.close()
    with pytest.raises(AdjoinError):
        next(results)
    assert_ended(join)


@STREAM_JOIN.check()
def check_use_after_error(subject: StreamJoinSubject) -> None:
    """An error of the source reaches the caller, who can start over with a new join."""
    held = workloads.usual()

    def failing() -> Iterator[Arrival]:
        yield from held.script()[:6]
        raise ConnectionError("the source is gone")

    join = subject.make(held)
    with pytest.raises(ConnectionError, match="the source is gone"):
        list(join.run(failing()))
    join.close()
    again = subject.make(held)
    found = collected(play(again, held.script()), again.schema)
    again.close()
    assert_same_rows(found, subject.expected(held), "after an error of another join")


@STREAM_JOIN.check()
def check_results_must_be_consumed_first(subject: StreamJoinSubject) -> None:
    """A call is refused while results of the previous one are pending, which are still returned."""
    held = workloads.shape("all keys equal")
    join = subject.make(held, memory=AMPLE)
    first, second = (item for item in held.script(100) if isinstance(item, tuple))
    assert first[1] is not None
    assert second[1] is not None
    list(join.push(first[0], first[1]))
    results = join.push(second[0], second[1])
    with pytest.raises(AdjoinError, match="consume"):
        list(join.idle(1.0))
    given = [*results, *join.finish()]
    rows = collected(given, join.schema)
    join.close()
    assert_same_rows(rows, subject.expected(held), "after a call that was refused")


@STREAM_JOIN.check()
def check_two_at_once(subject: StreamJoinSubject) -> None:
    """Two joins of the same inputs do not affect each other."""
    held = workloads.usual()
    joins = [subject.make(held) for _ in range(2)]
    outputs: list[list[pa.RecordBatch]] = [[], []]
    for item in held.script():
        for join, output in zip(joins, outputs, strict=True):
            output.extend(watched(join, results_of(join, item)))
    for join, output in zip(joins, outputs, strict=True):
        rows = collected([*output, *join.finish()], join.schema)
        join.close()
        assert_same_rows(rows, subject.expected(held), "one of two")


@STREAM_JOIN.check()
def check_unknown_side(subject: StreamJoinSubject) -> None:
    held = workloads.usual()
    join = subject.make(held)
    batch = held.inputs["left"].to_batches()[0]
    for call in (join.push, join.offer):
        with pytest.raises(OptionError, match="middle"):
            call("middle", batch)
    with pytest.raises(OptionError, match="middle"):
        join.end("middle")
    join.close()


@STREAM_JOIN.check()
def check_batch_after_the_end_of_its_side(subject: StreamJoinSubject) -> None:
    held = workloads.usual()
    join = subject.make(held)
    join.end("left")
    for call in (join.push, join.offer):
        with pytest.raises(AdjoinError, match="left input has ended"):
            call("left", held.inputs["left"].to_batches()[0])
    join.close()


@STREAM_JOIN.check(side=("left", "right"))
def check_missing_key(subject: StreamJoinSubject, side: str) -> None:
    inputs = workloads.usual().inputs
    inputs = {**inputs, side: inputs[side].drop_columns(["k"])}
    with pytest.raises(SchemaError, match="'k'"):
        subject.make(two("no key", inputs.values(), Predicate("k")), memory=AMPLE)


@STREAM_JOIN.check()
def check_keys_of_unlike_types(subject: StreamJoinSubject) -> None:
    left = workloads.string_key().inputs["left"]
    right = workloads.usual().inputs["right"]
    with pytest.raises(SchemaError, match=r"string.*int64|int64.*string"):
        subject.make(two("unlike keys", (left, right), Predicate("k")), memory=AMPLE)


@STREAM_JOIN.check(needs=["two inputs"])
def check_name_taken_twice(subject: StreamJoinSubject) -> None:
    """The suffix produces a name that already exists."""
    left, right = workloads.usual().inputs.values()
    left = left.rename_columns(["k", "note_right", "note"])
    with pytest.raises(SchemaError, match="note_right"):
        subject.make(two("names", (left, right), Predicate("k")), memory=AMPLE)


@STREAM_JOIN.check(needs=["range"])
def check_range_without_order(subject: StreamJoinSubject) -> None:
    held = workloads.string_key()
    with pytest.raises(AdjoinError, match="k"):
        subject.make(two("no order", held.inputs.values(), Predicate("k", within=1)), memory=AMPLE)


@STREAM_JOIN.check(needs=["range", "two inputs"])
def check_range_of_two_keys(subject: StreamJoinSubject) -> None:
    held = workloads.composite_key()
    with pytest.raises(AdjoinError, match="key"):
        subject.make(two("two keys", held.inputs.values(), Predicate(["a", "b"], within=1)), memory=AMPLE)


@STREAM_JOIN.check()
def check_refused_batch_changes_nothing(subject: StreamJoinSubject) -> None:
    """A rejected batch has no effect on the rows around it."""
    held = workloads.usual()
    stranger = pa.record_batch({"product": [1, 2, 3]})
    join = subject.make(held)
    found: list[pa.RecordBatch] = []
    for item in held.script():
        for call in (join.push, join.offer):
            with pytest.raises(SchemaError):
                call("left", stranger)
        found += watched(join, results_of(join, item))
    found += watched(join, join.finish())
    rows = collected(found, join.schema)
    metrics = join.metrics()
    join.close()
    assert_same_rows(rows, subject.expected(held), "refused batches in between")
    assert metrics["rows_in"] == sum(map(len, held.inputs.values()))
