"""What is peculiar to SSIJ: every correction of the paper, the split of memory, updates."""

from collections.abc import Generator

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ
from adjoin.semistream.base.lookup import Lookup, Missing, Needs
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import DISK, build, products, results, sales, slow_disk


class AsksAgain(Lookup):
    """The letter of Algorithm 1: whether a page is cached is asked again after pages were evicted."""

    def join_cached(self, needs: Needs) -> Generator[pa.RecordBatch, None, Missing | None]:
        slot = self._pages.cache.slot_of(needs.page)
        cached = slot >= 0
        yield from self._answerer.matcher.join(self.rows, needs.row[cached], slot[cached])
        self._pages.cache.drop_least_useful(1)
        missing = np.flatnonzero(self._pages.cache.slot_of(needs.page) < 0)
        return self._missing(needs, missing) if len(missing) else None


@pytest.mark.parametrize(("lookup", "exact"), [(Lookup, True), (AsksAgain, False)])
def test_a_page_evicted_within_the_online_phase_is_not_joined_twice(lookup, exact, tmp_path, monkeypatch):
    """The letter of the paper gives duplicates, the snapshot does not."""
    table = products(400, copies=3)
    monkeypatch.setattr("adjoin.semistream.ssij.phases.Lookup", lookup)
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
    """Rows that nobody asked to wait for so long fill the memory; nothing is lost."""
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
    """After `refresh` rows see the new version, pages that did not change stay cached."""
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
    """Rows in the stream buffer are answered before the update, rows in the input buffer after it."""
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
    """The index proves absence only in the gaps between pages."""
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


def test_when_a_pending_row_is_due_rows_in_the_input_buffer_are_served_with_it(tmp_path):
    """The online phase runs first, then the join phase for both."""
    join = SSIJ(
        build(products(2000), tmp_path), on="id", memory="8MB", deadline=1.0, input_rows=2, **slow_disk()
    )
    clock = join.parts.clock
    assert list(join.push(sales([10, 500]))) == []
    clock.sleep(0.6)
    assert list(join.push(sales([1000]))) == []
    clock.sleep(0.37)
    served = pa.Table.from_batches(list(join.push(sales([1500]))))
    assert sorted(served["id"].to_pylist()) == [10, 500, 1000, 1500]
    assert join.metrics()["deadlines_missed"] == 0


def test_the_worst_case_is_never_slower_than_one_random_read_per_row_nor_than_a_full_scan(tmp_path):
    """No row cached, every row on a page of its own."""
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
    """Rows offered while pages are read go to the input buffer, at the expense of cached pages."""
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
        assert join._phases._most_pairs < master.pages
        batches = list(join.run([stream]))
        actual = pa.Table.from_batches(batches, schema=join.schema_of(stream.schema))
        predicate = Predicate("id", between=("lo", "hi"))
        assert_same_rows(actual, expected(pa.table(stream), table, predicate, how))
        assert join.metrics()["peak_bytes"] <= memory
