"""What is peculiar to MESHJOIN and its kin: rounds, chunks, and no look at the index."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import CMeshJoin, Master, MeshJoin, Pause, RMeshJoin
from adjoin.semistream.meshjoin.meshjoin import Scan
from tests.oracle import Predicate, assert_same_rows, expected
from tests.unit.semistream.shop import build, products, results, sales, slow_disk

ROWS = 12_000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return build(products(ROWS, width=100), tmp_path_factory.mktemp("mesh"))


def uniform(rows: int, seed: int = 1) -> list[pa.RecordBatch]:
    keys = np.random.default_rng(seed).integers(0, 2 * ROWS, rows)
    return [sales(keys[begin : begin + 700]) for begin in range(0, rows, 700)]


def portions_of(join: Any) -> int:
    return int(join._algorithm._portions_per_round)


@pytest.mark.parametrize("kind", [MeshJoin, RMeshJoin])
def test_reads_are_the_same_whatever_the_stream_asks_for(kind, master):
    pages = set()
    for keys in (np.zeros(30_000, np.int64), np.arange(30_000) % (2 * ROWS)):
        with kind(master, on="id", memory="1MB", disk_pages=16, **slow_disk()) as join:
            for begin in range(0, len(keys), 500):
                list(join.push(sales(keys[begin : begin + 500])))
            pages.add(join.metrics()["pages_read"])
    assert len(pages) == 1


def test_every_row_sees_every_page_once(master):
    """A round later it is gone."""
    with MeshJoin(master, on="id", memory="1MB", disk_pages=16, **slow_disk()) as join:
        list(join.push(sales([2, 4])))
        list(join._algorithm.join_phase())
        list(join.push(sales([6])))
        for _ in range(portions_of(join) - 1):
            assert join._algorithm.rows_pending == 3
            list(join._algorithm.join_phase())
        assert join._algorithm.rows_pending == 1
        list(join._algorithm.join_phase())
        assert join._algorithm.rows_pending == 0
        assert join.metrics()["pages_read"] == master.pages + 16


class ExpiresByNumber(Scan):
    """The letter of the paper: as many rows leave as came in last, not the chunk that came a round ago."""

    def _expire(self, rows: int) -> Iterator[pa.RecordBatch]:
        yield from super()._expire(min(self._chunks[-1][1], self.queue.rows))


@pytest.mark.parametrize(("algorithm", "exact"), [(Scan, True), (ExpiresByNumber, False)])
def test_chunks_of_different_sizes_leave_as_chunks(algorithm, exact, master, monkeypatch):
    monkeypatch.setattr(MeshJoin, "algorithm", algorithm)
    monkeypatch.setattr(Scan, "check_invariants", lambda _: None)
    sizes = [700, 3, 400, 1, 900, 2] * 8
    batches = [sales(np.random.default_rng(i).integers(0, 2 * ROWS, size)) for i, size in enumerate(sizes)]
    join = MeshJoin(master, on="id", memory="600KB", disk_pages=16, **slow_disk())
    wanted = expected(pa.Table.from_batches(batches), products(ROWS, width=100), Predicate("id"), "inner")
    rows = sum(out.num_rows for batch in batches for out in _pushed(join, batch))
    for _ in range(2 * portions_of(join)):
        rows += sum(
            out.num_rows for out in (join._algorithm.join_phase() if join._algorithm.rows_pending else ())
        )
    assert (rows == wanted.num_rows) == exact
    join.close()


def _pushed(join: Any, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    found = list(join.push(batch))
    if join._algorithm.rows_pending:
        found += join._algorithm.join_phase()
    return found


def test_a_stream_that_pauses_is_answered(master):
    table = products(ROWS, width=100)
    batches = uniform(3_000)
    items: list[Any] = [batches[0], Pause(5), *batches[1:3], Pause(0), batches[3]]
    join = MeshJoin(master, on="id", how="left", memory="1MB", **slow_disk())
    stream = pa.Table.from_batches([item for item in items if isinstance(item, pa.RecordBatch)])
    assert_same_rows(results(join, items), expected(stream, table, Predicate("id"), "left"))


def test_rows_enter_evenly_over_the_round(master):
    with MeshJoin(master, on="id", memory="1MB", disk_pages=16, **slow_disk()) as join:
        for batch in uniform(30_000):
            list(join.push(batch))
        algorithm: Any = join._algorithm
        sizes = [rows for _, rows in list(algorithm._chunks)[1:-1]]
    assert len(sizes) > 10
    assert max(sizes) <= 1.1 * min(sizes)


def test_the_index_is_not_charged(master):
    with MeshJoin(master, on="id", memory="1MB") as join:
        assert join.metrics()["index_bytes"] < master.index.nbytes


@pytest.mark.parametrize("kind", [MeshJoin, CMeshJoin])
def test_memory_is_put_to_use(kind, master):
    with kind(master, on="id", memory="2MB", **slow_disk()) as join:
        for batch in uniform(60_000):
            list(join.push(batch))
        assert join.metrics()["used_bytes"] > 0.75 * join.metrics()["memory_bytes"]
