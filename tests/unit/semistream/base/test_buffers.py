"""Input buffer, stream buffer, cost model, arrivals."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.arrow.copying import compact
from adjoin.operators.late_input import arrivals
from adjoin.semistream.base.buffers import Arrivals, InputBuffer, Rows
from adjoin.semistream.ssij.buffers import StreamBuffer
from adjoin.semistream.ssij.deadline import JoinTimeEstimate

ENOUGH = 1 << 30


def arrived(values, due=None, at=0.0):
    return Arrivals(
        pa.record_batch({"v": pa.array(values, pa.int64())}),
        at,
        None if due is None else np.array(due, float),
    )


@given(parts=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6), rows=st.integers(1, 8))
def test_rows_leave_the_input_buffer_by_the_nearest_deadline(parts, rows):
    buffer = InputBuffer()
    number = 0
    for due in parts:
        buffer.add(arrived(list(range(number, number + len(due))), due))
        number += len(due)
    all_due = [due for part in parts for due in part]
    assert buffer.earliest_due == min(all_due, default=np.inf)
    served = []
    while buffer.rows:
        served += buffer.take(rows, ENOUGH).batch.column(0).to_pylist()
    assert served == sorted(range(number), key=lambda row: all_due[row]) or rows >= number
    assert sorted(served) == list(range(number))
    assert buffer.bytes == 0


def test_without_deadlines_rows_leave_in_the_order_of_arrival():
    buffer = InputBuffer()
    buffer.add(arrived([1, 2, 3]))
    buffer.add(arrived([4, 5], at=2.0))
    assert buffer.take(2, ENOUGH).batch.column(0).to_pylist() == [1, 2]
    rest = buffer.take(10, ENOUGH)
    assert rest.batch.column(0).to_pylist() == [3, 4, 5]
    assert rest.arrived == 0.0


@given(widths=st.lists(st.integers(0, 2000), min_size=1, max_size=30), has_due=st.booleans())
def test_no_more_leaves_the_input_buffer_than_finds_room_but_always_a_row(widths, has_due):
    buffer = InputBuffer()
    texts = pa.record_batch({"t": ["x" * width for width in widths]})
    buffer.add(Arrivals(texts, 0.0, np.arange(len(widths), dtype=float) if has_due else None))
    served = []
    while buffer.rows:
        taken = buffer.take(20, 3000)
        assert taken.waiting_bytes <= 3000 or taken.batch.num_rows == 1
        served += taken.batch.column(0).to_pylist()
        buffer.check_invariants()
    assert served == texts.column(0).to_pylist()


def test_a_small_slice_does_not_hold_the_memory_of_the_large_batch():
    large = pa.record_batch({"v": np.arange(100_000), "t": ["some text"] * 100_000})
    small = compact(large.slice(50_000, 3))
    assert small.equals(large.slice(50_000, 3))
    assert small.get_total_buffer_size() < 1000


@given(
    parts=st.lists(
        st.lists(st.sets(st.integers(0, 8), min_size=1, max_size=3), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_stream_buffer_joins_its_parts_and_inverts_them(parts):
    buffer = StreamBuffer(9, 1 << 20)
    wanted: dict[int, list[int]] = {}
    number = 0
    for part in parts:
        pairs = [page << 32 | row for row, pages in enumerate(part) for page in sorted(pages)]
        for row, pages in enumerate(part):
            for page in pages:
                wanted.setdefault(page, []).append(number + row)
        low = np.arange(len(part)) + number
        batch = pa.record_batch({"v": low, "t": [f"row {value}" for value in low]})
        buffer.add(Rows(batch, 0.0, None, low, low, np.zeros(len(part), bool)), np.array(pairs, np.int64))
        number += len(part)
    assert buffer.wanted_pages == len(wanted)
    assert buffer.stream_bytes > 0
    rows, inverted = buffer.take()
    assert rows.low.tolist() == list(range(number))
    assert rows.high is rows.low
    assert rows.batch.column(1).to_pylist() == [f"row {value}" for value in range(number)]
    found: dict[int, list[int]] = {}
    for some in inverted.in_page_order():
        some.check_invariants()
        assert inverted.is_wanted(some.pages).all()
        inverted.drop(some.pages)
        for group, page in enumerate(some.pages.tolist()):
            pairs_of_page = some.pairs[some.begin[group] : some.begin[group + 1]]
            found[page] = (pairs_of_page & 0xFFFFFFFF).tolist()
    assert found == {page: sorted(rows) for page, rows in wanted.items()}
    assert not inverted.is_wanted(np.arange(9)).any()
    inverted.close()
    assert (buffer.rows, buffer.inverted_bytes, buffer.wanted_pages, buffer.stream_bytes) == (0, 0, 0, 0)


def test_the_inverted_index_comes_in_portions_of_pages():
    buffer = StreamBuffer(1000, 1 << 15)
    low = np.arange(1000)
    rows = Rows(pa.record_batch({"v": low}), 0.0, None, low, low, np.zeros(1000, bool))
    cost = buffer.cost_of(2000)
    buffer.add(rows, np.concatenate([low << 32 | low, low << 32 | low[::-1]]))
    assert buffer.inverted_bytes == cost < 2000 * buffer.pair_cost
    _, inverted = buffer.take()
    portions = list(inverted.in_page_order())
    assert len(portions) > 2
    assert np.concatenate([some.pages for some in portions]).tolist() == list(range(1000))
    assert sum(len(some.pairs) for some in portions) == 2000


def test_estimate_starts_with_random_reads_and_learns_the_worst_for_similar_sizes():
    estimate = JoinTimeEstimate(0.01)
    assert estimate.seconds(1000) == pytest.approx(10.0)
    estimate.observe(1000, 2.0)
    estimate.observe(900, 0.9)
    assert estimate.seconds(1000) == pytest.approx(2.0)
    assert estimate.seconds(10) == pytest.approx(0.1)


def test_arrivals_says_when_nothing_came_and_passes_errors_on():
    gate = threading.Event()

    def source():
        yield 1
        gate.wait(10)
        yield 2
        raise OSError("gone")

    seen = []
    items = arrivals(source(), lambda: 0.01)

    def listen():
        for item in items:
            seen.append(item)
            if item is None:
                gate.set()

    with pytest.raises(OSError, match="gone"):
        listen()
    assert [item for item in seen if item is not None] == [1, 2]
    assert None in seen


def test_arrivals_stops_reading_when_nobody_listens():
    read = []

    def source():
        for number in range(1000):
            read.append(number)
            yield number

    for item in arrivals(source(), lambda: None):
        if item == 3:
            break
    threads = [thread for thread in threading.enumerate() if thread.name == "adjoin-arrivals"]
    for thread in threads:
        thread.join(5)
    assert len(read) < 10


def test_many_small_parts_become_few_and_keep_their_rows_in_order():
    buffer = InputBuffer()
    for value in range(1000):
        buffer.add(arrived([value], [value]))
    assert len(buffer._parts) < 100
    assert (buffer.rows, buffer.earliest_due) == (1000, 0.0)
    assert buffer.take(1000, ENOUGH).batch.column(0).to_pylist() == list(range(1000))


def test_many_small_parts_become_few_in_the_stream_buffer_and_keep_their_pairs():
    buffer = StreamBuffer(10, 1 << 20)
    for value in range(1000):
        low, sizes = np.array([value]), np.array([value])
        batch = pa.record_batch({"v": [value]})
        rows = Rows(batch, float(value), None, low, low, np.array([value % 2 == 0]), sizes)
        buffer.add(rows, np.array([value % 10 << 32], np.int64))
    assert len(buffer._parts) < 100
    joined, inverted = buffer.take()
    (wanted,) = inverted.in_page_order()
    wanted.check_invariants()
    every = np.arange(1000)
    assert joined.batch.column(0).to_pylist() == every.tolist()
    assert joined.sizes is not None
    assert (joined.sizes == every).all()
    assert (joined.matched == (every % 2 == 0)).all()
    assert (wanted.pairs & 0xFFFFFFFF == np.argsort(every % 10, kind="stable")).all()
