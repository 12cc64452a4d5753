"""Columns of every type pass, in memory and over the disk."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.streamjoin.inputs import JOINS, SPILLING, each

ROWS = 3_000
START = datetime(2024, 1, 1, tzinfo=UTC)


def payload(number: int) -> dict[str, Any]:
    """Values of many types, some of them null."""
    return {
        "flag": None if number % 7 == 3 else number % 2 == 0,
        "small": number % 100,
        "real": number / 7,
        "money": Decimal(number) / 100,
        "when": START + timedelta(seconds=number),
        "name": None if number % 5 == 4 else f"row {number}" * (number % 4),
        "data": bytes([number % 256]) * (number % 9),
        "items": None if number % 11 == 0 else list(range(number % 4)),
        "pair": {"a": number, "b": f"{number}"},
    }


SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("real", pa.float32()),
        ("money", pa.decimal128(12, 2)),
        ("when", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("data", pa.large_binary()),
        ("items", pa.list_(pa.int16())),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)


def table(seed: int, column: str) -> pa.Table:
    keys = np.random.default_rng(seed).integers(0, 800, ROWS)
    columns = pa.Table.from_pylist([payload(number) for number in range(ROWS)], schema=SCHEMA)
    return columns.append_column("k", pa.array(keys)).append_column(column, pa.array(np.arange(ROWS)))


@pytest.mark.parametrize("name", each(SPILLING))
def test_values_of_every_type_come_back(name):
    left, right = table(1, "l"), table(2, "r")
    with JOINS[name](left.schema, right.schema, on="k", memory="900KB", block_bytes=4096) as join:
        items = [
            (side, batch)
            for begin in range(0, ROWS, 500)
            for side, some in (("left", left), ("right", right))
            for batch in some.slice(begin, 500).combine_chunks().to_batches()
        ]
        found = pa.Table.from_batches(join.run(items))
        assert join.metrics()["blocks_flushed"] > 20
    chosen = {"": found["l"], "_right": found["r"]}
    for suffix, source in (("", left), ("_right", right)):
        wanted = source.take(chosen[suffix])
        for field in SCHEMA:
            assert found[field.name + suffix].combine_chunks().equals(wanted[field.name].combine_chunks()), (
                field
            )
    counts = [np.bincount(some["k"].to_numpy(), minlength=800) for some in (left, right)]
    assert found.num_rows == int((counts[0] * counts[1]).sum())
