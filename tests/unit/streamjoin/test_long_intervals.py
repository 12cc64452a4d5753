"""A few long intervals among short ones: every pair exactly once, in memory, while idle, and from disk."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, MINER
from adjoin.master.device import Cost
from adjoin.operators.clock import SimulatedClock
from adjoin.streamjoin.base.phases import SpillingJoin
from tests.unit.streamjoin.inputs import tight

KEYS, BATCH = 100_000, 250
LEFT = pa.schema([("first", pa.int64()), ("last", pa.int64()), ("l", pa.int64()), ("text", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("text", pa.string())])
SIZES: dict[str, Any] = {"block_bytes": 4096, "max_outer": 3}


def joins(name: str) -> tuple[SpillingJoin, tuple[str, str]]:
    """A join with little memory, and what its results call the numbers of the rows."""
    options = {**SIZES, "clock": SimulatedClock(), "disk": Cost(8e-3, 4e-5)}
    if name == "diner":
        diner = DINER(LEFT, RIGHT, on="k", between=("first", "last"), memory="450KB", **options)
        return tight(diner), ("l", "r")
    inputs = {"left": LEFT, "right": RIGHT}
    miner = MINER(inputs, ["right.k between left.first and left.last"], memory="600KB", **options)
    return tight(miner), ("left_l", "right_r")


def inputs(random: Any, share: float, longest: int, rows: int, right_rows: int) -> tuple[Any, Any]:
    """Short intervals, but a share of them long; and keys."""
    first = random.integers(0, KEYS, rows)
    widths = np.where(
        random.random(rows) < share, random.integers(0, longest, rows), random.integers(0, 40, rows)
    )
    sides = []
    for schema, keys in ((LEFT, [first, first + widths]), (RIGHT, [random.integers(0, KEYS, right_rows)])):
        size = len(keys[0])
        text = pa.array(["x" * int(width) for width in random.integers(0, 1_500, size)])
        sides.append(pa.record_batch([*map(pa.array, (*keys, np.arange(size))), text], schema=schema))
    return sides[0], sides[1]


def expected(left: pa.RecordBatch, right: pa.RecordBatch) -> list[tuple[int, int]]:
    """The pairs of numbers of the rows that match."""
    first, last, key = (left["first"].to_numpy(), left["last"].to_numpy(), right["k"].to_numpy())
    pairs = np.argwhere((first[:, None] <= key) & (key <= last[:, None]))
    return [(int(one), int(other)) for one, other in pairs]


@pytest.mark.parametrize(("rows", "right_rows"), [(500, 1_000), (1_000, 500)])
@pytest.mark.parametrize(("share", "longest"), [(0.02, KEYS), (0.2, 2_000)])
@pytest.mark.parametrize("name", ["diner", "miner"])
def test_every_pair_comes_once_whatever_the_lengths(name, share, longest, rows, right_rows):
    left, right = inputs(np.random.default_rng(rows), share, longest, rows, right_rows)
    join, names = joins(name)
    results: list[pa.RecordBatch] = []
    for begin in range(0, max(rows, right_rows), BATCH):
        results += join.push("left", left.slice(begin, BATCH)) if begin < rows else []
        results += join.push("right", right.slice(begin, BATCH)) if begin < right_rows else []
        join.check_invariants()
        results += join.idle(0.3)
    results += join.finish()
    metrics = join.metrics()
    join.close()
    numbers = [
        pair for batch in results for pair in zip(*(batch[name].to_pylist() for name in names), strict=True)
    ]
    assert sorted(numbers) == expected(left, right)
    assert metrics["peak_bytes"] <= metrics["memory_bytes"]
    assert min(metrics[f"results_{phase}"] for phase in ("online", "reactive", "cleanup")) > 0
