"""Arbitrary bytes in files of a master or page memory give the right rows, or an error naming the file."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import Master, PageFile
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from tests.faults.damage import KINDS, Damage, files_of, restored, right_or_refused
from tests.oracle import Predicate, expected

ROWS = 1500
MEMORY = 4 << 20
BATCHES = 3


def master_rows(key_type: pa.DataType) -> pa.Table:
    keys = pa.array(np.arange(ROWS) * 2)
    random = np.random.default_rng(1)
    return pa.table(
        {
            "id": keys if key_type == pa.int64() else pa.array([f"k{key}" for key in keys.to_pylist()]),
            "name": [None if key % 7 == 0 else "n" * (key % 50) for key in range(ROWS)],
            "price": random.random(ROWS),
            "tags": [["a"] * (key % 4) for key in range(ROWS)],
        }
    )


def stream(key_type: pa.DataType, seed: int) -> list[pa.RecordBatch]:
    """Some keys occur repeatedly, and some have no match."""
    random = np.random.default_rng(seed)
    batches = []
    for _ in range(BATCHES):
        keys = np.minimum(random.zipf(1.3, 400) * 37 % (2 * ROWS), random.integers(0, 2 * ROWS, 400))
        values = pa.array(keys) if key_type == pa.int64() else pa.array([f"k{key}" for key in keys])
        batches.append(pa.record_batch({"id": values, "sale": np.arange(len(keys))}))
    return batches


class World:
    """A master with pages in two data files, and the file contents of its first version."""

    def __init__(self, path: Path, key_type: pa.DataType, filter_bits: int) -> None:
        self.key_type = key_type
        table = master_rows(key_type)
        first = Master.build(
            table, "id", path / "m", page_bytes=4096, filter_bits=filter_bits, progress=False
        )
        change = table.slice(3, 40).set_column(2, "price", pa.array(np.full(40, 9.0)))
        changes = change.append_column("_op", pa.array(["upsert"] * 40))
        self.master = first.apply(changes)
        before, after = files_of(first.path, 1), files_of(first.path, 2)
        self.files = after
        self.older = {
            after[kind][0]: Path(before[kind][0]).read_bytes() for kind in ("index", "filter") if after[kind]
        }
        kept = [row for row in range(ROWS) if not 3 <= row < 43]
        self.rows = pa.concat_tables([table.take(kept), change])

    def expected(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return expected(pa.Table.from_batches(batches), self.rows, Predicate("id"), "left")


@pytest.fixture(scope="module", params=["int", "text", "filtered"])
def world(request, tmp_path_factory) -> World:
    key_type = pa.string() if request.param == "text" else pa.int64()
    return World(tmp_path_factory.mktemp("damage"), key_type, 8 if request.param == "filtered" else 0)


def run(
    world: World, algorithm: str, batches: list[pa.RecordBatch], pages: PageFile | None, damage: Any = None
) -> pa.Table:
    """All rows of one operator; the damage is done after the first batch."""
    with Master.open(world.master.path) as master:
        make: Any = algorithm_named(algorithm)
        join = make(master, on="id", how="left", memory=MEMORY, pages=pages, shared_index=True)
        try:
            schema = join.schema_of(batches[0].schema)
            out = [*join.push(batches[0]), *join.idle(0)]
            if damage is not None:
                damage()
            for batch in batches[1:]:
                out += [*join.push(batch), *join.idle(0)]
            out += join.finish()
        finally:
            join.close()
    return pa.Table.from_batches(out, schema=schema)


def damage_master(world: World, algorithm: str, seed: int, when: str) -> tuple[str, str]:
    """Damage a file of the master before or after an operator starts; returns its kind and the result."""
    draw = np.random.default_rng(seed)
    kind = str(draw.choice([kind for kind, paths in world.files.items() if paths]))
    path = str(draw.choice(world.files[kind]))
    damage = Damage(str(draw.choice(KINDS if path in world.older else KINDS[:-1])), seed)
    batches = stream(world.key_type, seed)
    with restored(path):

        def do() -> None:
            damage.do(path, world.older.get(path, b""))

        if when == "cold":
            do()

        def join() -> pa.Table:
            return run(world, algorithm, batches, None, do if when == "between" else None)

        return kind, right_or_refused(join, world.expected(batches), [path])


def damage_memory(world: World, algorithm: str, seed: int, when: str, path: Path) -> str:
    """Damage the page file while nobody uses it, or between two batches; returns the result."""
    damage = Damage(KINDS[seed % 4], seed)
    batches = stream(world.key_type, seed)
    with PageFile(path, MEMORY) as pages:
        run(world, algorithm, batches, pages)
    older = path.read_bytes()
    with PageFile(path, MEMORY) as pages:
        run(world, algorithm, stream(world.key_type, seed + 1), pages)
    if seed % 5 == 4:
        damage = Damage("older", seed)

    def do() -> None:
        damage.do(str(path), older)

    if when == "cold":
        do()
    with PageFile(path, MEMORY) as pages:

        def join() -> pa.Table:
            return run(world, algorithm, batches, pages, do if when == "between" else None)

        result = right_or_refused(join, world.expected(batches), [str(path)])
    with PageFile(path, MEMORY) as pages:  # the next operator works, whatever the damage was
        again = right_or_refused(
            lambda: run(world, algorithm, batches, pages), world.expected(batches), [str(path)]
        )
    if result == "refused":
        assert again == "rows"
    os.unlink(path)
    return result


OFTEN = ("ssij", "ssij+front")
"""Run by `make test`; `make test-slow` runs all others, with more seeds."""


@pytest.mark.parametrize("when", ["cold", "between"])
@pytest.mark.parametrize("algorithm", OFTEN)
def test_a_damaged_file_of_the_master_gives_no_wrong_row(world, algorithm, when):
    counts = Counter(damage_master(world, algorithm, seed, when)[1] for seed in range(5))
    assert counts["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["cold", "between"])
@pytest.mark.parametrize("algorithm", ALGORITHM_NAMES)
def test_damaged_files_of_the_master_give_no_wrong_row(world, algorithm, when):
    counts = Counter(damage_master(world, algorithm, seed, when)[1] for seed in range(100, 112))
    assert counts["refused"]  # which files are reported depends on what is in memory


@pytest.mark.parametrize("when", ["cold", "between"])
@pytest.mark.parametrize("algorithm", OFTEN)
def test_damaged_page_memory_gives_no_wrong_row(world, algorithm, when, tmp_path):
    for seed in range(3):
        damage_memory(world, algorithm, seed, when, tmp_path / "pages")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["cold", "between"])
@pytest.mark.parametrize("algorithm", ALGORITHM_NAMES)
def test_page_memory_damaged_anywhere_gives_no_wrong_row(world, algorithm, when, tmp_path):
    counts = Counter(
        damage_memory(world, algorithm, seed, when, tmp_path / "pages") for seed in range(100, 106)
    )
    assert counts["rows"] + counts["refused"] == 6
