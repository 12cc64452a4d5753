"""Masters and streams of every awkward shape, small, made once per run."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from tests.conformance.batches import chopped, numbered
from tests.conformance.semistream.snapshots import Snapshot, snapshot
from tests.conformance.values import KEY_TYPES, PAYLOAD_TYPES, key_pool, random_column, reach_of, strings
from tests.oracle import Predicate, expected

HOWS = ("inner", "left", "semi", "anti")


@dataclass(eq=False)
class Workload:
    """A stream, the master it is joined with, and the predicate."""

    name: str
    snapshot: Snapshot
    stream: pa.Table
    predicate: Predicate
    _answers: dict[Any, pa.Table] = field(default_factory=dict, repr=False)

    def expected(self, how: str, **shape: Any) -> pa.Table:
        """The oracle's rows, computed once."""
        question = (how, repr(shape))
        if question not in self._answers:
            self._answers[question] = expected(self.stream, self.snapshot.table, self.predicate, how, **shape)
        return self._answers[question]

    def batches(self, batch_rows: int = 97) -> list[pa.RecordBatch]:
        return chopped(self.stream, batch_rows)

    def unmatched(self) -> int:
        return len(self.expected("anti"))


def products(keys: Any, seed: int = 0, **options: Any) -> Snapshot:
    """A master with these int64 keys, about 30 rows per page."""
    rng = np.random.default_rng(seed)
    key = pa.array(keys, pa.int64())
    table = pa.table({"k": key, "price": pa.array(rng.normal(size=len(key))), "text": strings(len(key), rng)})
    return snapshot(table.take(pa.array(rng.permutation(len(key)))), "k", **options)


def sales(keys: Any) -> pa.Table:
    return numbered(pa.table({"k": pa.array(keys, pa.int64()), "amount": pa.array(np.arange(len(keys)) % 7)}))


def with_nulls(keys: np.ndarray, share: float, rng: np.random.Generator) -> pa.Array:
    return pa.array(keys, pa.int64(), mask=rng.random(len(keys)) < share)


@cache
def usual() -> Workload:
    """Unique keys with gaps and a skewed stream, of whose keys some are absent and some null."""
    rng = np.random.default_rng(1)
    held = np.arange(0, 2400, 2)
    ranks = np.minimum(rng.zipf(1.3, 700), 1200) - 1
    keys = np.where(rng.random(700) < 0.2, rng.integers(-50, 2500, 700), rng.permutation(held)[ranks])
    return Workload("usual", products(held), sales(with_nulls(keys, 0.05, rng)), Predicate("k"))


@cache
def large() -> Workload:
    """A master of about 300 pages, for budgets that hold few of them: pending rows, reads and evictions."""
    rng = np.random.default_rng(13)
    held = np.arange(0, 20_000, 2)
    ranks = np.minimum(rng.zipf(1.2, 3000), len(held)) - 1
    keys = np.where(rng.random(3000) < 0.1, rng.integers(0, 20_000, 3000), rng.permutation(held)[ranks])
    return Workload("large", products(held), sales(with_nulls(keys, 0.02, rng)), Predicate("k"))


@cache
def large_between() -> Workload:
    """Intervals over up to a third of the pages, more than a small budget can track at once."""
    rng = np.random.default_rng(14)
    low = rng.integers(0, 20_000, 40)
    high = low + rng.choice([0, 10, 300, 6000], 40)
    stream = pa.table({"lo": with_nulls(low, 0.05, rng), "hi": with_nulls(high, 0.05, rng)})
    return Workload("large between", large().snapshot, numbered(stream), Predicate("k", between=("lo", "hi")))


@cache
def usual_range() -> Workload:
    return Workload("usual range", usual().snapshot, usual().stream, Predicate("k", within=3))


@cache
def usual_between() -> Workload:
    """Intervals of every width, some of them empty, reversed or with a null end."""
    rng = np.random.default_rng(2)
    low = rng.integers(-100, 2500, 300)
    high = low + rng.integers(-3, 12, 300)
    high[:3] = [low[0] + 900, low[1] - 900, low[2]]
    stream = pa.table({"lo": with_nulls(low, 0.05, rng), "hi": with_nulls(high, 0.05, rng)})
    return Workload("between", usual().snapshot, numbered(stream), Predicate("k", between=("lo", "hi")))


@cache
def groups() -> Workload:
    """1:K with K over many pages for some keys, and groups that begin or end within a page."""
    rng = np.random.default_rng(3)
    held = np.concatenate(
        [np.repeat(5, 400), np.repeat(6, 1), np.repeat(7, 150), np.repeat(range(10, 40), 9)]
    )
    keys = rng.choice([4, 5, 6, 7, 8, *range(9, 42)], 120)
    return Workload("1:K", products(held), sales(keys), Predicate("k"))


@cache
def groups_range() -> Workload:
    stream = groups().stream.slice(0, 60)
    return Workload("1:K range", groups().snapshot, stream, Predicate("k", within=1))


@cache
def hot_key() -> Workload:
    """Nine out of ten stream rows have the same key."""
    rng = np.random.default_rng(4)
    keys = np.where(rng.random(600) < 0.9, 777, rng.integers(0, 1000, 600))
    return Workload("hot key", products(np.arange(1000)), sales(keys), Predicate("k"))


@cache
def shape(name: str) -> Workload:
    """Corner cases by name; see SHAPES."""
    return SHAPES[name](np.random.default_rng(5))


