"""Cached rows that outlive their operator: found again by the next one, at whichever version, never stale."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from adjoin import SSIJ, ArenaError, CMeshJoin, FrontStage, HybridJoin, Master, OptionError, XHybridJoin
from adjoin.memory.page_memory import PageFile
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, results, sales
from tests.unit.semistream.warm import KEYS, WarmMachine, occupied, small_file_system

ROWS = 2000
MEMORY = 4 << 20
EVERY_KEY = np.arange(0, 2 * ROWS, 2)
FrontSSIJ: Any = FrontStage(SSIJ)


@pytest.fixture
def master(tmp_path):
    return build(products(ROWS), tmp_path)


def join_once(
    master: Master, path: Path, keys: Any, memory: int = MEMORY, kind: Any = FrontSSIJ, **options: Any
) -> tuple[Any, dict]:
    """Rows and metrics of one operator on the page file."""
    with PageFile(path, memory) as pages:
        join = kind(master, on="id", memory=memory, pages=pages, shared_index=True, **options)
        join.check_invariants()
        rows = results(join, [sales(keys)])
        metrics = join.metrics()
        join.check_invariants()
        join.close()
        metrics["front_keys"] = join.metrics()["front_keys"]
        held_bytes = metrics["pages_bytes"] + metrics["index_bytes"] + metrics["front_bytes"]
        assert occupied(path) <= held_bytes <= memory
    return rows, metrics


def assert_right(rows: pa.Table, table: pa.Table, keys: Any) -> None:
    assert_same_rows(rows, expected(pa.table(sales(keys)), table, Predicate("id"), "inner"))


def upserts(keys: list[int], name: str) -> pa.Table:
    return pa.table({"id": keys, "name": [name] * len(keys), "_op": ["upsert"] * len(keys)})


@pytest.mark.parametrize("kind", [FrontSSIJ, FrontStage(HybridJoin), FrontStage(XHybridJoin), CMeshJoin])
def test_the_next_operator_answers_from_the_rows_that_are_cached(master, tmp_path, kind):
    keys = np.repeat(EVERY_KEY, 20)
    rows, metrics = join_once(master, tmp_path / "pages", keys, kind=kind)
    assert metrics["front_keys"] > ROWS // 2
    assert_right(rows, products(ROWS), keys)
    keys = EVERY_KEY[:50]
    rows, warm = join_once(master, tmp_path / "pages", keys, kind=kind)
    assert warm["front_keys"] >= 0.9 * metrics["front_keys"]
    assert warm["front_hits"] >= 25
    assert_right(rows, products(ROWS), keys)


def test_everything_is_as_it_was_left(master, tmp_path):
    """The same stream through one operator, and through one after the other: the same rows stay."""
    rng = np.random.default_rng(3)
    batches = [np.minimum(rng.zipf(1.3, 1000) * 2, 2 * ROWS - 2) for _ in range(12)]
    memory = SSIJ.least_memory(master, pages=PageFile, shared_index=True) + (160 << 10)
    hits = 0.0
    for keys in batches:
        rows, metrics = join_once(master, tmp_path / "pages", keys, memory)
        assert_right(rows, products(ROWS), keys)
        hits += metrics["front_hits"]
    with PageFile(tmp_path / "other", memory) as pages:
        join = FrontSSIJ(master, on="id", memory=memory, pages=pages, shared_index=True)
        for keys in batches:
            list(join.push(sales(keys)))
            list(join.idle(0))
        alone = join.metrics()
        join.close()
    assert metrics["front_keys"] >= 0.9 * alone["front_keys"]
    assert hits >= 0.9 * alone["front_hits"] > 1000


CHILD = """
import os, signal, sys
import numpy as np, pyarrow as pa
import adjoin
from adjoin.memory.page_memory import PageFile

