"""Two inputs with numbered rows, the joins of them, and the oracle."""

from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from adjoin import (
    DINER,
    RPJ,
    HashMergeJoin,
    ProgressiveMergeJoin,
    SymmetricHashJoin,
    XJoin,
)
from adjoin.master.device import Cost
from adjoin.operators.clock import SimulatedClock
from adjoin.streamjoin.base.phases import SpillingJoin

LEFT = pa.schema([("k", pa.int64()), ("l", pa.int64()), ("text", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("more", pa.string())])
CONDITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "equality": ({}, "l.k = r.k"),
    "band": ({"within": 2}, "r.k BETWEEN l.k - 2 AND l.k + 2"),
}
JOINS: dict[str, Callable[..., SpillingJoin]] = {
    "diner": DINER,
    "xjoin": XJoin,
    "pmj": ProgressiveMergeJoin,
    "hmj": HashMergeJoin,
    "rpj": RPJ,
    "shj": SymmetricHashJoin,
}
SPILLING = [name for name in JOINS if name != "shj"]
KINDS = [(name, "equality") for name in JOINS] + [("diner", "band"), ("pmj", "band")]
"""The joins, and the conditions that each takes."""
_QUICK = ("diner", "rpj")
"""The joins that are always tested: RPJ combines the probing of XJoin and the merging of hash-merge join."""


def each(names: Iterable[Any]) -> list[Any]:
    """Parameters of a test: joins, or joins and conditions; those whose code others cover are marked slow."""
    return [name if (name if isinstance(name, str) else name[0]) in _QUICK else _slow(name) for name in names]


def _slow(name: Any) -> Any:
    values = (name,) if isinstance(name, str) else name
    return pytest.param(*values, marks=pytest.mark.slow)


_OPTIONS: dict[str, dict[str, Any]] = {
    "diner": {"max_outer": 3},
    "hmj": {"fan_in": 3},
    "rpj": {"fan_in": 3},
    "shj": {"memory": "8MB"},
}


class Input:
    """Rows of one side, drawn batch by batch."""

    def __init__(self, schema: pa.Schema, seed: int, keys: int, width: int = 90) -> None:
        self._schema = schema
        self._width = width
        self._random = np.random.default_rng(seed)
        self._keys = keys
        self.batches: list[pa.RecordBatch] = []

    def draw(self, rows: int) -> pa.RecordBatch:
        keys = pa.array(
            [
                None if at % 13 == 7 else int(key)
                for at, key in enumerate(self._random.integers(0, self._keys, rows))
            ],
            pa.int64(),
        )
        number = np.arange(rows) + sum(batch.num_rows for batch in self.batches)
        texts = ["x" * int(width) for width in self._random.integers(0, self._width, rows)]
        batch = pa.RecordBatch.from_arrays([keys, pa.array(number), pa.array(texts)], schema=self._schema)
        self.batches.append(batch)
        return batch

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, schema=self._schema)


def expected(left: pa.Table, right: pa.Table, condition: str) -> pa.Array:
    """The pairs of numbers of the rows that match, as `pairs_of` gives them."""
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        pairs = connection.sql(f"SELECT l.l, r.r FROM l JOIN r ON {condition}").to_arrow_table()
    return pairs_of(pairs.to_batches())


def pairs_of(batches: list[pa.RecordBatch]) -> pa.Array:
    """The pairs of numbers in these results, each pair as one integer, in order."""
    packed = [batch["l"].to_numpy() << 32 | batch["r"].to_numpy() for batch in batches]
    return pa.array(np.sort(np.concatenate([np.empty(0, np.int64), *packed])))


def small(name: str, *, is_tight: bool = True, **options: Any) -> SpillingJoin:
    """Blocks of a page, memory for about a hundred of them, on a simulated clock and disk."""
    sizes = {"memory": "450KB", "block_bytes": 4096, "clock": SimulatedClock(), "disk": Cost(8e-3, 4e-5)}
    join = JOINS[name](LEFT, RIGHT, on="k", **{**sizes, **_OPTIONS.get(name, {}), **options})
    return tight(join) if is_tight else join


def tight(join: Any) -> Any:
    """The join with no more memory for tuples than after a first reactive phase, so that few rows fill it."""
    assert not join._makes_room_for_reactive_phases()
    return join
