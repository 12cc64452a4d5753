"""Rows are answered in time: on a simulated clock and disk, and while a source blocks."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, Pause
from tests.unit.semistream.shop import DISK, build, products, sales, slow_disk


def arrivals_at(rate: float, batch_rows: int, batches: int, keys: int, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    items: list[Any] = []
    for _ in range(batches):
        items += [sales(random.integers(0, keys, batch_rows) * 2), batch_rows / rate]
    return items


@pytest.mark.parametrize("deadline", [2.0, 5.0])
def test_no_deadline_is_missed_below_the_rate_that_the_cost_model_names(deadline, tmp_path):
    """Only the deadline starts the phases, and rows wait for it as long as they can."""
    table = products(20_000, width=100)
    master = build(table, tmp_path)
    join = SSIJ(master, on="id", memory="16MB", deadline=deadline, **slow_disk())
    seconds_per_page = DISK.positioning_seconds + DISK.block_seconds
    rate = 0.3 / seconds_per_page
    seen = 0
    for item in arrivals_at(rate, 5, 200, 20_000, seed=6):
        outputs = join.idle(item) if isinstance(item, float) else join.push(item)
        seen += sum(batch.num_rows for batch in outputs)
    seen += sum(batch.num_rows for batch in join.finish())
    metrics = join.metrics()
    assert seen == 1000
    assert metrics["deadlines_missed"] == 0
    assert metrics["seconds_waiting_max"] <= deadline
    assert metrics["join_phases"] < 100, "rows must be batched, as far as the deadline allows"


def test_rows_that_want_several_pages_each_are_answered_in_time_once_that_is_known(tmp_path):
    master = build(products(400, copies=200, width=100), tmp_path)
    assert master.pages > 5 * 400
    join = SSIJ(master, on="id", how="inner", memory="1MB", deadline=2.0, columns=[], **slow_disk())
    for item in arrivals_at(5.0, 1, 300, 400, seed=8):
        list(join.idle(item) if isinstance(item, float) else join.push(item))
    assert join.metrics()["join_phases"] > 10
    assert join.metrics()["deadlines_missed"] <= 3


def test_above_that_rate_misses_are_counted(tmp_path):
    master = build(products(20_000, width=100), tmp_path)
    options = slow_disk()
    join = SSIJ(master, on="id", memory="16MB", deadline=0.05, **options)
    list(join.run([sales(np.arange(0, 40_000, 20))]))
    assert join.metrics()["deadlines_missed"] > 0


def test_rows_with_the_nearest_deadline_are_served_first(tmp_path):
    master = build(products(2000), tmp_path)
    join = SSIJ(master, on="id", memory="1MB", deadline="by", **slow_disk())
    rows = join.parts.pages.split.step_rows
    due = np.random.default_rng(7).permutation(3 * rows) + 1e6
    batch = pa.record_batch({"id": np.zeros(3 * rows, np.int64), "by": due})
    for piece in (batch.slice(0, rows), batch.slice(rows, rows), batch.slice(2 * rows)):
        join._check_batch(piece)
        assert join.offer(piece)
    taken = join._intake._buffer.take(rows, 1 << 30)
    assert taken.due is not None
    assert taken.due.tolist() == sorted(due)[:rows]


def test_deadlines_hold_while_the_source_blocks(tmp_path):
    """The source says nothing until the rows before are answered, which only their deadline brings about."""
    join = SSIJ(build(products(2000), tmp_path), on="id", memory="8MB", deadline=0.2)
    answered = threading.Event()
    in_time = []

    def source() -> Iterator[pa.RecordBatch]:
        yield sales([10, 500])
        in_time.append(answered.wait(60))
        yield sales([12])

    rows = 0
    for batch in join.run(source()):
        rows += batch.num_rows
        answered.set()
    assert in_time == [True]
    assert rows == 3


def test_a_pause_answers_what_waits_and_lets_the_time_pass(tmp_path):
    options = slow_disk()
    join = SSIJ(build(products(2000), tmp_path), on="id", memory="8MB", **options)
    answers = join.run([sales([10]), Pause(7.0), sales([12])])
    seen = [(batch.column("id").to_pylist(), options["clock"].now()) for batch in answers]
    assert seen[0][0] == [10]
    assert seen[0][1] < 1.0
    assert seen[1][1] >= 7.0


def test_the_longest_wait_is_measured(tmp_path):
    """A row with five seconds to wait waits nearly as long, and the metrics say so."""
    join = SSIJ(build(products(2000), tmp_path), on="id", memory="8MB", deadline=5.0, **slow_disk())
    assert list(join.push(sales([10]))) == []
    assert sum(batch.num_rows for batch in join.idle(20.0)) == 1
    assert 4.9 < join.metrics()["seconds_waiting_max"] <= 5.0
