"""What is peculiar to the front stage: which rows it caches, how long, and that it never lies."""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from adjoin import SSIJ, CMeshJoin, FrontStage, HybridJoin, Master, MeshJoin, XHybridJoin
from adjoin.kernels.search import locate_pages
from adjoin.semistream.frontstage.cache import FrontCache, TurnCounts, pairs_by_key
from adjoin.semistream.pages.cache import PageCache
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, results, sales, slow_disk
from workloads import Zipf

ROWS = 30_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return build(products(ROWS, width=100), tmp_path_factory.mktemp("front"))


def skewed(
    rows: int, exponent: float = 1.0, shift: int = 0, placement: Literal["noperm", "random"] = "random"
) -> list[pa.RecordBatch]:
    keys = Zipf(ROWS, exponent, seed=3, placement=placement).draw(rows)
    keys = (keys + shift) % ROWS * 2
    return [sales(keys[begin : begin + 500]) for begin in range(0, rows, 500)]


def run(join: Any, batches: list[pa.RecordBatch]) -> Any:
    for batch in batches:
        for _ in join.push(batch):
            pass
    return join


@pytest.mark.parametrize("behind", [SSIJ, MeshJoin, HybridJoin])
def test_rows_of_a_cached_key_are_answered_at_once(behind, master):
    with FrontStage(behind)(master, on="id", memory="2MB", **slow_disk()) as join:
        run(join, skewed(100_000))
        hottest = int(Zipf(ROWS, 1.0, seed=3, placement="random").key_of(np.array([0]))[0]) * 2
        waiting, read = join.metrics()["rows_waiting"], join.metrics()["pages_read"]
        assert sum(out.num_rows for out in join.push(sales([hottest] * 40))) == 40
        assert (join.metrics()["rows_waiting"], join.metrics()["pages_read"]) == (waiting, read)


def test_cached_are_the_keys_whose_waiting_rows_would_take_more_memory(master):
    """The cache inequality: the last key worth its place has f* = (its bytes) / (those of a waiting row)."""
    with CMeshJoin(master, on="id", memory="2MB", **slow_disk()) as join:
        batches = skewed(400_000)
        run(join, batches[:600])
        cache: Any = join._cache
        states = []
        for batch in batches[600:]:
            run(join, [batch])
            worth_now = cache._times_worth(cache.rows)(np.array([1]))[0]
            states.append((join.metrics()["rows_waiting"], worth_now, len(cache)))
        metrics = join.metrics()
    waiting_rows, worth, keys = np.mean(states, axis=0)
    share = np.arange(1, ROWS + 1) ** -1.0
    share /= share.sum()
    hit_share = metrics["front_hits"] / metrics["rows_in"]
    seen_in_a_round = share * waiting_rows / (1 - hit_share)
    right_number = int((seen_in_a_round > worth).sum())
    assert 1.5 < worth < 4
    assert 0.6 * right_number < keys < 1.6 * right_number


def test_hot_keys_that_lie_side_by_side_are_not_forgotten_before_their_time(master):
    """A scan meets them all at once; those that come just before a round is over have had no chance yet."""
    keys = Zipf(ROWS, 1.0, seed=3, placement="noperm").draw(220_000) * 2
    batches = [sales(keys[begin : begin + 500]) for begin in range(0, len(keys), 500)]
    with CMeshJoin(master, on="id", memory="2MB", **slow_disk()) as join:
        run(join, batches[:400])
        hits = join.metrics()["front_hits"]
        run(join, batches[400:])
        assert join.metrics()["front_hits"] - hits > 0.65 * 20_000


def test_without_skew_hardly_anything_is_cached(master):
    with CMeshJoin(master, on="id", memory="2MB", **slow_disk()) as join:
        run(join, skewed(100_000, exponent=0.0))
        assert join.metrics()["front_keys"] < 1_500
        assert join.metrics()["front_bytes"] < 0.1 * join.metrics()["memory_bytes"]


