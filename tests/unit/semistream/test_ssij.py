"""What is peculiar to SSIJ: every correction of the paper, the split of memory, deadlines, updates."""

import gc
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, AdjoinError, BudgetError, CorruptionError, Master, OptionError, Pause, SchemaError
from adjoin.master.device import Cost, SimulatedDisk
from adjoin.master.keys import KeyCodec
from adjoin.parts.clock import SimulatedClock
from adjoin.semistream.ssij.phases import Phases
from tests.oracle import Predicate, assert_same_rows, expected

DISK = Cost(positioning_seconds=8e-3, block_seconds=1e-3)


def products(rows: int, copies: int = 1, width: int = 40) -> pa.Table:
    """Even keys, so that odd ones lie between; `copies` rows of each."""
    keys = np.repeat(np.arange(rows) * 2, copies)
    return pa.table({"id": keys, "name": [f"{key:0{width}d}" for key in keys]})


def build(table: pa.Table, path: Path, **options: Any) -> Master:
    return Master.build(table, key="id", path=path / "master", page_bytes=4096, **options)


def sales(keys: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(keys, pa.int64()), "sale": np.arange(len(keys))})


def results(join: SSIJ, batches: list[Any]) -> pa.Table:
    schema = join.schema_of(sales([]).schema)
    return pa.Table.from_batches(list(join.run(batches)), schema=schema)


def slow_disk() -> dict[str, Any]:
    clock = SimulatedClock()
    return {"clock": clock, "device": SimulatedDisk(clock, DISK)}


class JoinsWhatIsCachedLater(Phases):
    """The letter of Algorithm 1: whether a page is cached is asked again after pages were evicted."""

    def _look_up(self, rows: Any, row: Any, page: Any, open_: Any) -> Iterator[pa.RecordBatch]:
        slot = self._pages.cache.slot_of_page[page]
        cached = slot >= 0
        yield from self._matcher.join(rows, row[cached], slot[cached])
        self._pages.cache.drop_least_useful(1)
        missing = np.flatnonzero(self._pages.cache.slot_of_page[page] < 0)
        if len(missing):
            yield from self._wait(rows, row, page, missing, open_)


@pytest.mark.parametrize(("phases", "exact"), [(Phases, True), (JoinsWhatIsCachedLater, False)])
def test_a_page_evicted_within_the_online_phase_is_not_joined_twice(phases, exact, tmp_path, monkeypatch):
    """S-E1: the letter of the paper gives duplicates, the snapshot does not."""
    table = products(400, copies=3)
    monkeypatch.setattr("adjoin.semistream.ssij.operator.Phases", phases)
    join = SSIJ(build(table, tmp_path), on="id", memory="1MB", stream_rows=1)
    random = np.random.default_rng(1)
    batches = [sales(random.integers(0, 800, 200)) for _ in range(6)]
    stream = pa.Table.from_batches(batches)
    wanted = expected(stream, table, Predicate("id"), "inner")
    actual = results(join, batches)
    assert (actual.num_rows == wanted.num_rows) == exact
    if exact:
        assert_same_rows(actual, wanted)


def test_without_room_and_without_pages_to_evict_a_join_phase_is_forced(tmp_path):
    """S-E2: rows that nobody asked to wait for so long fill the memory; nothing is lost."""
    table = products(3000)
    master = build(table, tmp_path)
    join = SSIJ(master, on="id", memory=SSIJ.least_memory(master), stream_rows=10**9)
    keys = np.random.default_rng(2).integers(0, 6000, 20_000)
    batches = [sales(keys[start : start + 500]) for start in range(0, len(keys), 500)]
    seen: list[pa.RecordBatch] = []
    for batch in batches:
        seen += join.push(batch)
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
        join.check_invariants()
    assert join.metrics()["join_phases"] > 0
    seen += join.finish()
    assert_same_rows(
        pa.Table.from_batches(seen), expected(pa.Table.from_batches(batches), table, Predicate("id"), "inner")
    )


