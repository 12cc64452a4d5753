"""Keys as plain Python values, equal exactly when the join calls them equal."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.oracle import Predicate, comparable, whole_units

# NaN equals NaN and is greater than every number, so it cannot stay a float.
Order = tuple[int, Any]


def canonical_keys(columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]) -> list[Any]:
    """One hashable key per row, None where a component is null."""
    parts = [orders(column, kind) for column, kind in zip(columns, types, strict=True)]
    return [None if any(part is None for part in row) else row for row in zip(*parts, strict=True)]


def orders(column: pa.ChunkedArray, kind: pa.DataType) -> list[Order | None]:
    """One value per row that sorts as the key does, None for null."""
    return [_order(value) for value in comparable(column, kind).to_pylist()]


def intervals(
    stream: pa.Table, predicate: Predicate, kind: pa.DataType
) -> Iterator[tuple[Order | None, Order | None]]:
    """For each row the least and the greatest key of this type that it matches, None for null."""
    if predicate.between is not None:
        lows, highs = (orders(stream[name], kind) for name in predicate.between)
        yield from zip(lows, highs, strict=True)
        return
    (name,) = predicate.names
    reach = _reach(predicate.within, kind)
    for key in orders(stream[name], kind):
        if key is None or key[0] == 1:
            yield key, key
        else:
            yield (0, key[1] - reach), (0, key[1] + reach)


def _reach(within: Any, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        return float(within)
    if pa.types.is_decimal(kind):
        return within if isinstance(within, Decimal) else Decimal(str(within))
    return math.floor(whole_units(within, kind))


def _order(value: Any) -> Order | None:
    if value is None:
        return None
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value)
