"""Inputs of every awkward shape for joins of streams, small but wide enough to fill the memory."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from adjoin import Pause
from tests.conformance.batches import chopped
from tests.conformance.values import KEY_TYPES, PAYLOAD_TYPES, key_pool, random_column, reach_of, strings
from tests.oracle import Predicate, matches

Arrival: TypeAlias = tuple[str, pa.RecordBatch | None] | Pause
"""Of a script: a batch of an input, None where the input ends, or a pause."""

ORDERS = ("in turn", "left first", "right first", "random")
ROWS = 320
WIDE = 1100
"""Length of the longest string: rows are so wide that the inputs do not fit in a small memory."""


@dataclass(frozen=True)
class Link:
    """Two inputs that are joined; the predicate calls the first one left."""

    one: str
    other: str
    predicate: Predicate


@dataclass(eq=False)
class Workload:
    """Streams and how they are joined.

    Attributes:
        name: Shown where rows are wrong.
        inputs: The rows of each input, by its name.
        links: Each connects an input with one before it.
        spills: Whether these rows do not fit in the least memory.
    """

    name: str
    inputs: dict[str, pa.Table]
    links: tuple[Link, ...]
    spills: bool = True
    _results: list[np.ndarray] = field(default_factory=list, repr=False)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {name: table.schema for name, table in self.inputs.items()}

    @property
    def results(self) -> list[np.ndarray]:
        """The oracle's results: for each input, the row numbers they consist of."""
        if not self._results:
            self._results = self._joined()
        return self._results

    def _joined(self) -> list[np.ndarray]:
        names = list(self.inputs)
        found = {names[0]: np.arange(len(self.inputs[names[0]]))}
        for link in self.links:
            one, other = matches(self.inputs[link.one], self.inputs[link.other], link.predicate)
            order = np.argsort(one, kind="stable")
            one, other = one[order], other[order]
            first = np.searchsorted(one, found[link.one], "left")
            count = np.searchsorted(one, found[link.one], "right") - first
            place = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
            found = {name: np.repeat(rows, count) for name, rows in found.items()}
            found[link.other] = other[place]
        return [found[name] for name in names]

    def script(self, batch_rows: int = 40, order: str = "in turn") -> list[Arrival]:
        """All inputs in batches of `batch_rows` rows, in one of the ORDERS."""
        batches: dict[str, list[Arrival]] = {
            name: [(name, batch) for batch in chopped(table, batch_rows)]
            for name, table in self.inputs.items()
        }
        return arranged(batches, order)


def arranged(batches: dict[str, list[Arrival]], order: str) -> list[Arrival]:
    """Batches in the order of each input: one input after the other, in turn, or interleaved at random."""
    names = list(batches)
    turns = [number for number, name in enumerate(names) for _ in batches[name]]
    if order == "in turn":
        turns.sort(key=_rank_in_group(turns))
    elif order == "right first":
        turns.reverse()
    elif order == "random":
        turns = list(np.random.default_rng(3).permutation(turns))
    sources = [iter(batches[name]) for name in names]
    return [next(sources[turn]) for turn in turns]


def _rank_in_group(turns: Iterable[int]) -> Callable[[int], int]:
    """A sort key that takes one of each input at a time."""
    seen: dict[int, int] = {}

    def rank(turn: int) -> int:
        seen[turn] = seen.get(turn, 0) + 1
        return seen[turn]

    return rank


def with_pauses(script: list[Arrival], every: int, seconds: float) -> list[Arrival]:
    """The script with a pause after every `every` items."""
    items: list[Arrival] = []
    for number, item in enumerate(script, 1):
        items += [item, Pause(seconds)] if number % every == 0 else [item]
    return items


def rows_of(keys: dict[str, Any], prefix: str, seed: int, longest: int = WIDE) -> pa.Table:
    """Rows with these key columns, a number, and a wide string that both sides call `note`."""
    rows = len(next(iter(keys.values())))
    note = strings(rows, np.random.default_rng(seed), longest)
    return pa.table({**keys, f"{prefix}_number": np.arange(rows), "note": note})