def test_an_update_replaces_cached_pages_and_the_index(tmp_path):
    """S-E3: after `refresh` rows see the new version, pages that did not change stay cached."""
    master = build(products(2000), tmp_path)
    join = SSIJ(master, on="id", memory="8MB")
    batch = sales(np.arange(0, 4000, 2))
    list(join.push(batch))
    list(join.idle(0))
    cached = join.metrics()["pages_cached"]
    assert cached == master.pages
    change = pa.table({"id": [100, 4002], "name": ["changed", "new"], "_op": ["upsert", "upsert"]})
    newer = master.apply(change)
    list(join.refresh(newer))
    assert cached - 4 <= join.metrics()["pages_cached"] < cached
    before = join.metrics()["pages_read"]
    seen = pa.Table.from_batches([*join.push(sales([100, 102, 4002])), *join.finish()])
    assert sorted(seen["name"].to_pylist()) == sorted(["changed", "new", f"{102:040d}"])
    assert 1 <= join.metrics()["pages_read"] - before <= 2
    assert join.metrics()["master_version"] == newer.version


def test_rows_begun_on_the_old_version_are_finished_on_it(tmp_path):
    """S9: rows in the stream buffer are answered before the update, rows in the input buffer after it."""
    master = build(products(2000), tmp_path)
    join = SSIJ(master, on="id", memory="8MB", input_rows=3, stream_rows=10**9)
    assert list(join.push(sales([10, 12, 14]))) == []  # looked up: wait for pages
    assert list(join.push(sales([16]))) == []  # not looked at yet
    everything = pa.table({"id": [10, 12, 14, 16], "name": ["new"] * 4, "_op": ["upsert"] * 4})
    first = pa.Table.from_batches(list(join.refresh(master.apply(everything))))
    assert "new" not in first["name"].to_pylist()
    assert sorted(first["id"].to_pylist()) == [10, 12, 14]
    rest = pa.Table.from_batches(list(join.finish()))
    assert rest.to_pydict() == {"id": [16], "sale": [0], "name": ["new"]}


def test_a_key_between_two_pages_costs_no_read_and_one_inside_a_page_costs_one(tmp_path):
    """S-E6: the index proves absence only in the gaps between pages."""
    table = products(1000)
    master = build(table, tmp_path)
    gap = int(master.index.last[3]) + 1
    inside = int(master.index.first[5]) + 1
    for key, reads in ((gap, 0), (inside, 1), (-5, 0), (10**9, 0)):
        join = SSIJ(master, on="id", how="left", memory="1MB")
        row = pa.Table.from_batches(list(join.run([sales([key])]))).to_pylist()
        assert row == [{"id": key, "sale": 0, "name": None}]
        assert join.metrics()["pages_read"] == reads
        assert join.metrics()["rows_unmatched"] == 1


def test_with_the_filter_a_key_inside_a_page_that_does_not_exist_costs_no_read(tmp_path):
    table = products(1000)
    join = SSIJ(build(table, tmp_path, filter_bits=12), on="id", how="left", memory="1MB")
    list(join.run([sales(np.arange(1, 2000, 2))]))
    assert join.metrics()["rows_unmatched"] == 1000
    assert join.metrics()["pages_read"] <= 10


def test_when_a_waiting_row_is_due_rows_not_looked_at_yet_are_served_with_it(tmp_path):
    """S-E7: the online phase runs first, then the join phase for both."""
    join = SSIJ(
        build(products(2000), tmp_path), on="id", memory="8MB", deadline=1.0, input_rows=2, **slow_disk()
    )
    clock = join._clock
    assert list(join.push(sales([10, 500]))) == []
    clock.sleep(0.6)
    assert list(join.push(sales([1000]))) == []
    clock.sleep(0.37)
    served = pa.Table.from_batches(list(join.push(sales([1500]))))
    assert sorted(served["id"].to_pylist()) == [10, 500, 1000, 1500]
    assert join.metrics()["deadlines_missed"] == 0


