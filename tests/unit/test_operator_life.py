"""Operators that are closed, forked, failed or used by another thread: an AdjoinError, never missing rows."""

import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import AdjoinError, Master
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from tests.odd_columns import MANY, TWO

ROWS = 4_000
OPERATORS = (*TWO, *MANY, *ALGORITHM_NAMES)
SOME = ("diner", "miner", "ssij", "meshjoin+front", "auto")
EACH = [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in OPERATORS]
FORKED = [*TWO, *MANY, "ssij", "auto"]


def batch(first: int, rows: int = ROWS) -> pa.RecordBatch:
    numbers = np.arange(first, first + rows)
    return pa.record_batch({"k": numbers % ROWS, "n": numbers, "pad": ["x" * 50] * rows})


class Subject:
    """An operator that already has rows, and the arguments of its methods."""

    def __init__(self, name: str, folder: Path) -> None:
        self.is_stream_join = name in TWO or name in MANY
        schema = batch(0, 1).schema
        options: dict[str, Any] = {"clock": SimulatedClock()}
        if self.is_stream_join:
            memory = "16MB" if name == "shj" else "1MB"
            blocks = {} if name == "shj" else {"block_bytes": 4096}
            make: Any = TWO.get(name) or MANY[name]
            inputs = (schema, schema, "k") if name in TWO else ({"a": schema, "b": schema}, ["a.k = b.k"])
            self.sides = ("left", "right") if name in TWO else ("a", "b")
            self.join: Any = make(*inputs, memory, **blocks, **options)
            list(self.join.push(self.sides[0], batch(0)))
        else:
            table = pa.table({"k": np.arange(ROWS), "word": ["word" * 20] * ROWS})
            self.master = Master.build(table, key="k", path=folder / "master", page_bytes=4096)
            kind: Any = algorithm_named(name)
            self.join = kind(self.master, on="k", memory=kind.least_memory(self.master) + 400_000, **options)

    def push(self) -> Iterator[pa.RecordBatch]:
        other = batch(0)
        return self.join.push(self.sides[1], other) if self.is_stream_join else self.join.push(other)

    def run(self) -> Iterator[pa.RecordBatch]:
        items = [(self.sides[1], batch(0))] if self.is_stream_join else [batch(0)]
        return self.join.run(items)

    def calls(self) -> dict[str, Callable[[], Iterator[Any]]]:
        calls: dict[str, Callable[[], Iterator[Any]]] = {
            "push": self.push,
            "run": self.run,
            "idle": lambda: self.join.idle(0.1),
            "finish": self.join.finish,
        }
        if self.is_stream_join:
            calls["snapshot"] = self.join.snapshot
        else:
            calls["refresh"] = lambda: self.join.refresh(self.master)
        return calls


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[str], Subject]]:
    """A factory of operators, which are closed at the end."""
    subjects: list[Subject] = []

    def make(name: str) -> Subject:
        subjects.append(Subject(name, tmp_path / str(len(subjects))))
        return subjects[-1]

    yield make
    for subject in subjects:
        subject.join.close()


@pytest.mark.parametrize("name", EACH)
def test_consuming_results_after_close_is_an_error(name, made):
    for call in made(name).calls():
        subject = made(name)
        results = subject.calls()[call]()
        subject.join.close()
        for _ in range(2):
            with pytest.raises(AdjoinError):
                next(results)
        with pytest.raises(AdjoinError, match="ended"):
            subject.calls()[call]().__next__()


@pytest.mark.parametrize("name", EACH)
def test_continuing_to_consume_results_after_close_is_an_error(name, made):
    for call in ("push", "run", "finish"):
        subject = made(name)
        if call == "finish":
            list(subject.push())
        results = subject.calls()[call]()
        first = next(results, None)
        subject.join.close()
        if first is not None:
            with pytest.raises(AdjoinError):
                next(results)


@pytest.mark.parametrize("name", SOME)
def test_a_call_is_refused_while_results_are_half_consumed(name, made):
    subject = made(name)
    results = subject.run()
    assert next(results).num_rows
    for call in ("push", "idle", "finish"):
        with pytest.raises(AdjoinError, match="consume"):
            subject.calls()[call]()
    rest = sum(batch.num_rows for batch in results)
    assert rest > 0


@pytest.mark.parametrize("name", SOME)
def test_another_thread_may_consume_results_but_not_at_the_same_time(name, made):
    subject = made(name)
    entered, told = threading.Event(), threading.Event()
    found: list[pa.RecordBatch] = []
    inner = subject.join._push

    def slowly(*arguments: Any) -> Iterator[pa.RecordBatch]:
        entered.set()
        assert told.wait(30)
        yield from inner(*arguments)

    subject.join._push = slowly
    results = subject.push()
    thread = threading.Thread(target=lambda: found.extend(results))
    thread.start()
    assert entered.wait(30)
    with pytest.raises(AdjoinError, match="another thread is consuming"):
        next(results)
    for refused in (subject.push, subject.join.close):
        with pytest.raises(AdjoinError, match="another thread"):
            refused()
    told.set()
    thread.join(30)
    assert not thread.is_alive()
    found += list(subject.join.finish())
    assert sum(batch.num_rows for batch in found) == ROWS


@pytest.mark.parametrize("name", SOME)
def test_consuming_results_after_an_error_is_an_error(name, made):
    def wrong() -> Iterator[Any]:
        yield ("nobody", batch(0)) if subject.is_stream_join else pa.record_batch({"x": [1]})

    subject = made(name)
    results = subject.join.run(wrong())
    for _ in range(3):
        with pytest.raises(AdjoinError):
            next(results)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python warns of a fork where there are threads")
@pytest.mark.parametrize("name", FORKED)
def test_a_fork_is_refused_and_its_parent_continues(name, made):
    subject = made(name)
    found = list(subject.push())
    child = os.fork()
    if child == 0:
        os._exit(in_the_child(subject))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found += list(subject.join.idle(0.5))
    found += list(subject.join.finish())
    assert sum(batch.num_rows for batch in found) == ROWS
    if name not in {"shj", "ssij", "auto"}:
        assert subject.join.metrics()["blocks_flushed"] > 0


def in_the_child(subject: Subject) -> int:
    """0 if every call is refused; closes and drops the operator."""
    try:
        for call in subject.calls().values():
            with pytest.raises(AdjoinError, match="in a fork of the process"):
                next(call())
        subject.join.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # files are closed by garbage collection
            del subject.join
            gc.collect()
    except BaseException as error:  # noqa: BLE001 (nobody could catch it)
        print("in the child:", repr(error), file=sys.stderr)
        return 1
    return 0
