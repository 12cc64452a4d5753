"""Joins of rows with columns of random types; each case is determined by its seed.

    python -m tests.odd_columns FIRST LAST STEP      # runs cases FIRST to LAST - 1, counts outcomes

It is a separate program, because Arrow aborts the process when given something it cannot handle.
"""

import random
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from adjoin import (
    DINER,
    MINER,
    RPJ,
    BudgetError,
    HashMergeJoin,
    Master,
    MJoin,
    ProgressiveMergeJoin,
    SchemaError,
    SymmetricHashJoin,
    XJoin,
)
from adjoin.arrow.encodings import declared_type
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from tests.encodings import KNOWN, any_array, any_type

TWO: dict[str, Any] = {
    "diner": DINER,
    "complete": partial(DINER, results="complete", how="full"),
    "xjoin": XJoin,
    "pmj": ProgressiveMergeJoin,
    "hmj": HashMergeJoin,
    "rpj": RPJ,
    "shj": SymmetricHashJoin,
}
MANY: dict[str, Any] = {"miner": MINER, "mjoin": MJoin}
OPERATORS = (*TWO, *MANY, *ALGORITHM_NAMES)


class Relation:
    """Rows with a key, a number and columns of odd types."""

    def __init__(
        self, chance: random.Random, types: list[pa.DataType], rows: int, pad: int, keys: int
    ) -> None:
        drawn = [None if chance.random() < 0.05 else chance.randrange(keys) for _ in range(rows)]
        columns = {f"c{number}": any_array(chance, type_, rows) for number, type_ in enumerate(types)}
        fixed = {
            "k": pa.array(drawn, pa.int64()),
            "n": pa.array(range(rows)),
            "pad": pa.array(["x" * pad] * rows),
        }
        self.batch = pa.record_batch({**fixed, **columns})
        self.names = list(columns)
        self.rows = [
            dict(zip(columns, row, strict=True))
            for row in zip(*(column.to_pylist() for column in columns.values()), strict=True)
        ]

    def pieces(self, chance: random.Random) -> list[pa.RecordBatch]:
        step = chance.choice([100, 250, self.batch.num_rows])
        return [self.batch.slice(begin, step) for begin in range(0, self.batch.num_rows, step)]

    def partners(self, other: "Relation") -> list[tuple[int, int]]:
        """Numbers of rows with the same key."""
        by_key: dict[int, list[int]] = {}
        for number, key in enumerate(other.batch["k"].to_pylist()):
            by_key.setdefault(key, []).append(number)
        mine = enumerate(self.batch["k"].to_pylist())
        return [(row, mate) for row, key in mine if key is not None for mate in by_key.get(key, ())]

    def alone(self, other: "Relation") -> list[int]:
        """Numbers of rows without a partner."""
        return sorted(set(range(len(self.rows))) - {row for row, _ in self.partners(other)})

    def check(self, found: pa.Table, prefix: str, suffix: str, numbers: list[int | None]) -> None:
        """The results have the values of these rows, in the type in which they arrived; None: nulls."""
        for name in self.names:
            column = found[f"{prefix}{name}{suffix}"]
            wanted = declared_type(self.batch.schema.field(name).type)
            assert column.type.equals(wanted), (column.type, wanted)
            values = [value for chunk in column.chunks for value in chunk.to_pylist()]
            assert values == [None if row is None else self.rows[row][name] for row in numbers], (
                name,
                wanted,
            )
            for chunk in column.chunks:
                _check_order(chunk, self.batch[name])


def _check_order(found: pa.Array, given: pa.Array) -> None:
    if pa.types.is_dictionary(found.type) and found.type.ordered:
        assert found.dictionary.to_pylist() == given.dictionary.to_pylist()


def check(seed: int) -> str:
    """Run one case; returns its outcome."""
    chance = random.Random(seed)
    name = OPERATORS[seed % len(OPERATORS)]
    number = seed // len(OPERATORS)
    known = KNOWN[number] if number < len(KNOWN) else any_type(chance)
    types = [known, *(any_type(chance) for _ in range(chance.randrange(2)))]
    try:
        if name in TWO:
            return _check_two(chance, name, types)
        return _check_many(chance, name, types) if name in MANY else _check_master(chance, name, types)
    except SchemaError as error:
        return f"refused: {str(error)[:40]}"
    except BudgetError:
        return "too little memory"


def _made(make: Any, options: dict[str, Any]) -> Any:
    """The join, with the least memory that it accepts."""
    memory = 300_000
    while True:
        try:
            return make(memory=memory, **options)
        except BudgetError:
            memory = int(memory * 1.3)


def _items(chance: random.Random, relations: dict[str, Relation]) -> list[tuple[str, pa.RecordBatch]]:
    items = [(name, piece) for name, relation in relations.items() for piece in relation.pieces(chance)]
    chance.shuffle(items)
    return items


