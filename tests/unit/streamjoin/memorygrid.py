"""Joins of streams in memories from the least one on, with rows of all widths and keys of all skews."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from adjoin import (
    DINER,
    MINER,
    RPJ,
    BudgetError,
    HashMergeJoin,
    MJoin,
    Pause,
    ProgressiveMergeJoin,
    SymmetricHashJoin,
    XJoin,
)
from adjoin.master.device import Cost
from adjoin.operators.clock import SimulatedClock

TWO_INPUTS: dict[str, Callable[..., Any]] = {
    "diner": DINER,
    "xjoin": XJoin,
    "pmj": ProgressiveMergeJoin,
    "hmj": HashMergeJoin,
    "rpj": RPJ,
    "shj": SymmetricHashJoin,
}
MANY_INPUTS: dict[str, Callable[..., Any]] = {"miner": MINER, "mjoin": MJoin}
SPILLING = [*(name for name in TWO_INPUTS if name != "shj"), *MANY_INPUTS]
CONDITIONS = {
    "equality": "l.k = r.k",
    "band": "r.k BETWEEN l.k - 1 AND l.k + 1",
    "range": "r.k BETWEEN l.k AND l.high",
}
WIDTHS = ("8", "186", "916", "186+916", "mixed", "largest", "nested")
SKEWS = ("uniform", "zipf", "one key", "distinct", "unmatched", "growing")
_ONE_KEY_ROWS = 400


@dataclass(frozen=True)
class Case:
    """One join of two or three streams.

    Attributes:
        name: Which join.
        condition: Which pairs match.
        memory: Its memory.
        width: What rows look like.
        skew: What keys look like.
        rows: How many of each input; the second one has a third of them.
        batch_rows: How many come at a time.
        has_pauses: Whether nothing arrives now and then.
        seed: Of the rows.
    """

    name: str
    memory: int
    width: str = "186"
    skew: str = "uniform"
    condition: str = "equality"
    rows: int = 2_000
    batch_rows: int = 500
    has_pauses: bool = True
    seed: int = 0

    @property
    def is_many(self) -> bool:
        """Whether there are three inputs."""
        return self.name in MANY_INPUTS

    def schemas(self) -> dict[str, pa.Schema]:
        """Of each input, by name."""
        widths = self.width.split("+")
        sides = {"left": "l", "right": "r"} | ({"more": "m"} if self.is_many else {})
        return {
            side: _schema(short, widths[number % len(widths)], self.condition)
            for number, (side, short) in enumerate(sides.items())
        }

    def join(self) -> Any:
        """The join."""
        return make(self.name, self.schemas(), self.memory, self.condition)


def _schema(short: str, width: str, condition: str) -> pa.Schema:
    fields = [pa.field("k", pa.int64())]
    if condition == "range":
        fields.append(pa.field("high", pa.int64()))
    if width != "8":
        payload = (
            pa.list_(pa.struct([("a", pa.string()), ("b", pa.int32())])) if width == "nested" else pa.string()
        )
        fields += [pa.field(short, pa.int64()), pa.field(f"{short}_text", payload)]
    return pa.schema(fields)


def make(name: str, schemas: dict[str, pa.Schema], memory: int, condition: str, **options: Any) -> Any:
    """A join on a simulated clock and disk with default options."""
    options = {"clock": SimulatedClock(), "disk": Cost(1e-4, 1e-6), **options}
    if name in MANY_INPUTS:
        operator = "{} = {}" if condition == "equality" else "abs({} - {}) <= 1"
        on = [operator.format("left.k", "right.k"), operator.format("right.k", "more.k")]
        return MANY_INPUTS[name](schemas, on, memory, **options)
    kinds: dict[str, dict[str, Any]] = {"band": {"within": 1}, "range": {"between": ("k", "high")}}
    more = kinds.get(condition, {})
    return TWO_INPUTS[name](schemas["left"], schemas["right"], on="k", memory=memory, **more, **options)


def least_memory(name: str, width: str = "186", condition: str = "equality") -> int:
    """The least that the constructor accepts."""
    schemas = Case(name, 0, width, condition=condition).schemas()
    refused, accepted = 1, 1 << 26
    while accepted - refused > 1:
        memory = (refused + accepted) // 2
        try:
            make(name, schemas, memory, condition).close()
            accepted = memory
        except BudgetError:
            refused = memory
    return accepted


def keys_of(
    skew: str, side: int, rows: int, begin: int, total: int, random: np.random.Generator
) -> np.ndarray:
    """The keys of some rows of an input."""
    if skew == "uniform":
        return random.integers(0, max(1, total // 2), rows)
    if skew == "zipf":
        ranks = np.minimum(random.zipf(1.3, rows), total)
        return ranks * 2_654_435_761 % 2**31 + (ranks < 4) * random.integers(0, 50, rows) * 7
    if skew == "one key":
        return np.full(rows, 7)
    if skew == "distinct":
        return (np.arange(begin, begin + rows) * 2_654_435_761) % 2**32
    if skew == "unmatched":
        return random.integers(0, 2**40, rows) * 8 + 3 * side
    assert skew == "growing"
    return np.arange(begin, begin + rows) // 2 + random.integers(0, 20, rows)


def payload_of(width: str, numbers: np.ndarray, largest: int, random: np.random.Generator) -> pa.Array:
    """Values for these rows, none larger than that."""
    if width == "nested":
        counts = random.integers(0, 5, len(numbers))
        values = [
            [{"a": "x" * int(number % 40), "b": at} for at in range(count)]
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        ]
        return pa.array(values, pa.list_(pa.struct([("a", pa.string()), ("b", pa.int32())])))
    if width == "mixed":
        widths = np.minimum(random.choice([0, 3, 40, 500, 1_500], len(numbers)), largest)
    elif width == "largest":
        widths = np.where(random.random(len(numbers)) < 0.05, largest, random.integers(0, 60, len(numbers)))
    else:
        widths = np.full(len(numbers), int(width) - 16)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return pa.array([letters[n % 26] * w for n, w in zip(numbers.tolist(), widths.tolist(), strict=True)])


class Arrivals:
    """The batches of a case, drawn as they arrive."""

    def __init__(self, case: Case, largest: int) -> None:
        self._case = case
        self._largest = largest
        self.drawn: dict[str, list[pa.RecordBatch]] = {side: [] for side in case.schemas()}

    def __iter__(self) -> Iterator[Any]:
        case, random = self._case, np.random.default_rng(self._case.seed)
        schemas, widths = case.schemas(), case.width.split("+")
        rows = (
            min(case.rows, _ONE_KEY_ROWS // (6 if case.is_many else 1))
            if case.skew == "one key"
            else case.rows
        )
        left = {side: max(1, rows // (3 if side == "right" else 1)) for side in schemas}
        totals, turn = dict(left), 0
        while any(left.values()):
            side = list(schemas)[turn % len(schemas)]
            number, turn = list(schemas).index(side), turn + 1
            count = min(left[side], case.batch_rows)
            if not count:
                continue
            begin = totals[side] - left[side]
            left[side] -= count
            keys = keys_of(case.skew, number, count, begin, totals[side], random)
            columns = [pa.array(keys, pa.int64())]
            if case.condition == "range":
                columns.append(pa.array(keys + random.integers(-1, 2, count), pa.int64()))
            width = widths[number % len(widths)]
            if width != "8":
                numbers = np.arange(begin, begin + count)
                columns += [pa.array(numbers), payload_of(width, numbers, self._largest, random)]
            batch = pa.RecordBatch.from_arrays(columns, schema=schemas[side])
            self.drawn[side].append(batch)
            yield side, batch
            if case.has_pauses and turn % 5 == 0:
                yield Pause(float(random.choice([0.03, 0.3])))

    def expected(self) -> tuple[int, int]:
        """How many results there must be, and the sum of the hashes of all."""
        tables = {side[0]: pa.Table.from_batches(batches) for side, batches in self.drawn.items() if batches}
        condition = CONDITIONS[self._case.condition]
        sql = f"FROM l JOIN r ON {condition}"
        if self._case.is_many:
            sql += " JOIN m ON " + condition.replace("l.", "x.").replace("r.", "m.").replace("x.", "r.")
        if len(tables) < len(self.drawn):
            return 0, 0
        columns = [f"{short}.{name}" for short, table in tables.items() for name in table.column_names]
        return digest(sql, columns, tables)


def digest(sql: str, columns: Sequence[str], tables: dict[str, pa.Table]) -> tuple[int, int]:
    """The number of rows of a query, and the sum of their hashes."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        wanted = ", ".join(columns)
        query = f"SELECT count(*), coalesce(sum(hash({wanted})), 0)::HUGEINT {sql}"
        ((count, total),) = connection.sql(query).fetchall()
    return int(count), int(total)