master, path, memory, end = adjoin.Master.open(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
kind = adjoin.FrontStage(adjoin.SSIJ)
join = kind(master, on="id", memory=memory, pages=PageFile(path, memory), shared_index=True)
keys = pa.record_batch({"id": pa.array(np.arange(0, 4000, 2)), "sale": np.arange(2000)})
rows = sum(batch.num_rows for batch in join.push(keys)) + sum(batch.num_rows for batch in join.idle(0))
print(rows, join.metrics()["front_hits"], join.metrics()["front_keys"], flush=True)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
join.close()
"""


def in_another_process(master: Master, path: Path, end: str) -> tuple[int, int]:
    """Rows answered from the cache, and how many keys it has then."""
    command = [sys.executable, "-c", CHILD, master.path, str(path), str(MEMORY), end]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    rows, front_hits, front_keys = map(int, done.stdout.split())
    assert rows == ROWS
    return front_hits, front_keys


def test_another_process_continues_with_the_rows(master, tmp_path):
    hits, cached = in_another_process(master, tmp_path / "pages", "close")
    assert hits == 0 < cached
    _, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == cached
    hits, _ = in_another_process(master, tmp_path / "pages", "close")
    assert hits == metrics["front_keys"]


def test_after_a_kill_the_next_operator_begins_with_nothing(master, tmp_path):
    _, cached = in_another_process(master, tmp_path / "pages", "close")
    hits, _ = in_another_process(master, tmp_path / "pages", "kill")
    assert hits == cached > 0
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == 0
    assert metrics["pages_read"] == master.pages
    assert_right(rows, products(ROWS), EVERY_KEY)


def test_at_a_newer_version_only_keys_of_changed_pages_are_forgotten(master, tmp_path):
    _, before = join_once(master, tmp_path / "pages", EVERY_KEY)
    newer = master.apply(upserts([100, 2000], "changed"))
    master.close()
    rows, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    assert {key for key, name in names.items() if name == "changed"} == {100, 2000}
    assert len(names) == ROWS
    forgotten = before["front_keys"] - metrics["front_hits"]
    assert 1 <= forgotten <= 4 * ROWS / master.pages
    _, again = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert again["front_hits"] == metrics["front_keys"]


def test_where_the_older_version_is_gone_all_rows_are_forgotten(master, tmp_path):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    newer = master.apply(upserts([100, 2000], "changed"))
    master.close()
    assert newer.vacuum(keep=1).versions == (1,)
    rows, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == 0
    assert sum(name == "changed" for name in rows["name"].to_pylist()) == 2
    _, again = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert again["front_hits"] == metrics["front_keys"] > 0


def test_back_at_an_older_version_its_rows_are_given(master, tmp_path):
    newer = master.apply(upserts([100], "changed"))
    _, before = join_once(newer, tmp_path / "pages", EVERY_KEY)
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert_right(rows, products(ROWS), EVERY_KEY)
    assert before["front_keys"] * 0.9 < metrics["front_hits"] < before["front_keys"]


def test_a_version_without_changes_to_pages_keeps_them_all(master, tmp_path):
    _, before = join_once(master, tmp_path / "pages", EVERY_KEY)
    newer = master.apply(upserts([], "none").slice(0, 0), txn="nothing")
    master.close()
    newer.vacuum(keep=1)
    _, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == before["front_keys"] > 0


def test_a_master_with_other_rows_at_the_same_path_is_another(master, tmp_path):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    master.close()
    shutil.rmtree(tmp_path / "master")
    other = products(ROWS).set_column(1, "name", pa.array([f"{key:040x}" for key in range(ROWS)]))
    rows, metrics = join_once(build(other, tmp_path), tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == 0
    assert_right(rows, other, EVERY_KEY)


@pytest.mark.parametrize(
    "options",
    [{"memory": MEMORY + 4096}, {"columns": []}, {"front": 0.5}, {"front": 0}, {"within": 1}],
)
def test_operators_that_lay_memory_out_otherwise_begin_with_nothing(master, tmp_path, options):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    with PageFile(tmp_path / "pages", MEMORY * 2) as pages:
        options = {"memory": MEMORY, **options}
        join = FrontSSIJ(master, on="id", pages=pages, shared_index=True, **options)
        join.check_invariants()
        assert join.metrics()["front_keys"] == 0
        assert results(join, [sales(EVERY_KEY)]).num_rows == ROWS
        join.close()


def test_rows_that_a_semi_join_left_are_not_enough_for_an_inner_join(tmp_path):
    master = build(products(100, copies=3), tmp_path)
    for how in ("semi", "inner", "semi", "inner"):
        with PageFile(tmp_path / "pages", MEMORY) as pages:
            join = FrontSSIJ(master, on="id", how=how, columns=[], memory=MEMORY, pages=pages)
            rows = [*join.push(sales(EVERY_KEY[:100])), *join.idle(0), *join.push(sales(EVERY_KEY[:100]))]
            rows += [*join.finish()]
            assert sum(batch.num_rows for batch in rows) == (200 if how == "semi" else 600)
            join.close()


@pytest.mark.parametrize(("first", "second"), [(SSIJ, FrontSSIJ), (FrontSSIJ, SSIJ)])
def test_operators_with_and_without_a_front_stage_do_not_share_pages(master, tmp_path, first, second):
    """Or rows that nobody will ask for again would take their part of the memory."""
    for kind in (first, second):
        with PageFile(tmp_path / "pages", MEMORY) as pages:
            join = kind(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
            assert join.metrics()["pages_cached"] == 0
            assert results(join, [sales(EVERY_KEY)]).num_rows == ROWS
            join.close()


def test_a_master_that_has_grown_out_of_the_layout_begins_with_nothing(tmp_path):
    """A page longer than any before does not fit the slots for pages, and all memory is laid out anew."""
    table = products(100)
    master = build(table, tmp_path)
    join_once(master, tmp_path / "pages", EVERY_KEY[:100])
    long = upserts([7], "y" * 50_000)
    newer = master.apply(long)
    keys = [*range(0, 200, 2), 7]
    rows, metrics = join_once(newer, tmp_path / "pages", keys)
    assert metrics["front_hits"] == 0
    assert_right(rows, pa.concat_tables([table, long.select(["id", "name"])]), keys)


def test_refresh_works_in_a_file_too(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        list(join.push(sales(EVERY_KEY)))
        list(join.idle(0))
        newer = master.apply(upserts([100, 4002], "changed"))
        list(join.refresh(newer))
        join.check_invariants()
        seen = pa.Table.from_batches([*join.push(sales([100, 3002, 4002])), *join.finish()])
        assert sorted(seen["name"].to_pylist()) == sorted(["changed", "changed", f"{3002:040d}"])
        assert join.metrics()["front_hits"] == 1
        join.close()
    _, metrics = join_once(newer, tmp_path / "pages", [100, 3002, 4002])
    assert metrics["front_hits"] == 3


def test_an_operator_left_in_the_middle_leaves_no_rows(master, tmp_path):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        half = join.run([sales(EVERY_KEY)])
        next(half)
        join.close()
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == 0
    assert_right(rows, products(ROWS), EVERY_KEY)


def test_an_operator_that_failed_leaves_nothing(master, tmp_path, monkeypatch):
    join_once(master, tmp_path / "pages", EVERY_KEY[:500])

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with PageFile(tmp_path / "pages", MEMORY) as pages, monkeypatch.context() as patched:
        join = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        patched.setattr("adjoin.memory.row_slots.find_buffers", fail)
        with pytest.raises(KeyboardInterrupt):
            list(join.run([sales(EVERY_KEY)]))
        join.close()
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == 0
    assert_right(rows, products(ROWS), EVERY_KEY)


def test_no_damage_to_the_header_is_overlooked(master, tmp_path):
    for place in (3, 20, 200, 900):
        join_once(master, tmp_path / "pages", EVERY_KEY)
        with (tmp_path / "pages").open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
        assert metrics["front_hits"] == metrics["cache_hits"] == 0
        assert_right(rows, products(ROWS), EVERY_KEY)


def test_closing_twice_leaves_the_rows_of_the_next_user_alone(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        first = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages)
        list(first.push(sales(EVERY_KEY)))
        list(first.idle(0))
        first.close()
        cached = first.metrics()["front_keys"]
        second = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages)
        first.close()
        with pytest.raises(OptionError, match="in use"):
            FrontSSIJ(master, on="id", memory=MEMORY, pages=pages)
        second.close()
        third = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages)
        assert third.metrics()["front_keys"] == cached > 0
        third.close()


def test_a_closed_operator_does_not_look_at_the_file_any_more(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages)
        results(join, [sales(EVERY_KEY)])
        join.close()
    os.truncate(tmp_path / "pages", 0)
    assert join.metrics()["front_keys"] > 0


def test_a_cache_that_gives_memory_back_frees_its_blocks(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        list(join.push(sales(EVERY_KEY)))
        list(join.idle(0))
        held_bytes, before = join.metrics()["front_bytes"], occupied(tmp_path / "pages")
        join._cache.give_way(MEMORY)
        join.check_invariants()
        assert join.metrics()["front_bytes"] == 0
        assert before - occupied(tmp_path / "pages") > held_bytes // 2
        rows = [*join.push(sales(EVERY_KEY)), *join.idle(0)]
        assert sum(batch.num_rows for batch in rows) == ROWS
        newer = master.apply(upserts([100], "changed"))
        list(join.refresh(newer))
        list(join.push(sales(EVERY_KEY)))
        list(join.idle(0))
        join.check_invariants()
        join.close()
        cached = join.metrics()["front_keys"]
    _, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == cached > 0


def test_rows_offered_while_cached_rows_are_emitted_do_not_evict_them(master):
    """`offer` may ask for memory at any time."""
    memory = FrontSSIJ.least_memory(master) + (200 << 10)
    join = FrontSSIJ(master, on="id", memory=memory)
    list(join.push(sales(np.tile(EVERY_KEY[:400], 5))))
    list(join.idle(0))
    keys = np.tile(EVERY_KEY[:400], 40)
    rows = []
    for batch in join.push(sales(keys)):
        assert not join._pages.make_room(memory)
        rows += batch.to_pylist()
    rows += [row for batch in join.finish() for row in batch.to_pylist()]
    assert join.metrics()["front_hits"] > len(keys) // 2
    assert [row["name"] for row in rows] == [f"{row['id']:040d}" for row in rows]
    assert len(rows) == len(keys)
    join.close()


def test_a_full_file_system_ends_the_operator_and_nothing_else(master, tmp_path):
    with small_file_system(tmp_path / "small", "700k") as small:
        memory = SSIJ.least_memory(master, pages=PageFile) + (1 << 20)
        with PageFile(small / "pages", memory) as pages:
            join = FrontSSIJ(master, on="id", memory=memory, pages=pages)
            with pytest.raises(ArenaError, match="No space left"):
                list(join.run([sales(EVERY_KEY)]))
            join.close()
        join_once(master, small / "pages", EVERY_KEY[:50], SSIJ.least_memory(master, pages=PageFile))


def test_a_cache_that_finds_no_room_when_it_leaves_leaves_the_pages_at_least(master, tmp_path, monkeypatch):
    with PageFile(tmp_path / "pages", MEMORY) as pages, monkeypatch.context() as patched:
        join = FrontSSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        list(join.push(sales(EVERY_KEY)))
        list(join.idle(0))
        patched.setattr("adjoin.semistream.frontstage.cache.TupleCache.leave", _full)
        join.close()
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["front_hits"] == 0
    assert metrics["pages_read"] == 0
    assert_right(rows, products(ROWS), EVERY_KEY)


def _full(*_: object) -> None:
    raise ArenaError("full")


def test_an_operator_that_could_not_be_made_leaves_the_file_usable(master, tmp_path, monkeypatch):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        with monkeypatch.context() as patched:
            patched.setattr("adjoin.semistream.frontstage.cache.TupleCache", _full)
            with pytest.raises(ArenaError, match="full"):
                FrontSSIJ(master, on="id", memory=MEMORY, pages=pages)
        FrontSSIJ(master, on="id", memory=MEMORY, pages=pages).close()


class WarmRows(WarmMachine):
    """Rows stay from one front stage to the next, whatever join is behind it."""

    left = "front_keys"

    @initialize(
        rows=st.integers(50, 400),
        room=st.sampled_from([0, 70_000, 120_000, 400_000]),
        kind=st.sampled_from([FrontSSIJ, FrontSSIJ, FrontStage(XHybridJoin), CMeshJoin]),
    )
    def begin(self, rows: int, room: int, kind: Any) -> None:
        self.build(kind, rows, room)

    @precondition(lambda self: self.join is not None)
    @rule(keys=KEYS, times=st.sampled_from([1, 3, 30]))
    def push(self, keys: list[int], times: int) -> None:
        self.ask(keys * times)

    def leave(self) -> int:
        """Rows on the way find their place, or none, when it closes."""
        self.join.close()
        return int(self.join.metrics()[self.left])


WarmRows.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWarmRows = WarmRows.TestCase