def test_what_the_stream_no_longer_wants_goes(master):
    with CMeshJoin(master, on="id", memory="2MB", **slow_disk()) as join:
        run(join, skewed(200_000))
        cache: Any = join._cache
        before = set(cache.rows.keys().tolist())
        run(join, skewed(200_000, shift=ROWS // 2))
        after = set(cache.rows.keys().tolist())
        hits = join.metrics()["front_hits"]
        run(join, skewed(20_000, shift=ROWS // 2))
        assert len(before & after) < 0.2 * len(before)
        assert join.metrics()["front_hits"] - hits > 0.4 * 20_000


@pytest.mark.parametrize("exact", [True, False])
def test_a_key_is_cached_with_all_its_rows_or_not_at_all(exact, tmp_path, monkeypatch):
    """A row answered from the cache does not see the disk; caching what one page has of a key is wrong."""
    if not exact:
        monkeypatch.setattr(FrontCache, "_are_whole", lambda _, __, chosen, ___: np.ones(chosen.sum(), bool))
    table = products(60, copies=37)
    master = build(table, tmp_path)
    random = np.random.default_rng(4)
    batches = [sales(random.integers(0, 120, 200)) for _ in range(60)]
    join = CMeshJoin(master, on="id", memory="1MB", disk_pages=4, **slow_disk())
    wanted = expected(pa.Table.from_batches(batches), table, Predicate("id"), "inner")
    actual = results(join, batches)
    assert (actual.num_rows == wanted.num_rows) == exact
    if exact:
        assert_same_rows(actual, wanted)
        assert join.metrics()["front_hits"] > 0


def test_a_key_whose_rows_lie_on_two_pages_is_cached_when_both_come_together(tmp_path):
    table = products(60, copies=37)
    master = build(table, tmp_path)
    random = np.random.default_rng(4)
    batches = [sales(random.integers(0, 120, 200)) for _ in range(60)]
    with CMeshJoin(master, on="id", memory="1MB", disk_pages=4, **slow_disk()) as join:
        run(join, batches)
        cache: Any = join._cache
        keys = np.sort(cache.rows.keys())
        pages = np.subtract(*locate_pages(keys, keys, master.index.first, master.index.last)[::-1])
    assert set(pages.tolist()) >= {1, 2}


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_rows_that_pinned_pages_answer_are_not_cached_again(is_looked_at, master, monkeypatch):
    if not is_looked_at:
        monkeypatch.setattr(PageCache, "is_cached", lambda _, slots: np.zeros(len(slots), bool))
    with FrontStage(XHybridJoin)(master, on="id", memory="2MB", pinned_pages=32, **slow_disk()) as join:
        run(join, skewed(60_000, placement="noperm"))
        cache: Any = join._cache
        pinned = join._pages.cache.pages()
        keys = np.setdiff1d(master.index.first[pinned], cache.rows.keys())[:5]
        run(join, [sales(np.repeat(keys, 60))] * 3)
        cached = np.isin(keys, cache.rows.keys())
    assert len(keys) == 5
    assert cached.any() != is_looked_at


def test_counts_of_a_turn_keep_to_their_room():
    counts = TurnCounts()
    for begin in range(0, 400, 100):
        keys = np.append(np.arange(begin + 1, begin + 101), 1_000)
        joined = pairs_by_key(np.sort(keys), np.arange(101))
        times = counts.count(7, joined, room_bytes=48 * 20)
    assert times[-1] == 4
    assert len(counts._keys) == 20
    assert 1_000 in counts._keys


@pytest.mark.parametrize("is_new", [True, False])
def test_an_update_drops_what_it_changed(is_new, tmp_path, monkeypatch):
    """Without that, old rows come out."""
    if not is_new:
        monkeypatch.setattr(FrontCache, "refresh", lambda _cache, _before: None)
    master = build(products(2_000), tmp_path)
    with FrontStage(SSIJ)(master, on="id", memory="1MB", **slow_disk()) as join:
        for _ in range(40):
            run(join, [sales([10] * 50)])
            list(join.idle(0))
        assert join.metrics()["front_hits"] > 0
        change = pa.table({"id": [10], "name": ["new"], "_op": ["upsert"]})
        newer = master.apply(change, txn="one")
        list(join.refresh(newer))
        names = {name for out in (*join.push(sales([10])), *join.idle(0)) for name in out["name"].to_pylist()}
    assert (names == {"new"}) == is_new


def test_a_range_passes_by_the_cache(master):
    with FrontStage(SSIJ)(master, on="id", within=3, memory="2MB", **slow_disk()) as join:
        run(join, skewed(5_000))
        assert join.metrics()["front_bytes"] == 0
