"""Pages that outlive their operator: found again by the next one, at whichever version, and never stale."""

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

from adjoin import SSIJ, ArenaError, BudgetError, Master, OptionError
from adjoin.master import verify
from adjoin.memory.page_memory import PageFile
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, results, sales
from tests.unit.semistream.warm import KEYS, WarmMachine, occupied, small_file_system

ROWS = 2000
MEMORY = 4 << 20
EVERY_KEY = np.arange(0, 2 * ROWS, 2)


@pytest.fixture
def master(tmp_path):
    return build(products(ROWS), tmp_path)


def join_once(
    master: Master, path: Path, keys: Any, memory: int = MEMORY, **options: Any
) -> tuple[Any, dict]:
    """Rows and metrics of one operator on the page file."""
    with PageFile(path, memory) as pages:
        join = SSIJ(master, on="id", memory=memory, pages=pages, shared_index=True, **options)
        rows = results(join, [sales(keys)])
        metrics = join.metrics()
        join.check_invariants()
        join.close()
        assert occupied(path) <= metrics["pages_bytes"] + metrics["index_bytes"] <= memory
    return rows, metrics


def assert_right(rows: pa.Table, table: pa.Table, keys: Any) -> None:
    assert_same_rows(rows, expected(pa.table(sales(keys)), table, Predicate("id"), "inner"))


def upserts(keys: list[int], name: str) -> pa.Table:
    return pa.table({"id": keys, "name": [name] * len(keys), "_op": ["upsert"] * len(keys)})


def test_the_next_operator_reads_nothing_that_is_cached(master, tmp_path):
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == master.pages
    assert_right(rows, products(ROWS), EVERY_KEY)
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == 0
    assert metrics["cache_hits"] == ROWS
    assert_right(rows, products(ROWS), EVERY_KEY)


def test_what_is_most_in_demand_stays_so_when_operators_change(master, tmp_path):
    """Utilities stay: a page that the last operator wanted often is not evicted for one wanted once."""
    memory = SSIJ.least_memory(master, pages=PageFile, shared_index=True) + (64 << 10)
    hot = np.repeat(master.index.first[:4], 400)
    _, metrics = join_once(master, tmp_path / "pages", hot, memory)
    assert metrics["pages_cached"] == 4
    for _ in range(3):
        _, metrics = join_once(master, tmp_path / "pages", EVERY_KEY[100:], memory, input_rows=100)
        assert metrics["pages_cached"] < master.pages
    _, metrics = join_once(master, tmp_path / "pages", hot, memory)
    assert metrics["pages_read"] == 0


CHILD = """
import os, signal, sys
import numpy as np, pyarrow as pa
import adjoin
from adjoin.memory.page_memory import PageFile

master, path, memory, end = adjoin.Master.open(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
join = adjoin.SSIJ(master, on="id", memory=memory, pages=PageFile(path, memory), shared_index=True)
keys = pa.record_batch({"id": pa.array(np.arange(0, 4000, 2)), "sale": np.arange(2000)})
rows = sum(batch.num_rows for batch in join.push(keys)) + sum(batch.num_rows for batch in join.idle(0))
print(rows, join.metrics()["pages_read"], flush=True)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
join.close()
"""


def in_another_process(master: Master, path: Path, end: str) -> tuple[int, int]:
    command = [sys.executable, "-c", CHILD, master.path, str(path), str(MEMORY), end]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    rows, pages_read = done.stdout.split()
    return int(rows), int(pages_read)


def test_another_process_continues_with_the_pages(master, tmp_path):
    assert in_another_process(master, tmp_path / "pages", "close") == (ROWS, master.pages)
    _, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == 0
    assert in_another_process(master, tmp_path / "pages", "close") == (ROWS, 0)


def test_after_a_kill_the_next_operator_begins_with_nothing(master, tmp_path):
    assert in_another_process(master, tmp_path / "pages", "close") == (ROWS, master.pages)
    assert in_another_process(master, tmp_path / "pages", "kill") == (ROWS, 0)
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == master.pages
    assert_right(rows, products(ROWS), EVERY_KEY)


@pytest.mark.parametrize("vacuumed", [False, True])
def test_at_a_newer_version_unchanged_pages_stay_and_changed_ones_are_read(master, tmp_path, vacuumed):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    newer = master.apply(upserts([100, 2000], "changed"))
    master.close()
    if vacuumed:
        assert newer.vacuum(keep=1).versions == (1,)
    rows, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    assert {key for key, name in names.items() if name == "changed"} == {100, 2000}
    assert len(names) == ROWS
    assert 1 <= metrics["pages_read"] <= 4
    _, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == 0


def test_back_at_an_older_version_its_rows_are_given(master, tmp_path):
    newer = master.apply(upserts([100], "changed"))
    join_once(newer, tmp_path / "pages", EVERY_KEY)
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert_right(rows, products(ROWS), EVERY_KEY)
    assert 1 <= metrics["pages_read"] <= 2