class Found:
    """Results, of which only the count and the hash are kept."""

    def __init__(self, case: Case) -> None:
        schemas = case.schemas()
        if case.is_many:
            self._columns = [f"{side}_{name}" for side, schema in schemas.items() for name in schema.names]
        else:
            right = ["k" if case.condition == "equality" else "k_right", *schemas["right"].names[1:]]
            clashes = set(schemas["left"].names)
            self._columns = [*schemas["left"].names]
            self._columns += [f"{n}_right" if n in clashes and n != right[0] else n for n in right]
        self.count, self.hash = 0, 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """A result."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows > 200_000:
            self.digest()

    def digest(self) -> tuple[int, int]:
        """Count and hash of all so far."""
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            quoted = [f'"{name}"' for name in self._columns]
            count, total = digest("FROM t", quoted, {"t": table})
            self.count += count
            self.hash += total
            self._waiting, self._waiting_rows = [], 0
        return self.count, self.hash


def check(case: Case) -> dict[str, Any]:
    """Run a case: exactly the oracle's rows, within the memory; returns the metrics."""
    with case.join() as join:
        largest = max(0, join.metrics()["largest_row_bytes"] - 64)
        arrivals, found = Arrivals(case, largest), Found(case)
        for item in arrivals:
            for batch in join.idle(item.seconds) if isinstance(item, Pause) else join.push(*item):
                found.add(batch)
            metrics = join.metrics()
            assert metrics["used_bytes"] <= metrics["peak_bytes"] <= case.memory
        join.check_invariants()
        for batch in join.finish():
            found.add(batch)
        metrics = join.metrics()
    assert metrics["peak_bytes"] <= case.memory
    assert found.digest() == arrivals.expected()
    return metrics
