"""What the constructor of a semi-stream join accepts works to the end; what does not fit is refused."""

import re
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import BudgetError, Master
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from tests import oracle
from tests.unit.semistream.shop import slow_disk

QUICK = ("ssij", "hybridjoin", "cmeshjoin")
"""Tested each time: between them they have the input buffer, the queue, the scan and the front stage."""
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHM_NAMES]
SKEWS = ("uniform", "zipf", "one key", "distinct", "unmatched")
WIDTHS = ("8", "186", "916", "mixed", "largest")
MASTERS = {"narrow": (6_000, 8, 1), "wide": (600, 900, 1), "copies": (100, 8, 60)}
"""Keys, bytes of a string, rows of each key."""


def products(kind: str) -> pa.Table:
    keys, width, copies = MASTERS[kind]
    ids = np.repeat(np.arange(keys) * 2, copies)
    return pa.table({"id": ids, "name": [f"{number:0{width}d}" for number in range(len(ids))]})


@pytest.fixture(scope="module", params=MASTERS)
def shop(request: Any, tmp_path_factory: Any) -> tuple[pa.Table, Master]:
    table = products(request.param)
    path = Path(tmp_path_factory.mktemp("memory")) / "master"
    return table, Master.build(table, key="id", path=path, page_bytes=4096)


def operator(name: str) -> Callable[..., Any]:
    return algorithm_named(name)


def least_memory(name: str, master: Master) -> int:
    refused, accepted = 1, 1 << 26
    while accepted - refused > 1:
        memory = (refused + accepted) // 2
        try:
            operator(name)(master, on="id", memory=memory).close()
            accepted = memory
        except BudgetError:
            refused = memory
    return accepted


def sales(skew: str, width: str, rows: int, keys: int, largest: int, seed: int) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    ids = {
        "uniform": lambda: random.integers(0, 2 * keys, rows),
        "zipf": lambda: np.minimum(random.zipf(1.3, rows), keys) * 2,
        "one key": lambda: np.full(rows, 4),
        "distinct": lambda: np.arange(rows) * 2,
        "unmatched": lambda: random.integers(0, keys, rows) * 2 + 1,
    }[skew]()
    widths = {
        "mixed": lambda: random.choice([0, 3, 300, 2_000], rows),
        "largest": lambda: np.where(random.random(rows) < 0.02, largest, 5),
    }.get(width, lambda: np.full(rows, int(width)))()
    texts = [chr(97 + number % 26) * int(size) for number, size in enumerate(widths)]
    return pa.record_batch({"id": ids, "sale": np.arange(rows), "text": texts})


def check(name: str, table: pa.Table, master: Master, memory: int, how: str, **options: Any) -> None:
    """The oracle's rows, and never more bytes than there are."""
    skew, width, rows, batch_rows, seed = (
        options[x] for x in ("skew", "width", "rows", "batch_rows", "seed")
    )
    more: dict[str, Any] = slow_disk() if seed % 2 else {}
    with operator(name)(master, on="id", how=how, memory=memory, **more) as join:
        largest = join.metrics()["largest_row_bytes"] - 200
        batch = sales(skew, width, rows, len(set(table["id"].to_pylist())), largest, seed)
        found = []
        for number, begin in enumerate(range(0, rows, batch_rows)):
            found += list(join.push(batch.slice(begin, batch_rows)))
            metrics = join.metrics()
            assert metrics["used_bytes"] <= metrics["peak_bytes"] <= memory
            if number % 5 == 4:
                found += list(join.idle(0.01))
        join.check_invariants()
        found += list(join.finish())
        assert join.metrics()["peak_bytes"] <= memory
        result = pa.Table.from_batches(found, schema=join.schema_of(batch.schema))
    wanted = oracle.expected(pa.Table.from_batches([batch]), table, oracle.Predicate("id"), how)
    order = [(name, "ascending") for name in ("sale", "name") if name in wanted.column_names]
    assert result.sort_by(order).equals(wanted.select(result.column_names).sort_by(order).cast(result.schema))


@pytest.mark.parametrize("name", NAMES)
def test_the_least_memory_works_and_there_is_no_hole_above_it(name, shop):
    table, master = shop
    least = least_memory(name, master)
    options: dict[str, Any] = {"rows": 300, "batch_rows": 100, "seed": 1}
    check(name, table, master, least, "left", skew="uniform", width="largest", **options)
    for memory in [*range(least, least + 5), *range(least, least + 50_000, 4_999)]:
        operator(name)(master, on="id", memory=memory).close()
    with pytest.raises(BudgetError, match=f"give memory={least} or more"):
        operator(name)(master, on="id", memory=least - 1)
    assert least < 500_000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shop", ["narrow"], indirect=True)
def test_a_row_that_does_not_fit_is_refused_and_the_join_continues(name, shop):
    _, master = shop

    def row(size: int) -> pa.RecordBatch:
        """Of so many bytes: two numbers, a string, 4 bytes for its end and three bits for nulls."""
        return pa.record_batch({"id": [4], "sale": [1], "text": ["x" * (size - 8 - 8 - 4 - 1)]})

    with operator(name)(master, on="id", memory="1MB") as join:
        found = list(join.push(row(100)))
        largest = join.metrics()["largest_row_bytes"]
        for call in (join.push, join.offer):
            with pytest.raises(BudgetError, match="nothing of the batch was taken") as refused:
                call(row(largest + 1))
        found += list(join.push(row(largest)))
        found += list(join.finish())
        assert sum(batch.num_rows for batch in found) == 2
    enough = re.findall(r"memory=(\d+) or more", str(refused.value))
    with operator(name)(master, on="id", memory=int(enough[0])) as join:
        found = [*join.push(row(largest + 1)), *join.finish()]
    assert sum(batch.num_rows for batch in found) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shop", ["wide"], indirect=True)
def test_rows_that_match_every_page_in_the_least_memory(name, shop):
    table, master = shop
    least = least_memory(name, master)
    stream = pa.record_batch({"low": [0, 400, -5], "high": [10_000, 800, -1], "sale": [1, 2, 3]})
    options: dict[str, Any] = {"on": "id", "between": ("low", "high")}
    with operator(name)(master, memory=least, **options) as join:
        rows = sum(batch.num_rows for batch in join.run([stream] * 3))
        assert join.metrics()["peak_bytes"] <= least
    keys = np.array(table["id"])
    assert rows == 3 * (len(keys) + np.count_nonzero((keys >= 400) & (keys <= 800)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_the_grid(name, shop):
    table, master = shop
    least = least_memory(name, master)
    memories = cycle([least, least + 1, int(1.1 * least), int(1.5 * least), 2 * least, 1 << 20, 1_140_000])
    hows, batches = cycle(["inner", "left", "anti", "semi"]), cycle([100, 7, 600])
    for seed, (skew, width) in enumerate(product(SKEWS, WIDTHS)):
        options: dict[str, Any] = {
            "skew": skew,
            "width": width,
            "rows": 600,
            "batch_rows": next(batches),
            "seed": seed,
        }
        check(name, table, master, max(next(memories), least), next(hows), **options)
