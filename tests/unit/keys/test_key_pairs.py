"""Keys of any two comparable types, at the limits of both, checked with exact arithmetic."""

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import OptionError, SchemaError
from adjoin.keys.casts import equal_values, is_comparable, widens
from adjoin.keys.codec import KeyCodec
from adjoin.keys.predicate import Between, Within
from tests.odd_keys import TYPES, edges, exact, holds, is_clock, tick

COMPARABLE = [(given, wanted) for given in TYPES for wanted in TYPES if is_comparable(given, wanted)]


def test_many_pairs_of_types_are_comparable():
    assert len(COMPARABLE) > 300
    for given, wanted in ((pa.uint64(), pa.int64()), (pa.decimal128(38, 0), pa.decimal128(9, 2))):
        assert (given, wanted) in COMPARABLE


@pytest.mark.parametrize("given", TYPES, ids=str)
def test_a_value_becomes_an_equal_value_or_null(given):
    column = edges(given)
    for wanted in (wanted for one, wanted in COMPARABLE if one.equals(given)):
        found = equal_values(column, wanted)
        assert found.type.equals(wanted)
        for value, equal in zip(exact(column), exact(found), strict=True):
            assert equal == (value if value is not None and holds(wanted, value) else None), (wanted, value)


RANGED = [
    (given, wanted)
    for given in TYPES
    for wanted in TYPES
    if widens(given, wanted) and not pa.types.is_floating(wanted) and "string" not in str(wanted)
    if not any(map(pa.types.is_fixed_size_binary, (given, wanted))) and "binary" not in str(wanted)
    if not pa.types.is_decimal(wanted) or wanted.precision <= 18
]
"""Pairs of types for ranges, without floats, whose distances are rounded, and without unordered keys."""


def matched(codec: KeyCodec, bounds: Any, keys: pa.Array) -> set[tuple[int, int]]:
    low, high, valid = bounds
    encoded, has_key = codec.encode([keys])
    inside = (low[:, None] <= encoded) & (encoded <= high[:, None])
    if valid is not None:
        inside &= valid[:, None]
    if has_key is not None:
        inside &= has_key
    return {(int(row), int(key)) for row, key in zip(*np.nonzero(inside), strict=True)}


@pytest.mark.parametrize(("given", "wanted"), RANGED, ids=str)
def test_ranges_match_what_exact_arithmetic_says(given, wanted):
    codec = KeyCodec.of(pa.schema([("k", wanted)]), ["k"])
    column, keys = edges(given), edges(wanted)
    values, targets = exact(column), exact(keys)
    rows = [(low, high) for low in range(len(column)) for high in range(len(column))]
    batch = pa.record_batch(
        {
            "low": column.take(pa.array([low for low, _ in rows])),
            "high": column.take(pa.array([h for _, h in rows])),
        }
    )
    wanted_pairs = {
        (row, at)
        for row, (low, high) in enumerate(rows)
        for at, key in enumerate(targets)
        if None not in {values[low], values[high], key} and values[low] <= key <= values[high]
    }
    assert matched(codec, Between(codec, ("low", "high")).bounds(batch), keys) == wanted_pairs


@pytest.mark.parametrize(("given", "wanted"), RANGED, ids=str)
def test_distances_match_what_exact_arithmetic_says(given, wanted):
    if pa.types.is_boolean(wanted) or pa.types.is_date64(wanted):
        return
    codec = KeyCodec.of(pa.schema([("k", wanted)]), ["k"])
    column, keys = edges(given), edges(wanted)
    distances: list[Any] = [0, 1, 2**31, 2**63, 2**64 - 1, 10**400, Decimal("0.75"), Decimal("1e30")]
    if is_clock(wanted):
        most = datetime.timedelta.max
        distances = [datetime.timedelta(microseconds=unit) for unit in (0, 1, 10**6, 10**15)] + [most]
    for distance in distances:
        bounds = Within(codec, "k", distance).bounds(pa.record_batch({"k": column}))
        reach = Fraction(distance) if not is_clock(wanted) else _nanoseconds(distance, wanted)
        pairs = {
            (row, at)
            for row, value in enumerate(exact(column))
            for at, key in enumerate(exact(keys))
            if value is not None and key is not None and abs(value - key) <= reach
        }
        assert matched(codec, bounds, keys) == pairs, distance


def _nanoseconds(distance: datetime.timedelta, type_: pa.DataType) -> int:
    nanoseconds = distance // datetime.timedelta(microseconds=1) * 1000
    return nanoseconds // tick(type_) * tick(type_)


@pytest.mark.parametrize(
    "distance",
    [
        *(Decimal("sNaN"), Decimal("NaN"), float("nan"), np.float32("nan"), Decimal("-Infinity"), -1, -0.5),
        *(True, np.bool_(True), "1", None, [1], np.timedelta64(1, "ns"), 1j),
    ],
    ids=repr,
)
def test_invalid_distances_are_refused(distance):
    codec = KeyCodec.of(pa.schema([("k", pa.int64())]), ["k"])
    with pytest.raises(OptionError, match="within="):
        Within(codec, "k", distance)


def test_types_that_cannot_be_compared_are_refused_before_the_first_row():
    codec = KeyCodec.of(pa.schema([("k", pa.int64())]), ["k"])
    for type_ in (pa.string(), pa.float64(), pa.timestamp("s"), pa.bool_()):
        with pytest.raises(SchemaError, match="cast the stream's column"):
            codec.conform([pa.nulls(0, type_)], exact=False)