def _of(name: str, held: Any, keys: Any) -> Workload:
    return Workload(name, products(held), sales(keys), Predicate("k"))


SHAPES: dict[str, Any] = {
    "empty stream": lambda rng: _of("empty stream", np.arange(300), []),
    "empty master": lambda rng: _of("empty master", [], with_nulls(np.arange(200), 0.1, rng)),
    "both empty": lambda rng: _of("both empty", [], []),
    "one row each": lambda rng: _of("one row each", [7], [7]),
    "stream keys equal": lambda rng: _of("stream keys equal", np.arange(500), np.repeat(77, 400)),
    "master keys equal": lambda rng: _of("master keys equal", np.repeat(5, 300), np.arange(60) % 9),
    "all keys equal": lambda rng: _of("all keys equal", np.repeat(5, 200), np.repeat(5, 60)),
    "no key in between": lambda rng: _of("no key in between", np.arange(0, 999, 3), np.arange(1, 900, 3)),
    "no key outside": lambda rng: _of("no key outside", np.arange(500), [-1, 500, -(2**63), 2**63 - 1] * 50),
    "all keys null": lambda rng: _of("all keys null", np.arange(300), [None] * 150),
    "extremes": lambda rng: _of(
        "extremes",
        [-(2**63), -(2**63), 2**63 - 1, 0],
        [-(2**63), 2**63 - 1, -(2**63) + 1, 2**63 - 2, 0, None],
    ),
    "many to one": lambda rng: _of("many to one", np.arange(0, 90, 10), rng.integers(0, 100, 800)),
}


@cache
def of_key_type(name: str) -> Workload:
    """Keys of one type or composite, duplicated on both sides, some absent, some components null."""
    types = KEY_TYPES[name]
    rng = np.random.default_rng(len(name))
    pool = key_pool(types, 60, seed=len(name))
    size = len(pool[0])
    columns = [f"k{i}" for i in range(len(types))]
    held = pa.array(rng.integers(0, max(1, size * 3 // 4), 260))
    table = pa.table([column.take(held) for column in pool], names=columns)
    table = table.append_column("text", strings(260, rng))
    wanted = rng.integers(0, size, 240)
    parts = [column.take(pa.array(wanted, mask=rng.random(240) < 0.04)) for column in pool]
    stream = numbered(pa.table(parts, names=columns))
    on = columns[0] if len(columns) == 1 else columns
    return Workload(f"key {name}", snapshot(table, columns), stream, Predicate(on))


@cache
def of_range_type(name: str) -> Workload:
    """`within` for a type that has an order."""
    base = of_key_type(name)
    kind = base.snapshot.table.schema.field("k0").type
    return Workload(f"range {name}", base.snapshot, base.stream, Predicate("k0", within=reach_of(kind)))


@cache
def of_between_type(name: str) -> Workload:
    base = of_key_type(name)
    other = base.stream["k0"].take(pa.array(np.random.default_rng(6).permutation(len(base.stream))))
    stream = base.stream.rename_columns(["rid", "lo"]).append_column("hi", other)
    # Half the domain per interval would give far too many rows.
    few = stream.slice(0, 25)
    return Workload(f"between {name}", base.snapshot, few, Predicate("k0", between=("lo", "hi")))


@cache
def of_payload_types() -> Workload:
    """Columns of every payload type on both sides; all their names clash."""
    rng = np.random.default_rng(7)
    table = pa.table({"k": pa.array(np.repeat(np.arange(60), 2))})
    stream = pa.table({"k": pa.array(rng.integers(-10, 70, 120))})
    for name, kind in PAYLOAD_TYPES.items():
        table = table.append_column(name, random_column(kind, len(table), rng))
        stream = stream.append_column(name, random_column(kind, len(stream), rng))
    return Workload("payload types", snapshot(table, "k", page_bytes=16384), numbered(stream), Predicate("k"))


@cache
def changing() -> Workload:
    """A stream with hot keys over a master that will change."""
    rng = np.random.default_rng(10)
    keys = np.where(rng.random(700) < 0.5, rng.integers(0, 40, 700) * 2, rng.integers(-10, 2410, 700))
    return Workload(
        "changing", products(np.arange(0, 2400, 2)), sales(with_nulls(keys, 0.03, rng)), Predicate("k")
    )


@cache
def versions_of_changing() -> list[Snapshot]:
    return successors(changing().snapshot, 4, seed=12)


@cache
def versions_of_groups() -> list[Snapshot]:
    return successors(groups().snapshot, 4, seed=11, domain=30, rows=40)


def random_changes(held: Snapshot, rng: np.random.Generator, rows: int = 60, domain: int = 2400) -> pa.Table:
    """Upserts, deletes and inserts of products, of keys that are there and of some that are not."""
    keys = rng.integers(-10, domain + 10, rows)
    operations = rng.choice(["upsert", "delete", "insert"], rows, p=[0.6, 0.25, 0.15])
    table = pa.table({"k": pa.array(keys), "price": rng.normal(size=rows), "text": strings(rows, rng)})
    return table.append_column("_op", pa.array(operations))


def successors(first: Snapshot, count: int, seed: int, domain: int = 2400, rows: int = 60) -> list[Snapshot]:
    rng = np.random.default_rng(seed)
    versions = [first]
    for _ in range(count):
        versions.append(versions[-1].changed(random_changes(versions[-1], rng, rows, domain)))
    return versions[1:]