def test_the_worst_case_is_never_slower_than_one_random_read_per_row_nor_than_a_full_scan(tmp_path):
    """S7: no row cached, every row on a page of its own."""
    table = products(4000, width=120)
    master = build(table, tmp_path)
    for wanted in (10, master.pages // 3, master.pages):
        options = slow_disk()
        pages = np.linspace(0, master.pages - 1, wanted).astype(int)
        join = SSIJ(master, on="id", memory="64MB", max_scan=50, **options)
        list(join.run([sales(master.index.first[pages])]))
        seconds = options["clock"].now()
        page_seconds = DISK.block_seconds
        random_reads = wanted * (DISK.positioning_seconds + page_seconds)
        scans = -(-master.pages // 50)
        full_scan = scans * DISK.positioning_seconds + master.pages * page_seconds
        assert seconds <= min(random_reads, full_scan) * 1.001
        assert join.metrics()["pages_read"] == wanted


def test_no_scan_is_longer_than_max_scan(tmp_path):
    table = products(4000, width=120)
    master = build(table, tmp_path)
    for max_scan in (1, 7, 50):
        join = SSIJ(master, on="id", memory="64MB", max_scan=max_scan, **slow_disk())
        list(join.run([sales(master.index.first)]))
        assert join.metrics()["seeks"] == -(-master.pages // max_scan)


def test_hot_pages_stay_and_answer_without_a_read(tmp_path):
    table = products(20_000, width=100)
    master = build(table, tmp_path)
    join = SSIJ(master, on="id", memory="1500KB", stream_rows=400)
    random = np.random.default_rng(3)
    hot = random.choice(20_000, 20, replace=False) * 2
    hits = []
    for _ in range(40):
        keys = np.concatenate([random.choice(hot, 150), random.integers(0, 40_000, 50)])
        before = join.metrics()["cache_hits"]
        list(join.push(sales(keys)))
        list(join.idle(0))
        hits.append(join.metrics()["cache_hits"] - before)
    assert np.mean(hits[-10:]) >= 150


def test_rows_take_memory_from_pages_and_pages_take_it_back(tmp_path):
    """One budget: while rows pile up the cache shrinks; after they are answered it grows again."""
    table = products(20_000, width=100)
    master = build(table, tmp_path)
    join = SSIJ(master, on="id", memory="2MB", stream_rows=6000, input_rows=500)
    random = np.random.default_rng(4)
    for _ in range(8):
        list(join.push(sales(random.integers(0, 40_000, 500))))
        list(join.idle(0))
    full = join.metrics()["pages_bytes"]
    while join.metrics()["rows_waiting"] < 4000:
        list(join.push(sales(random.integers(0, 40_000, 500))))
    assert join.metrics()["pages_bytes"] < full
    assert join.metrics()["stream_bytes"] > 0
    list(join.idle(0))
    for _ in range(3):
        list(join.push(sales(random.integers(0, 40_000, 500))))
        list(join.idle(0))
    assert join.metrics()["pages_bytes"] > 0.95 * full


def test_arrivals_in_the_middle_of_a_join_phase_find_room_and_lose_nothing(tmp_path):
    """S5: rows offered while pages are read go to the input buffer, at the expense of cached pages."""
    table = products(20_000, width=100)
    master = build(table, tmp_path)
    join = SSIJ(master, on="id", memory="2MB", stream_rows=3000, input_rows=1000)
    random = np.random.default_rng(5)
    batches, seen = [], []
    for _ in range(6):
        batches.append(sales(random.integers(0, 40_000, 1000)))
        for output in join.push(batches[-1]):
            seen.append(output)
            late = sales(random.integers(0, 40_000, 20))
            assert join.offer(late)
            batches.append(late)
            join.check_invariants()
    seen += join.finish()
    stream = pa.Table.from_batches(batches)
    assert join.metrics()["rows_in"] == stream.num_rows
    assert_same_rows(pa.Table.from_batches(seen), expected(stream, table, Predicate("id"), "inner"))


def test_a_row_that_matches_more_pages_than_fit_is_swept_in_portions(tmp_path):
    table = products(12_000, width=100)
    master = build(table, tmp_path)
    stream = pa.record_batch({"lo": [0, 100, 23_000, 5], "hi": [24_000, 90, 23_999, 5], "sale": [1, 2, 3, 4]})
    for how in ("inner", "left", "semi", "anti"):
        memory = SSIJ.least_memory(master)
        join = SSIJ(master, on="id", how=how, memory=memory, between=("lo", "hi"))
        assert join._phases._limit_needs < master.pages
        batches = list(join.run([stream]))
        actual = pa.Table.from_batches(batches, schema=join.schema_of(stream.schema))
        predicate = Predicate("id", between=("lo", "hi"))
        assert_same_rows(actual, expected(pa.table(stream), table, predicate, how))
        assert join.metrics()["peak_bytes"] <= memory


# Deadlines.


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


def test_above_that_rate_misses_are_counted(tmp_path):
    master = build(products(20_000, width=100), tmp_path)
    options = slow_disk()
    join = SSIJ(master, on="id", memory="16MB", deadline=0.05, **options)
    list(join.run([sales(np.arange(0, 40_000, 20))]))
    assert join.metrics()["deadlines_missed"] > 0


def test_rows_with_the_nearest_deadline_are_served_first(tmp_path):
    master = build(products(2000), tmp_path)
    join = SSIJ(master, on="id", memory="1MB", deadline="by", **slow_disk())
    rows = join._pages.split.step_rows
    due = np.random.default_rng(7).permutation(3 * rows) + 1e6
    batch = pa.record_batch({"id": np.zeros(3 * rows, np.int64), "by": due})
    for piece in (batch.slice(0, rows), batch.slice(rows, rows), batch.slice(2 * rows)):
        join._check_batch(piece)
        assert join.offer(piece)
    taken = join._input.take(rows)
    assert taken.due is not None
    assert taken.due.tolist() == sorted(due)[:rows]


def test_deadlines_hold_while_the_source_blocks(tmp_path):
    """The source says nothing for a while; rows are answered within their deadline all the same."""
    master = build(products(2000), tmp_path)
    join = SSIJ(master, on="id", memory="8MB", deadline=0.4)
    answered = []

    def source() -> Iterator[pa.RecordBatch]:
        yield sales([10, 500])
        time.sleep(1.5)
        answered.append(len(served))
        yield sales([12])

    served: list[pa.RecordBatch] = []
    served.extend(join.run(source()))
    assert answered == [1]
    assert sum(batch.num_rows for batch in served) == 3


def test_a_pause_answers_what_waits_and_lets_the_time_pass(tmp_path):
    options = slow_disk()
    join = SSIJ(build(products(2000), tmp_path), on="id", memory="8MB", **options)
    answers = join.run([sales([10]), Pause(7.0), sales([12])])
    seen = [(batch.column("id").to_pylist(), options["clock"].now()) for batch in answers]
    assert seen[0][0] == [10]
    assert seen[0][1] < 1.0
    assert seen[1][1] >= 7.0


# Bad input.


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"on": "nothing"}, SchemaError, "must name the key"),
        ({"how": "outer"}, OptionError, "inner, left, semi, anti"),
        ({"columns": ["price"]}, SchemaError, "no column 'price'"),
        ({"within": -1}, OptionError, "negative"),
        ({"within": "far"}, OptionError, "not a number"),
        ({"within": 1, "between": ("a", "b")}, OptionError, "not both"),
        ({"decay": 2}, OptionError, "decay=2"),
        ({"max_scan": 0}, OptionError, "max_scan=0"),
        ({"input_rows": 0}, OptionError, "input_rows=0"),
        ({"deadline": -1}, OptionError, "deadline=-1"),
        ({"memory": "tiny"}, OptionError, "memory='tiny'"),
        ({"memory": 1000}, BudgetError, "least that works is"),
    ],
)
def test_bad_arguments_are_refused_with_their_value(options, error, words, tmp_path):
    master = build(products(10), tmp_path)
    with pytest.raises(error, match=words):
        SSIJ(master, **{"on": "id", **options})


