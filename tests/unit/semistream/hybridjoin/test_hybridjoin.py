"""What is peculiar to HYBRIDJOIN and X-HYBRIDJOIN: the papers' theorems, and every correction."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from adjoin import HybridJoin, Master, OptionError, XHybridJoin
from adjoin.semistream.base.answers import Matcher
from adjoin.semistream.hybridjoin.hybridjoin import Loads
from adjoin.semistream.hybridjoin.xhybridjoin import PinnedLoads, without_chance
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, results, sales, slow_disk
from workloads import Zipf

ROWS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return build(products(ROWS, width=100), tmp_path_factory.mktemp("hybrid"))


def skewed(rows: int, exponent: float = 1.0, **options: Any) -> list[pa.RecordBatch]:
    keys = Zipf(ROWS, exponent, seed=3, **options).draw(rows) * 2
    return [sales(keys[begin : begin + 500]) for begin in range(0, rows, 500)]


class Watched(Loads):
    """Notes for every load which partition it was, and how many rows were answered before."""

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        self.log = getattr(self, "log", [])
        partition = self._page_of_oldest() // self._pages.split.wave_pages
        self.log.append((partition, self._intake.rows_in - self.queue.rows, self.queue.rows))
        yield from super().join_phase()


def log_of(join: Any) -> list[tuple[int, int, int]]:
    return list(join._algorithm.log)


def test_a_memory_full_of_rows_is_answered_between_two_loads_of_a_page(master, monkeypatch):
    """Theorem 1: not more reads than MESHJOIN."""
    monkeypatch.setattr(HybridJoin, "algorithm", Watched)
    with HybridJoin(master, on="id", memory="1MB", disk_pages=16, **slow_disk()) as join:
        for batch in skewed(60_000):
            list(join.push(batch))
        log = log_of(join)
    last: dict[int, tuple[int, int]] = {}
    repeats = 0
    for partition, answered, waiting in log:
        if partition in last:
            before, held = last[partition]
            assert answered - before >= held
            repeats += 1
        last[partition] = (answered, waiting)
    assert repeats > 20


def test_there_are_not_more_loads_than_rows(master):
    """Theorem 2: not more reads than an index nested loop join."""
    with HybridJoin(master, on="id", memory="1MB", disk_pages=1, **slow_disk()) as join:
        for batch in skewed(3_000, exponent=0.0):
            list(join.push(batch))
        list(join.finish())
        assert join.metrics()["iterations"] <= 3_000


@pytest.mark.parametrize("kind", [HybridJoin, XHybridJoin])
def test_the_queue_fills_again_after_the_stream_ran_dry(kind, master):
    """H-E3: the paper takes no more rows in than the last iteration answered, which then are few for ever."""
    with kind(master, on="id", memory="1MB", **slow_disk()) as join:
        most = []
        for _ in range(2):
            waiting = 0
            for batch in skewed(30_000, exponent=0.0):
                list(join.push(batch))
                waiting = max(waiting, join.metrics()["rows_waiting"])
            most.append(waiting)
            list(join.idle(1e6))
            assert join.metrics()["rows_waiting"] == 0
    assert most[1] > 0.9 * most[0] > 2_000


def test_nothing_is_read_before_the_memory_is_full_or_the_stream_pauses(master):
    with HybridJoin(master, on="id", memory="1MB", **slow_disk()) as join:
        assert list(join.push(sales([2, 4, 6]))) == []
        assert join.metrics()["pages_read"] == 0
        assert sum(batch.num_rows for batch in join.idle(0)) == 3
        pages = join.metrics()["pages_read"]
        assert list(join.idle(10)) == []
        assert list(join.finish()) == []
        assert join.metrics()["pages_read"] == pages


@pytest.mark.parametrize("kind", [HybridJoin, XHybridJoin])
def test_a_stream_that_runs_dry_is_answered_to_its_last_row(kind, master):
    """Fewer rows come than the last iteration answered: they are taken in all the same."""
    with kind(master, on="id", how="left", memory="1MB", **slow_disk()) as join:
        rows = sum(out.num_rows for batch in skewed(30_000) for out in join.push(batch))
        for few in ([2], [4, 5], [6]):
            rows += sum(out.num_rows for out in join.push(sales(few)))
        rows += sum(out.num_rows for out in join.idle(0))
        assert rows == 30_004
        assert join.metrics()["rows_waiting"] == 0


class KeepsUnmatched(Loads):
    """The letter of the paper: a row leaves when it is matched."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        leave = self.queue.leave

        def leave_if_matched(part: Any, rows: Any) -> None:
            matched = part.rows.matched[rows]
            part.left[rows[~matched]] = 1
            if matched.any():
                leave(part, rows[matched])

        self.queue.leave = leave_if_matched  # type: ignore[method-assign]