def _run(chance: random.Random, make: Any, items: list[tuple[str, pa.RecordBatch]]) -> tuple[pa.Table, str]:
    join = make()
    found: list[pa.RecordBatch] = []
    for name, piece in items:
        found += list(join.push(name, piece))
        if chance.random() < 0.2:
            found += list(join.idle(0.1))
        if chance.random() < 0.1:
            before, join = join, make()
            join.restore(before.snapshot())
            before.close()
    found += list(join.finish())
    is_spilled = join.metrics()["blocks_flushed"] > 0
    join.close()
    return pa.Table.from_batches(found, schema=join.schema), "spilled" if is_spilled else "in memory"


def _check_two(chance: random.Random, name: str, types: list[pa.DataType]) -> str:
    rows = chance.choice([50, 900, 1200, 1500])
    left, right = Relation(chance, types, rows // 3, 500, 400), Relation(chance, types[::-1], rows, 500, 400)
    options = {"left": left.batch.schema, "right": right.batch.schema, "on": "k", "clock": SimulatedClock()}
    options |= {"block_bytes": 4096} if name != "shj" else {}
    memory = {"memory": "64MB"} if name == "shj" else {}

    def make() -> Any:
        return TWO[name](**options, **memory) if memory else _made(TWO[name], options)

    found, how = _run(chance, make, _items(chance, {"left": left, "right": right}))
    pairs = list(zip(found["n"].to_pylist(), found["n_right"].to_pylist(), strict=True))
    wanted: list[tuple[int | None, int | None]] = [*left.partners(right)]
    if name == "complete":
        wanted += [(row, None) for row in left.alone(right)]
        wanted += [(None, row) for row in right.alone(left)]
    assert Counter(pairs) == Counter(wanted)
    left.check(found, "", "", [pair[0] for pair in pairs])
    right.check(found, "", "_right", [pair[1] for pair in pairs])
    return how


def _check_many(chance: random.Random, name: str, types: list[pa.DataType]) -> str:
    relations = {
        f"r{number}": Relation(chance, types, rows, 1500, 60) for number, rows in enumerate([80, 140, 90])
    }
    schemas = {name: relation.batch.schema for name, relation in relations.items()}
    options: dict[str, Any] = {"relations": schemas, "on": ["r0.k = r1.k", "r1.k = r2.k"]}
    options |= {"clock": SimulatedClock(), "block_bytes": 4096}
    found, how = _run(chance, lambda: _made(MANY[name], options), _items(chance, relations))
    rows = list(zip(*(found[f"r{number}_n"].to_pylist() for number in range(3)), strict=True))
    first, second, third = relations.values()
    last: dict[int, list[int]] = {}
    for middle, end in second.partners(third):
        last.setdefault(middle, []).append(end)
    wanted = [(one, two, three) for one, two in first.partners(second) for three in last.get(two, ())]
    assert sorted(rows) == sorted(wanted)
    for number, relation in enumerate(relations.values()):
        relation.check(found, f"r{number}_", "", [row[number] for row in rows])
    return how


def _check_master(chance: random.Random, name: str, types: list[pa.DataType]) -> str:
    stream = Relation(chance, types, chance.choice([50, 300]), 9, 60)
    keys = chance.sample(range(60), 40)
    how = chance.choice(["inner", "left", "semi", "anti"])
    table = pa.table({"id": keys, "word": [f"word {key}" for key in keys]})
    kind: Any = algorithm_named(name)
    with tempfile.TemporaryDirectory() as folder:
        master = Master.build(table, key="id", path=Path(folder) / "m", page_bytes=4096)
        memory = kind.least_memory(master) + chance.choice([50_000, 500_000])
        options = {"on": {"k": "id"}, "how": how, "memory": memory, "clock": SimulatedClock()}
        with kind(master, **options) as join:
            found = list(join.run(stream.pieces(chance)))
            results = pa.Table.from_batches(found, schema=join.schema_of(stream.batch.schema))
    numbers = results["n"].to_pylist()
    matched = [number for number, key in enumerate(stream.batch["k"].to_pylist()) if key in set(keys)]
    others = sorted(set(range(len(stream.rows))) - set(matched))
    wanted = {"inner": matched, "semi": matched, "anti": others, "left": sorted(matched + others)}
    assert sorted(numbers) == wanted[how]
    stream.check(results, "", "", numbers)
    return "with a master"


def main(seeds: range) -> None:
    """Run these cases and print their outcomes."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        print("case", seed, file=sys.stderr, flush=True)
        outcomes[check(seed)] += 1
    print(dict(outcomes))


if __name__ == "__main__":
    main(range(*map(int, sys.argv[1:])))