def with_nulls(keys: np.ndarray, share: float, rng: np.random.Generator) -> pa.Array:
    return pa.array(keys, pa.int64(), mask=rng.random(len(keys)) < share)


def two(name: str, sides: Iterable[pa.Table], predicate: Predicate, *, spills: bool = True) -> Workload:
    """A left and a right input."""
    inputs = dict(zip(("left", "right"), sides, strict=True))
    return Workload(name, inputs, (Link("left", "right", predicate),), spills)


def of_keys(
    name: str, keys: Iterable[Any], predicate: Predicate | None = None, *, spills: bool = True
) -> Workload:
    """Both sides with an int64 key `k`."""
    sides = [
        rows_of({"k": pa.array(of_side, pa.int64())}, prefix, seed)
        for seed, (prefix, of_side) in enumerate(zip("lr", keys, strict=True))
    ]
    return two(name, sides, predicate or Predicate("k"), spills=spills)


@cache
def usual() -> Workload:
    """Keys with a few duplicates on both sides, of which some are unmatched and some null."""
    rng = np.random.default_rng(1)
    keys = [with_nulls(rng.integers(0, 150, ROWS), 0.06, rng) for _ in range(2)]
    return of_keys("usual", keys)


@cache
def hot_key() -> Workload:
    """A sixth of the rows on both sides have the same key."""
    rng = np.random.default_rng(2)
    keys = [np.where(rng.random(ROWS) < 0.16, 77, rng.integers(0, 900, ROWS)) for _ in range(2)]
    return of_keys("hot key", keys)


@cache
def growing() -> Workload:
    """Keys that drift over time, unique on the left."""
    rng = np.random.default_rng(3)
    return of_keys("growing", [np.arange(ROWS), np.arange(ROWS) + rng.integers(-20, 20, ROWS)])


@cache
def string_key() -> Workload:
    rng = np.random.default_rng(4)
    sides = []
    for seed, prefix in enumerate("lr"):
        numbers = rng.integers(0, 150, ROWS)
        keys = pa.array([f"key {number}" for number in numbers], mask=numbers % 17 == 0)
        sides.append(rows_of({"k": keys}, prefix, seed))
    return two("string key", sides, Predicate("k"))


@cache
def composite_key() -> Workload:
    rng = np.random.default_rng(5)
    sides = []
    for seed, prefix in enumerate("lr"):
        words = pa.array([None if n == 3 else f"word {n}" for n in rng.integers(0, 20, ROWS)])
        sides.append(
            rows_of({"a": words, "b": with_nulls(rng.integers(0, 12, ROWS), 0.03, rng)}, prefix, seed)
        )
    return two("composite key", sides, Predicate(["a", "b"]))


@cache
def usual_within() -> Workload:
    rng = np.random.default_rng(6)
    keys = [with_nulls(rng.integers(0, 600, ROWS), 0.06, rng) for _ in range(2)]
    return of_keys("within 2", keys, Predicate("k", within=2))


@cache
def usual_between() -> Workload:
    """Intervals of several widths, some of them empty, reversed or with a null end."""
    rng = np.random.default_rng(7)
    low = rng.integers(0, 600, ROWS)
    high = low + rng.choice([-3, 0, 1, 6, 40], ROWS)
    left = rows_of({"lo": with_nulls(low, 0.05, rng), "hi": with_nulls(high, 0.05, rng)}, "l", 0)
    right = rows_of({"k": with_nulls(rng.integers(0, 600, ROWS), 0.05, rng)}, "r", 1)
    return two("between", (left, right), Predicate("k", between=("lo", "hi")))