@pytest.mark.parametrize(("algorithm", "ends"), [(Loads, True), (KeepsUnmatched, False)])
def test_a_row_without_a_match_leaves(algorithm, ends, master, monkeypatch):
    monkeypatch.setattr(HybridJoin, "algorithm", algorithm)
    with HybridJoin(master, on="id", memory="1MB", disk_pages=4, **slow_disk()) as join:
        list(join.push(sales([1, 2, 3])))
        loads: Any = join._algorithm
        for _ in range(5):
            if loads._needs:
                list(loads.join_phase())
        assert (loads.rows_pending == 0) == ends
        join._ended = True


class LeavesAtFirstMatch(Loads):
    """The letter of the paper: a row leaves with its first match, as if keys were unique."""

    def _join_pages(self, pages: Any, slots: Any) -> Iterator[pa.RecordBatch]:
        yield from super()._join_pages(pages, slots)
        for part in self.queue._parts:
            gone = np.flatnonzero((part.left > 0) & part.rows.matched)
            part.left[gone] = 0
            self.queue.rows -= len(gone)


@pytest.mark.parametrize(("algorithm", "exact"), [(Loads, True), (LeavesAtFirstMatch, False)])
def test_rows_with_matches_on_several_pages_wait_for_all_of_them(algorithm, exact, tmp_path, monkeypatch):
    monkeypatch.setattr(HybridJoin, "algorithm", algorithm)
    table = products(40, copies=200)
    stream = [sales([4, 20, 40, 41])]
    join = HybridJoin(build(table, tmp_path), on="id", memory="1MB", disk_pages=1, **slow_disk())
    if not exact:
        monkeypatch.setattr(Loads, "check_invariants", lambda _: None)
    wanted = expected(pa.Table.from_batches(stream), table, Predicate("id"), "inner")
    actual = results(join, stream)
    assert (actual.num_rows == wanted.num_rows) == exact
    if exact:
        assert_same_rows(actual, wanted)


def test_rows_that_left_give_their_memory_back(master, monkeypatch):
    """Whenever pages are read, nearly all of the queue is rows that wait."""
    monkeypatch.setattr(HybridJoin, "algorithm", Watched)
    with HybridJoin(master, on="id", memory="1MB", disk_pages=8, **slow_disk()) as join:
        for batch in skewed(40_000):
            list(join.push(batch))
            join.check_invariants()
        waiting = [rows for _, _, rows in log_of(join)]
    assert min(waiting) > 0.8 * max(waiting)


def test_hot_pages_are_found_in_a_master_that_is_not_sorted_by_frequency(master):
    with XHybridJoin(master, on="id", memory="1MB", pinned_pages=12, **slow_disk()) as join:
        for batch in skewed(120_000, placement="random"):
            list(join.push(batch))
        cached = join.parts.pages.cache.pages()
        keys = Zipf(ROWS, 1.0, seed=3, placement="random").key_of(np.arange(ROWS)) * 2
        share = np.arange(1, ROWS + 1) ** -1.0
        wanted = np.bincount(np.searchsorted(master.index.first, keys, "right") - 1, share, master.pages)
    assert len(cached) == 12
    assert wanted[cached].sum() > 0.9 * np.sort(wanted)[-12:].sum()


def test_rows_that_pinned_pages_answer_do_not_wait(master):
    with XHybridJoin(master, on="id", memory="1MB", pinned_pages=8, **slow_disk()) as join:
        for batch in skewed(60_000):
            list(join.push(batch))
        page = int(join.parts.pages.cache.pages()[0])
        waiting, read = join.metrics()["rows_waiting"], join.metrics()["pages_read"]
        rows = sum(out.num_rows for out in join.push(sales([int(master.index.first[page])] * 50)))
        assert rows == 50
        assert (join.metrics()["rows_waiting"], join.metrics()["pages_read"]) == (waiting, read)


