"""Keys as plain Python values, equal exactly when the join calls them equal."""

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.oracle import comparable

# NaN equals NaN and is greater than every number, so it cannot stay a float.
Order = tuple[int, Any]


def canonical_keys(columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
    """One hashable key per row, None where a component is null."""
    parts = [orders(column, kind) for column, kind in zip(columns, types, strict=True)]
    return [None if any(part is None for part in row) else row for row in zip(*parts, strict=True)]


def orders(column: pa.ChunkedArray, kind: pa.DataType) -> list[Order | None]:
    """One value per row that sorts as the key does, None for null."""
    return [_order(value) for value in comparable(column, kind).to_pylist()]


def _order(value: Any) -> Order | None:
    if value is None:
        return None
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value)