def test_the_least_memory_named_works_and_a_byte_less_does_not(tmp_path):
    master = build(products(3000), tmp_path)
    with pytest.raises(BudgetError) as refusal:
        SSIJ(master, on="id", memory=1)
    least = int(str(refusal.value).split("least that works is ")[1].split()[0])
    with pytest.raises(BudgetError):
        SSIJ(master, on="id", memory=least - 1)
    assert results(SSIJ(master, on="id", memory=least), [sales([0, 2, 4])]).num_rows == 3


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (pa.record_batch({"other": [1]}), "no column 'id'"),
        (pa.record_batch({"id": ["one"]}), "cast the stream's column"),
        (pa.record_batch({"id": [1], "name_master": [1], "name": [1]}), "suffix"),
    ],
)
def test_bad_batches_are_refused_before_anything_is_lost(batch, words, tmp_path):
    join = SSIJ(build(products(10), tmp_path), on="id", memory="1MB")
    with pytest.raises(SchemaError, match=words):
        join.push(batch)
    assert results(join, [sales([4])]).num_rows == 1


def test_a_damaged_page_is_named_and_never_read_as_rows(tmp_path):
    master = build(products(2000), tmp_path)
    page = 7
    file = master.files[master.index.file[page]]
    at = int(master.index.block[page]) * 4096 + 1000
    with open(file.path, "r+b") as data:
        data.seek(at)
        byte = data.read(1)[0]
        data.seek(at)
        data.write(bytes([byte ^ 1]))
    join = SSIJ(master, on="id", memory="1MB")
    with pytest.raises(CorruptionError, match=f"{file.name}.*page {page}"):
        list(join.run([sales([int(master.index.first[page])])]))