def test_a_row_is_looked_up_once_on_every_page_that_may_have_it(master, monkeypatch):
    """X-E3: the paper looks up pinned rows among all that wait, in every iteration."""
    looked_up, join_needs = [], Matcher.join

    def noted(self, rows, need_row, need_slot):
        looked_up.append(len(need_row))
        return join_needs(self, rows, need_row, need_slot)

    monkeypatch.setattr(Matcher, "join", noted)
    with XHybridJoin(master, on="id", memory="1MB", pinned_pages=8, **slow_disk()) as join:
        list(join.run(skewed(60_000)))
        assert join.metrics()["iterations"] > 20
    assert sum(looked_up) == 60_000


def test_pinned_pages_follow_the_stream(master):
    with XHybridJoin(master, on="id", memory="1MB", pinned_pages=8, **slow_disk()) as join:
        for shift in (0, ROWS):
            keys = (Zipf(ROWS, 1.2, seed=5).draw(120_000) * 2 + shift) % (2 * ROWS)
            for begin in range(0, len(keys), 500):
                list(join.push(sales(keys[begin : begin + 500])))
            hot = np.searchsorted(master.index.first, [shift], "right") - 1
            assert join.parts.pages.cache.slot_of(hot)[0] >= 0


class NotesHeads(PinnedLoads):
    """Notes which pages are read as the first of the master."""

    heads: ClassVar[list[Any]] = []
    _is_head = False

    def _read_head(self) -> Iterator[pa.RecordBatch]:
        self._is_head = True
        yield from super()._read_head()
        self._is_head = False

    def _load(self, unread: Any, max_scan: int) -> Iterator[pa.RecordBatch]:
        if self._is_head:
            self.heads.append(unread)
        return super()._load(unread, max_scan)


def test_the_first_pages_of_a_sorted_master_are_read_in_one_go(master, monkeypatch):
    heads: list[Any] = []
    monkeypatch.setattr(NotesHeads, "heads", heads)
    monkeypatch.setattr(XHybridJoin, "algorithm", NotesHeads)
    with XHybridJoin(master, on="id", memory="2MB", **slow_disk()) as join:
        for batch in skewed(60_000):
            list(join.push(batch))
        pinned = join.parts.pages.pinned_slots
        cached = np.sort(join.parts.pages.cache.pages())
        assert pinned > 8
        assert len(np.intersect1d(cached, np.arange(pinned))) > 0.8 * pinned
    assert sum(map(len, heads)) > 0
    assert all(len(head) == 0 or head.max() < pinned for head in heads)


def test_memory_for_more_pages_than_the_master_has(master):
    """Memory comes in grains, so that there can be room for a little more than the whole master."""
    with XHybridJoin(master, on="id", memory="64MB", pinned_pages=master.pages, **slow_disk()) as join:
        assert join.parts.pages.pinned_slots > master.pages
        join._algorithm._wants_head = True
        rows = sum(out.num_rows for out in join.run(skewed(40_000)))
        assert join.metrics()["pages_cached"] == master.pages
    assert rows == 40_000


def test_without_skew_hardly_anything_is_pinned(master):
    with XHybridJoin(master, on="id", memory="2MB", **slow_disk()) as join:
        for batch in skewed(100_000, exponent=0.0):
            list(join.push(batch))
        assert join.parts.pages.pinned_slots <= 8


def test_differences_that_chance_explains_are_none():
    random = np.random.default_rng(1)
    chance = without_chance(random.poisson(20.0, 5_000).astype(float))
    assert chance.std() < 1.0
    real = without_chance(random.poisson(np.repeat([5.0, 500.0], 2_500)).astype(float))
    assert real.std() > 200


@pytest.mark.parametrize(("name", "value"), [("disk_pages", 0), ("disk_pages", 1.5), ("pinned_pages", -1)])
def test_bad_options(name, value, master):
    with pytest.raises(OptionError, match=name):
        XHybridJoin(master, on="id", memory="1MB", **{name: value})


def test_a_load_larger_than_memory_is_refused(master):
    with pytest.raises(Exception, match="read fewer pages"):
        HybridJoin(master, on="id", memory="1MB", disk_pages=400)