def test_a_version_without_changes_to_pages_keeps_them_all(master, tmp_path):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    newer = master.apply(upserts([], "none").slice(0, 0), txn="nothing")
    _, metrics = join_once(newer, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == 0


def test_a_master_with_other_rows_at_the_same_path_is_another(master, tmp_path):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    master.close()
    shutil.rmtree(tmp_path / "master")
    other = products(ROWS).set_column(1, "name", pa.array([f"{key:040x}" for key in range(ROWS)]))
    rows, _ = join_once(build(other, tmp_path), tmp_path / "pages", EVERY_KEY)
    assert_right(rows, other, EVERY_KEY)


def test_pages_that_are_alike_in_every_byte_are_each_found_once(tmp_path):
    """Many equal rows of one key: whole pages have the same first key and the same checksum."""
    table = pa.table({"id": np.sort(np.tile([10, 20, 30], 500)), "name": ["x" * 40] * 1500})
    master = build(table, tmp_path)
    join_once(master, tmp_path / "pages", [10, 20, 30])
    change = pa.table({"id": [5], "name": ["new"], "_op": ["insert"]})
    newer = master.apply(change)
    rows, metrics = join_once(newer, tmp_path / "pages", [5, 10, 20, 30])
    assert_right(rows, pa.concat_tables([table, change.select(["id", "name"])]), [5, 10, 20, 30])
    assert metrics["pages_read"] <= 2


@pytest.mark.parametrize(
    "options", [{"memory": MEMORY + 4096}, {"memory": MEMORY // 2}, {"columns": []}, {"decay": 0.5}]
)
def test_operators_that_lay_memory_out_otherwise_begin_with_nothing(master, tmp_path, options):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    with PageFile(tmp_path / "pages", MEMORY * 2) as pages:
        options = {"memory": MEMORY, **options}
        join = SSIJ(master, on="id", pages=pages, shared_index=True, **options)
        assert join.metrics()["pages_cached"] == 0
        assert results(join, [sales(EVERY_KEY)]).num_rows == ROWS
        join.close()


def test_a_master_that_has_grown_out_of_the_layout_begins_with_nothing(tmp_path):
    """A page longer than any before does not fit the slots that are there."""
    table = products(100)
    master = build(table, tmp_path)
    join_once(master, tmp_path / "pages", EVERY_KEY[:100])
    long = upserts([7], "y" * 50_000)
    newer = master.apply(long)
    keys = [*range(0, 200, 2), 7]
    rows, metrics = join_once(newer, tmp_path / "pages", keys)
    assert metrics["pages_read"] == newer.pages
    assert_right(rows, pa.concat_tables([table, long.select(["id", "name"])]), keys)


def test_more_pages_than_there_are_notes_for_begin_with_nothing(master, tmp_path, monkeypatch):
    monkeypatch.setattr("adjoin.semistream.pages.cache._ROOM_TIMES", 1)
    monkeypatch.setattr("adjoin.semistream.pages.cache._ROOM_PAGES", 0)
    join_once(master, tmp_path / "pages", EVERY_KEY)
    new = pa.table(
        {"id": np.arange(100_000, 160_000), "name": ["n" * 40] * 60_000, "_op": ["insert"] * 60_000}
    )
    newer = master.apply(new)
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = SSIJ(newer, on="id", memory=MEMORY, pages=pages, shared_index=True)
        assert join.metrics()["pages_cached"] == 0
        assert results(join, [sales([0, 100_000, 159_999])]).num_rows == 3
        join.close()


def test_refresh_works_in_a_file_too(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = SSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        list(join.push(sales(EVERY_KEY)))
        list(join.idle(0))
        newer = master.apply(upserts([100, 4002], "changed"))
        before = join.metrics()["pages_read"]
        list(join.refresh(newer))
        join.check_invariants()
        seen = pa.Table.from_batches([*join.push(sales([100, 102, 4002])), *join.finish()])
        assert sorted(seen["name"].to_pylist()) == sorted(["changed", "changed", f"{102:040d}"])
        assert 1 <= join.metrics()["pages_read"] - before <= 2
        join.close()
    _, metrics = join_once(newer, tmp_path / "pages", [100, 102, 4002])
    assert metrics["pages_read"] == 0


def test_an_operator_left_in_the_middle_leaves_nothing(master, tmp_path):
    join_once(master, tmp_path / "pages", EVERY_KEY)
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = SSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        half = join.run([sales(EVERY_KEY)])
        next(half)
        join.close()
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == master.pages
    assert_right(rows, products(ROWS), EVERY_KEY)


def test_an_operator_that_failed_leaves_nothing(master, tmp_path, monkeypatch):
    join_once(master, tmp_path / "pages", EVERY_KEY[:500])

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with PageFile(tmp_path / "pages", MEMORY) as pages, monkeypatch.context() as patched:
        join = SSIJ(master, on="id", memory=MEMORY, pages=pages, shared_index=True)
        patched.setattr("adjoin.semistream.pages.cache.move_pages", fail)
        with pytest.raises(KeyboardInterrupt):
            list(join.run([sales(EVERY_KEY)]))
        join.close()
    rows, metrics = join_once(master, tmp_path / "pages", EVERY_KEY)
    assert metrics["pages_read"] == master.pages
    assert_right(rows, products(ROWS), EVERY_KEY)


def test_closing_twice_leaves_the_pages_of_the_next_user_alone(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        first = SSIJ(master, on="id", memory=MEMORY, pages=pages)
        first.close()
        second = SSIJ(master, on="id", memory=MEMORY, pages=pages)
        first.close()
        with pytest.raises(OptionError, match="in use"):
            SSIJ(master, on="id", memory=MEMORY, pages=pages)
        second.close()
        SSIJ(master, on="id", memory=MEMORY, pages=pages).close()


def test_a_closed_operator_does_not_look_at_the_file_any_more(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        join = SSIJ(master, on="id", memory=MEMORY, pages=pages)
        results(join, [sales(EVERY_KEY)])
        join.close()
    os.truncate(tmp_path / "pages", 0)
    assert join.metrics()["pages_cached"] == master.pages


def test_an_operator_that_could_not_be_made_leaves_the_file_usable(master, tmp_path):
    with PageFile(tmp_path / "pages", MEMORY) as pages:
        with pytest.raises(BudgetError):
            SSIJ(master, on="id", memory=100_000, pages=pages)
        SSIJ(master, on="id", memory=MEMORY, pages=pages).close()


def test_a_file_smaller_than_the_memory_is_refused(master, tmp_path):
    with (
        PageFile(tmp_path / "pages", MEMORY - 1) as pages,
        pytest.raises(OptionError, match="less than memory="),
    ):
        SSIJ(master, on="id", memory=MEMORY, pages=pages)


@pytest.mark.parametrize("shared_index", [False, True])
def test_the_least_memory_named_for_a_file_works_and_a_byte_less_does_not(master, tmp_path, shared_index):
    least = SSIJ.least_memory(master, pages=PageFile, shared_index=shared_index)
    with PageFile(tmp_path / "pages", least) as pages:
        options = {"pages": pages, "shared_index": shared_index}
        with pytest.raises(BudgetError, match=f"memory={least}"):
            SSIJ(master, on="id", memory=least - 1, **options)
        join = SSIJ(master, on="id", memory=least, **options)
        assert results(join, [sales(EVERY_KEY)]).num_rows == ROWS
        join.close()


def test_a_shared_index_is_mapped_verified_and_counted_once(master, tmp_path, monkeypatch):
    own = SSIJ(master, on="id", memory=MEMORY)
    first = SSIJ(master, on="id", memory=MEMORY, shared_index=True)
    assert own.metrics()["index_bytes"] - first.metrics()["index_bytes"] == master.index.nbytes
    monkeypatch.setattr(verify, "checksum_of", None)  # nobody hashes anything any more
    second = SSIJ(master, on="id", memory=MEMORY, shared_index=True)
    assert second.parts.pages.index is first.parts.pages.index is master.checked_index
    for join in (own, first, second):
        assert results(join, [sales(EVERY_KEY)]).num_rows == ROWS
        join.close()


def test_a_full_file_system_ends_the_operator_and_nothing_else(master, tmp_path):
    with small_file_system(tmp_path / "small", "600k") as small:
        memory = SSIJ.least_memory(master, pages=PageFile) + (1 << 20)
        with PageFile(small / "pages", memory) as pages:
            join = SSIJ(master, on="id", memory=memory, pages=pages)
            with pytest.raises(ArenaError, match="No space left"):
                list(join.run([sales(EVERY_KEY)]))
            join.close()
        join_once(master, small / "pages", EVERY_KEY[:50], SSIJ.least_memory(master, pages=PageFile))


class WarmPages(WarmMachine):
    """Pages stay from one SSIJ to the next."""

    left = "pages_cached"

    @initialize(rows=st.integers(50, 400), room=st.sampled_from([0, 20_000, 200_000]))
    def begin(self, rows: int, room: int) -> None:
        self.build(SSIJ, rows, room)

    @precondition(lambda self: self.join is not None)
    @rule(keys=KEYS)
    def push(self, keys: list[int]) -> None:
        self.ask(keys)


WarmPages.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWarmPages = WarmPages.TestCase


def test_after_a_burst_of_rows_the_cache_takes_their_memory_again(tmp_path):
    """Only for a while does the cache leave free what the burst needed."""
    random = np.random.default_rng(5)
    master = build(products(20_000, width=100), tmp_path)
    memory = SSIJ.least_memory(master, pages=PageFile, shared_index=True) + (1 << 20)
    with (
        PageFile(tmp_path / "pages", memory) as pages,
        SSIJ(master, on="id", memory=memory, pages=pages, shared_index=True) as join,
    ):

        def cached_after(batches: int, rows: int) -> int:
            for _ in range(batches):
                list(join.push(sales(2 * random.integers(0, 20_000, rows))))
                list(join.idle(0))
                join.check_invariants()
            return int(join.metrics()["pages_cached"])

        usual = cached_after(5, 300)
        assert cached_after(1, 40_000) < usual / 2
        assert cached_after(40, 300) >= 0.95 * usual
