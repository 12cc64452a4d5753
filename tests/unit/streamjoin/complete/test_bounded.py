"""Joins that return all results at once stay within their memory, and their files within what is alive."""

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, BudgetError
from tests.unit.streamjoin.complete.model import LEFT, NONE, RIGHT, SIDES, counted

SLOW = pytest.mark.slow
ROW_BYTES = 400


def schema(side: int) -> pa.Schema:
    return pa.schema(
        [("k", pa.int64()), ("t", pa.int64()), ("lr"[side], pa.int64()), (f"text{side}", pa.string())]
    )


def batch(side: int, keys: Any, times: Any, first: int, width: int = ROW_BYTES) -> pa.RecordBatch:
    rows = len(keys)
    columns = [
        pa.array(keys),
        pa.array(times),
        pa.array(np.arange(rows) + first),
        pa.array(["x" * width] * rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema(side))


@pytest.mark.parametrize("how", ["full", *(pytest.param(how, marks=SLOW) for how in ("inner", "semi"))])
def test_the_files_stay_small_at_a_constant_rate(how):
    """One row in fifty has a time far in the future, and stays for long."""
    random, sizes, kept = np.random.default_rng(1), [], []
    options: dict[str, Any] = {"memory": "700KB", "how": how, "time": ("t", "t"), "before": 200, "after": 200}
    with DINER(schema(LEFT), schema(RIGHT), on="k", results="complete", **options) as join:
        for step in range(60):
            for side in (LEFT, RIGHT):
                keys = random.integers(0, 1 << 40, 200)
                times = np.arange(200) * 5 + step * 100
                times = np.where(random.random(200) < 0.02, times + 40 * 100, times)
                for _ in join.push(SIDES[side], batch(side, keys, times, step * 200)):
                    continue
            for _ in join.expire(step * 100 - 500):
                continue
            join.check_invariants()
            sizes.append(join.metrics()["disk_bytes"])
            kept.append(join.metrics()["rows_kept"])
        assert join.metrics()["rows_on_disk"] > join.metrics()["rows_in_memory"]
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
    assert max(sizes[40:]) <= 1.25 * max(sizes[10:40])
    assert max(kept[40:]) <= 1.25 * max(kept[10:40])


def test_a_drained_join_gives_its_disk_space_back():
    random = np.random.default_rng(1)
    with DINER(
        schema(LEFT),
        schema(RIGHT),
        on="k",
        results="complete",
        memory="700KB",
        time=("t", "t"),
        before=9,
        after=9,
    ) as join:
        for step in range(10):
            for side in (LEFT, RIGHT):
                keys, times = random.integers(0, 99, 300), np.full(300, step)
                for _ in join.push(SIDES[side], batch(side, keys, times, step * 300)):
                    continue
        assert join.metrics()["disk_bytes"] > 1_000_000
        assert list(join.expire_rows(1_000, 1_000)) == []
        assert join.metrics()["rows_kept"] == 0
        assert join.metrics()["rows_expired"] == 6_000
        assert join.metrics()["disk_bytes"] == 0


@pytest.mark.parametrize("how", ["inner", "full", "anti"])
def test_rows_of_all_sizes(how):
    """A row larger than a page has a page of its own."""
    random = np.random.default_rng(3)
    keys: list[list[int]] = [[], []]
    with DINER(schema(LEFT), schema(RIGHT), on="k", results="complete", how=how, memory="24MB") as join:
        widest = join.metrics()["largest_row_bytes"] - 100
        assert widest > 100_000
        found = counted([])
        for step in range(12):
            for side in (LEFT, RIGHT):
                new = random.integers(0, 60, 20)
                widths = np.where(random.random(20) < 0.2, widest, random.integers(0, 20_000, 20))
                rows = [
                    batch(side, new[at : at + 1], [0], step * 20 + at, int(width))
                    for at, width in enumerate(widths)
                ]
                keys[side] += new.tolist()
                found += counted(join.push(SIDES[side], pa.concat_batches(rows)))
            join.check_invariants()
        assert join.metrics()["rows_on_disk"] > 0
        found += counted(join.finish())
        assert join.metrics()["peak_bytes"] <= join.metrics()["memory_bytes"]
    left, right = map(np.array, keys)
    pairs = set(zip(*(at.tolist() for at in np.nonzero(left[:, None] == right)), strict=True))
    lonely = {(at, NONE) for at in np.flatnonzero(~np.isin(left, right)).tolist()}
    others = {(NONE, at) for at in np.flatnonzero(~np.isin(right, left)).tolist()}
    wanted = {"inner": pairs, "full": pairs | lonely | others, "anti": lonely}[how]
    assert found == dict.fromkeys(wanted, 1)


def test_a_row_that_does_not_fit_is_refused_and_the_error_says_what_is_enough():
    with DINER(schema(LEFT), schema(RIGHT), on="k", results="complete", memory="1MB") as join:
        with pytest.raises(BudgetError, match="give memory="):
            join.push("left", batch(LEFT, [1], [1], 0, width=500_000))
        assert list(join.push("left", batch(LEFT, [1], [1], 0))) == []
        assert sum(part.num_rows for part in join.push("right", batch(RIGHT, [1], [1], 0))) == 1


@pytest.mark.parametrize(
    "more", [0, 150_000, *(pytest.param(more, marks=SLOW) for more in range(4_096, 500_000, 40_000))]
)
def test_whatever_memory_the_constructor_accepts_is_enough(more):
    random = np.random.default_rng(3)
    with pytest.raises(BudgetError) as refused:
        DINER(schema(LEFT), schema(RIGHT), on="k", results="complete", memory=1)
    memory = int(str(refused.value).split("memory=")[-1].split()[0]) + more
    with DINER(schema(LEFT), schema(RIGHT), on="k", results="complete", how="full", memory=memory) as join:
        width = join.metrics()["largest_row_bytes"] - 60
        for step in range(25):
            for side in (LEFT, RIGHT):
                keys = random.integers(0, 300, 40)
                for _ in join.push(SIDES[side], batch(side, keys, keys, step * 40, width=min(width, 900))):
                    continue
                join.check_invariants()
        assert join.metrics()["rows_on_disk"] > 500
        for _ in join.finish():
            continue
        assert join.metrics()["peak_bytes"] <= memory


@pytest.mark.parametrize(("keys", "most"), [("random", 0.15), ("growing", 0.06)])
def test_few_rows_read_few_pages(keys, most):
    """Even if a key may be in many pages by its value, few of them have it."""
    random = np.random.default_rng(1)
    with DINER(
        schema(LEFT), schema(RIGHT), on="k", results="complete", memory="600KB", block_bytes=8192
    ) as join:
        everything = np.arange(30_000) if keys == "growing" else random.permutation(30_000)
        for first in range(0, 30_000, 1_000):
            some = everything[first : first + 1_000]
            assert list(join.push("left", batch(LEFT, some, some, first, width=100))) == []
        storage: Any = join._storage
        pages = sum(len(pages.directory) for pages in storage.pages)
        assert pages > 500
        before = join.metrics()["pages_read"]
        some = everything[20_000:20_020]
        found = counted(join.push("right", batch(RIGHT, some, some, 0, width=100)))
        assert found == {(20_000 + at, at): 1 for at in range(20)}
        assert join.metrics()["pages_read"] - before <= most * pages


def test_datetimes():
    zone = datetime.UTC
    times = pa.timestamp("us", "UTC")
    left = pa.schema([("k", pa.int64()), ("t", times)])
    right = pa.schema([("k", pa.int64()), ("u", pa.timestamp("ms", "UTC"))])
    with DINER(
        left,
        right,
        on="k",
        results="complete",
        how="left",
        memory="1MB",
        time=("t", "u"),
        before="0 s",
        after="1 hour",
    ) as join:
        noon = datetime.datetime(2026, 1, 1, 12, tzinfo=zone)
        rows = pa.RecordBatch.from_pydict({"k": [1, 2], "t": [noon, noon]}, schema=left)
        assert list(join.push("left", rows)) == []
        late = noon + datetime.timedelta(hours=1)
        pays = pa.RecordBatch.from_pydict(
            {"k": [1, 1, 1], "u": [noon, late, late + datetime.timedelta(milliseconds=1)]}, schema=right
        )
        assert sum(part.num_rows for part in join.push("right", pays)) == 2
        assert list(join.expire(late)) == []
        (expired,) = join.expire(late + datetime.timedelta(microseconds=1))
        assert expired.to_pylist() == [{"k": 2, "t": noon, "u": None}]