def test_results_must_be_consumed_before_the_next_call_and_none_after_the_end(tmp_path):
    join = SSIJ(build(products(10), tmp_path), on="id", memory="1MB")
    unread = join.push(sales([2]))
    with pytest.raises(AdjoinError, match="not consumed"):
        join.push(sales([4]))
    list(unread)
    assert sum(batch.num_rows for batch in join.finish()) == 1
    with pytest.raises(AdjoinError, match="ended"):
        join.push(sales([4]))


# What a tester found.


def test_rows_offered_until_there_is_no_room_are_all_answered(tmp_path):
    table = products(20_000)
    random = np.random.default_rng(3)
    with SSIJ(build(table, tmp_path), on="id", memory="2MB") as join:
        batches = []
        while join.offer(batch := sales(random.integers(0, 40_000, 500))):
            batches.append(batch)
        actual = pa.Table.from_batches(list(join.finish()))
    assert batches
    assert_same_rows(actual, expected(pa.Table.from_batches(batches), table, Predicate("id"), "inner"))


def test_offer_refuses_what_push_refuses(tmp_path):
    join = SSIJ(build(products(10), tmp_path), on="id", memory="2MB")
    with pytest.raises(SchemaError, match="no column 'id'"):
        join.offer(pa.record_batch({"x": [1]}))
    assert join.offer(sales([2]))
    with pytest.raises(SchemaError, match="one stream has one schema"):
        join.offer(pa.record_batch({"id": [1]}))
    join.close()
    with pytest.raises(AdjoinError, match="has ended"):
        join.offer(sales([2]))


def test_a_result_asked_for_after_close_is_refused(tmp_path):
    join = SSIJ(build(products(50_000), tmp_path), on="id", memory="2MB")
    results_ = join.push(sales(np.random.default_rng(4).integers(0, 100_000, 100_000)))
    next(results_)
    join.close()
    with pytest.raises(AdjoinError, match="has ended"):
        list(results_)


def test_a_master_that_cannot_follow_is_refused_and_the_operator_goes_on(tmp_path):
    other = Master.build(pa.table({"id": [1], "z": [2]}), key="id", path=tmp_path / "other")
    with SSIJ(build(products(10), tmp_path), on="id", memory="2MB") as join:
        list(join.push(sales([2])))
        with pytest.raises(SchemaError, match="other columns"):
            join.refresh(other)
        assert sum(batch.num_rows for batch in join.finish()) == 1


def test_a_deadline_that_is_not_a_number_does_not_hide_the_others(tmp_path):
    clock = SimulatedClock()
    join = SSIJ(build(products(10), tmp_path), on="id", memory="2MB", deadline="by", clock=clock)
    list(join.push(pa.record_batch({"id": [2, 4], "by": [np.nan, 1.0]})))
    assert sum(batch.num_rows for batch in join.idle(1.0)) == 2
    join.close()


def test_a_bad_deadline_column_is_refused_before_any_row_is_taken(tmp_path):
    with (
        SSIJ(build(products(10), tmp_path), on="id", memory="2MB", deadline="by") as join,
        pytest.raises(SchemaError, match="date32"),
    ):
        join.push(pa.record_batch({"id": pa.array([2]), "by": pa.array([1], pa.date32())}))


@pytest.mark.parametrize("within", [float("nan"), Decimal("NaN"), -0.5])
def test_a_distance_that_is_none_is_refused(within, tmp_path):
    with pytest.raises(OptionError, match="must not be negative"):
        SSIJ(build(products(10), tmp_path), on="id", memory="2MB", within=within)


def test_an_endless_distance_matches_every_key(tmp_path):
    with SSIJ(build(products(10), tmp_path), on="id", memory="2MB", within=float("inf")) as join:
        assert sum(batch.num_rows for batch in join.run([sales([0, 7])])) == 20


@pytest.mark.parametrize("on", [{"a": "id", "b": "id"}, ["id", "id"]])
def test_a_key_named_twice_is_refused(on, tmp_path):
    with pytest.raises(SchemaError, match="must name the key"):
        SSIJ(build(products(10), tmp_path), on=on, memory="2MB")


def test_files_are_closed_with_an_operator_that_nobody_closed(tmp_path):
    master = build(products(1000), tmp_path)
    gc.collect()
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        join = SSIJ(master, on="id", memory="2MB")
        list(join.push(sales([2, 900])))
        list(join.idle(0))
    del join
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= open_files


