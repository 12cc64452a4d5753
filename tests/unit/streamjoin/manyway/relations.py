"""Relations that make a random tree, the joins of them, and the oracle."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from adjoin import MINER, BudgetError, MJoin
from adjoin.master.device import Cost
from adjoin.operators.clock import SimulatedClock
from adjoin.streamjoin.base.phases import SpillingJoin
from tests.unit.streamjoin.inputs import tight

JOINS: dict[str, Callable[..., SpillingJoin]] = {"miner": MINER, "mjoin": MJoin}
CONDITIONS = {
    "equality": "r{0}.k{1} = r{1}.k{0}",
    "band": "abs(r{0}.k{1} - r{1}.k{0}) <= 2",
    "range": "r{1}.k{0} between r{0}.k{1} and r{0}.to{1}",
}


@dataclass
class Tree:
    """Relations r0, r1 ... joined as a tree.

    Attributes:
        parents: Of r1, r2 ... the relation that it is joined with.
        kinds: Of each of these edges, the kind of condition.
        keys: Keys are drawn from so many.
        seed: Of the rows.
        has_one_key: All conditions are equalities of the same columns.
        width: Of the widest string.
    """

    parents: list[int]
    kinds: list[str]
    keys: int
    seed: int
    has_one_key: bool = False
    width: int = 60
    batches: list[list[pa.RecordBatch]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self.batches = [[] for _ in range(self.size)]

    @property
    def size(self) -> int:
        return len(self.parents) + 1

    @property
    def names(self) -> list[str]:
        return [f"r{number}" for number in range(self.size)]

    @property
    def on(self) -> list[str]:
        if self.has_one_key:
            return [f"r{parent}.k = r{child}.k" for child, parent in enumerate(self.parents, start=1)]
        return [
            CONDITIONS[kind].format(parent, child)
            for child, (parent, kind) in enumerate(zip(self.parents, self.kinds, strict=True), start=1)
        ]

    def _columns(self, relation: int) -> list[str]:
        if self.has_one_key:
            return ["k"]
        children = [child for child, parent in enumerate(self.parents, start=1) if parent == relation]
        ends = [*children, self.parents[relation - 1]] if relation else children
        ranges = [f"to{child}" for child in children if self.kinds[child - 1] == "range"]
        return [f"k{end}" for end in ends] + ranges

    def schema(self, relation: int) -> pa.Schema:
        keys = [(name, pa.int64()) for name in self._columns(relation)]
        return pa.schema([("n", pa.int64()), *keys, ("text", pa.string())])

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {name: self.schema(number) for number, name in enumerate(self.names)}

    def draw(self, relation: int, rows: int) -> pa.RecordBatch:
        drawn: dict[str, Any] = {}
        for name in self._columns(relation):
            keys = self._random.integers(0, self.keys, rows)
            if name.startswith("to"):
                keys = drawn[f"k{name[2:]}"].to_numpy(zero_copy_only=False) + keys % 4 - 1
                drawn[name] = pa.array(np.nan_to_num(keys).astype(np.int64))
            else:
                drawn[name] = pa.array(keys, mask=self._random.random(rows) < 0.05)
        number = np.arange(rows) + sum(batch.num_rows for batch in self.batches[relation])
        texts = ["x" * int(width) for width in self._random.integers(0, self.width, rows)]
        arrays = [pa.array(number), *drawn.values(), pa.array(texts)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema(relation))
        self.batches[relation].append(batch)
        return batch

    def expected(self) -> pa.Table:
        """The numbers of the rows of every result, as `found` gives them."""
        with duckdb.connect() as connection:
            for number, name in enumerate(self.names):
                table = pa.Table.from_batches(self.batches[number], schema=self.schema(number))
                connection.register(name, table)
            shown = ", ".join(f"{name}.n AS {name}_n" for name in self.names)
            query = f"SELECT {shown} FROM {', '.join(self.names)} WHERE {' AND '.join(self.on)}"
            results = connection.sql(query).to_arrow_table()
        return self.found(results.to_batches())

    def found(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """The numbers of the rows of these results, in order."""
        columns = [
            np.concatenate([np.empty(0, np.int64), *(batch[f"{name}_n"].to_numpy() for batch in batches)])
            for name in self.names
        ]
        order = np.lexsort(columns)
        return pa.table({name: column[order] for name, column in zip(self.names, columns, strict=True)})

    def join(self, name: str, *, is_tight: bool = True, **options: Any) -> SpillingJoin:
        """Blocks of a page, hardly more memory than the least, on a simulated clock and disk."""
        join = self._join(name, **options)
        return tight(join) if is_tight else join

    def _join(self, name: str, **options: Any) -> SpillingJoin:
        sizes = {"block_bytes": 4096, "clock": SimulatedClock(), "disk": Cost(8e-3, 4e-5)}
        sizes |= {"max_outer": 3} if name == "miner" else {}
        if "memory" in options:
            return JOINS[name](self.schemas, self.on, **{**sizes, **options})
        memory = 100_000 + 50_000 * self.size
        while True:
            try:
                return JOINS[name](self.schemas, self.on, **{**sizes, **options, "memory": memory})
            except BudgetError:
                memory += 10_000


def drain(batches: Iterator[pa.RecordBatch]) -> int:
    """Consume all results; returns how many there are."""
    return sum(batch.num_rows for batch in batches)