SHAPES: dict[str, tuple[Any, Any]] = {
    "both empty": ([], []),
    "left empty": ([], range(200)),
    "right empty": (range(200), []),
    "one row each": ([7], [7]),
    "one row against many": ([7], [7, 8, None] * 60),
    "all keys equal": ([5] * 60, [5] * 50),
    "no key in common": (range(0, 300, 2), range(1, 300, 2)),
    "all keys null": ([None] * 150, [None, 1] * 75),
    "extremes": (
        [-(2**63), 2**63 - 1, 0, None] * 30,
        [2**63 - 1, -(2**63), 2**63 - 2, -(2**63) + 1, None] * 3,
    ),
}


@cache
def shape(name: str) -> Workload:
    """A corner case by name."""
    return of_keys(name, SHAPES[name], spills=False)


@cache
def of_key_type(name: str) -> Workload:
    """Keys of one type or composite, duplicated on both sides, some absent, some components null."""
    types = KEY_TYPES[name]
    rng = np.random.default_rng(len(name))
    pool = key_pool(types, 90, seed=len(name))
    size = len(pool[0])
    columns = [f"k{i}" for i in range(len(types))]
    sides = []
    for seed, (prefix, distinct) in enumerate((("l", size), ("r", max(1, size * 3 // 4)))):
        index = rng.integers(0, distinct, 240)
        null_share = 0.04 if size > 20 else 0.8  # few distinct keys would give too many results
        keys = [column.take(pa.array(index, mask=rng.random(240) < null_share)) for column in pool]
        sides.append(rows_of(dict(zip(columns, keys, strict=True)), prefix, seed, 1400))
    return two(f"key {name}", sides, Predicate(columns[0] if len(columns) == 1 else columns))


@cache
def of_within_type(name: str) -> Workload:
    base = of_key_type(name)
    kind = base.schemas["right"].field("k0").type
    return two(f"within {name}", base.inputs.values(), Predicate("k0", within=reach_of(kind)))


@cache
def of_between_type(name: str) -> Workload:
    """Only a few intervals, since each contains a third of all keys."""
    left, right = of_key_type(name).inputs.values()
    high = left["k0"].take(pa.array(np.random.default_rng(6).permutation(len(left))))
    left = left.rename_columns(["lo", *left.column_names[1:]]).append_column("hi", high)
    predicate = Predicate("k0", between=("lo", "hi"))
    return two(f"between {name}", (left.slice(0, 25), right), predicate, spills=False)


@cache
def of_payload_types() -> Workload:
    """Columns of every payload type on both sides; all their names clash."""
    rng = np.random.default_rng(8)
    sides = []
    for prefix in "lr":
        table = rows_of({"k": rng.integers(0, 60, 150)}, prefix, 0, 900)
        for name, kind in PAYLOAD_TYPES.items():
            table = table.append_column(name, random_column(kind, len(table), rng))
        sides.append(table)
    return two("payload types", sides, Predicate("k"))


@cache
def chain() -> Workload:
    """Three inputs, each joined with the next on its own key."""
    rng = np.random.default_rng(9)
    rows = {
        "r1": rows_of({"a": with_nulls(rng.integers(0, 120, 160), 0.05, rng)}, "one", 1),
        "r2": rows_of(
            {"a": rng.integers(0, 120, 160), "b": with_nulls(rng.integers(0, 120, 160), 0.05, rng)}, "two", 2
        ),
        "r3": rows_of({"b": rng.integers(0, 120, 160)}, "three", 3),
    }
    return Workload("chain", rows, (Link("r1", "r2", Predicate("a")), Link("r2", "r3", Predicate("b"))))


@cache
def one_key_for_all() -> Workload:
    """Three inputs joined on the same key."""
    rng = np.random.default_rng(10)
    rows = {
        f"r{i}": rows_of({"k": with_nulls(rng.integers(0, 90, 160), 0.05, rng)}, f"n{i}", i)
        for i in (1, 2, 3)
    }
    links = (Link("r1", "r2", Predicate("k")), Link("r1", "r3", Predicate("k")))
    return Workload("one key for all", rows, links)