def test_a_forked_process_is_told_to_make_its_own_operator(tmp_path):
    code = """
import os, sys, pyarrow as pa, adjoin
join = adjoin.SSIJ(adjoin.Master.open(sys.argv[1]), on="id", memory="2MB")
list(join.push(pa.record_batch({"id": [900]})))
list(join.idle(0))
child = os.fork()
list(join.push(pa.record_batch({"id": [2]})))
if child:
    assert sum(batch.num_rows for batch in join.finish()) == 1
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    list(join.finish())
except adjoin.StorageError as error:
    os._exit(0 if "before its fork" in str(error) else 1)
os._exit(2)
"""
    build(products(1000), tmp_path).close()
    command = [sys.executable, "-c", code, str(tmp_path / "master")]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


class Marked(pa.ExtensionType):  # type: ignore[misc]
    """A type of somebody's own; pyarrow makes those unhashable."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "adjoin.tests.marked")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Marked":
        return cls()


def test_extension_types_pass_as_keys_and_beside_them(tmp_path):
    marked = pa.ExtensionArray.from_storage(Marked(), pa.array([2, 5, None]))
    with SSIJ(build(products(10), tmp_path), on="id", how="left", memory="2MB") as join:
        table = pa.Table.from_batches(list(join.run([pa.record_batch({"id": marked, "mark": marked})])))
    assert table.schema.field("mark").type == Marked()
    assert sorted(table["name"].to_pylist(), key=str) == [f"{2:040d}", None, None]


def test_lists_with_many_items_are_measured_in_portions(tmp_path):
    rows, items = 400, 1000
    texts = pa.ListArray.from_arrays(
        np.arange(rows + 1, dtype=np.int32) * items, pa.array(["a"] * rows * items)
    )
    flags = pa.ListArray.from_arrays(
        np.arange(rows + 1, dtype=np.int32) * items, pa.array(np.ones(rows * items, bool))
    )
    table = pa.table({"id": np.zeros(rows, np.int64), "texts": texts, "flags": flags})
    stream = pa.record_batch({"id": [0] * 20})
    with SSIJ(build(table, tmp_path), on="id", memory="8MB") as join:
        for _ in join.run([stream]):  # compiles
            pass
    with SSIJ(Master.open(tmp_path / "master"), on="id", memory="8MB") as join:
        count = 0
        tracemalloc.start()
        for batch in join.run([stream]):
            count += batch.num_rows
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 20 * rows
    assert peak < 2 << 20


def test_the_keys_of_all_waiting_rows_are_not_decoded_for_each_portion(tmp_path, monkeypatch):
    names = [f"{number:0100d}" for number in range(3000)]
    table = pa.table({"id": names, "value": np.arange(3000)})
    random = np.random.default_rng(5)
    keys = pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 3000, 20_000), pa.int32()), names)
    most = 0
    conform = KeyCodec.conform

    def watched(codec: KeyCodec, columns: Any) -> Any:
        nonlocal most
        most = max(most, len(columns[0]))
        return conform(codec, columns)

    monkeypatch.setattr(KeyCodec, "conform", watched)
    with SSIJ(build(table, tmp_path), on="id", memory="16MB", stream_rows=10**6) as join:
        assert sum(batch.num_rows for batch in join.run([pa.record_batch({"id": keys})])) == 20_000
        assert most <= join._pages.split.step_rows


@pytest.mark.parametrize("distance", [2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**70, 1e30])
def test_a_distance_may_span_the_whole_domain(distance, tmp_path):
    ends = [np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max]
    table = pa.table({"id": pa.array(ends, pa.int64())})
    wanted = sum(abs(one - other) <= distance for one in map(int, ends) for other in map(int, ends))
    with SSIJ(build(table, tmp_path), on="id", memory="2MB", within=distance) as join:
        assert sum(batch.num_rows for batch in join.run([sales(ends)])) == wanted


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])], ["a"]),
    ],
)
def test_a_column_that_cannot_pass_is_named_before_any_row_is_taken(column, tmp_path):
    with (
        SSIJ(build(products(10), tmp_path), on="id", memory="2MB") as join,
        pytest.raises(SchemaError, match=r"'odd' of type .* cannot pass"),
    ):
        join.push(pa.record_batch({"id": pa.array([2]), "odd": column}))
