"""The oracle itself: known answers, and a comparison that detects every difference."""

from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.conformance.values import PAYLOAD_TYPES, random_column
from tests.oracle import Predicate, assert_same_rows, expected, matches

STREAM = pa.table({"k": [1, 2, None, 9], "s": ["a", "b", "c", "d"]})
MASTER = pa.table({"k": [2, 1, 2, 5], "p": [20, 10, 21, 50], "s": ["w", "x", "y", "z"]})


def test_oracle_returns_known_inner_rows() -> None:
    wanted = pa.table({"k": [1, 2, 2], "s": ["a", "b", "b"], "p": [10, 20, 21], "s_master": ["x", "w", "y"]})
    assert_same_rows(expected(STREAM, MASTER, Predicate("k"), "inner"), wanted)


def test_oracle_returns_known_left_rows() -> None:
    wanted = pa.table(
        {"k": [1, 2, 2, None, 9], "s": ["a", "b", "b", "c", "d"], "p": [10, 20, 21, None, None]}
    )
    assert_same_rows(expected(STREAM, MASTER, Predicate("k"), "left", ["p"]), wanted)


@pytest.mark.parametrize(("how", "kept"), [("semi", [0, 1]), ("anti", [2, 3])])
def test_oracle_returns_known_semi_and_anti_rows(how: str, kept: list[int]) -> None:
    assert_same_rows(expected(STREAM, MASTER, Predicate("k"), how), STREAM.take(kept))


def test_range_join_keeps_the_key_of_the_master() -> None:
    rows = expected(STREAM, MASTER, Predicate("k", within=1), "inner", ["k"])
    wanted = pa.table({"k": [1, 1, 1, 2, 2, 2], "s": list("aaabbb"), "k_master": [1, 2, 2, 1, 2, 2]})
    assert_same_rows(rows, wanted)


@pytest.mark.parametrize(
    ("kind", "within", "far"),
    [
        (pa.timestamp("ns"), timedelta(microseconds=1), 1000),
        (pa.timestamp("s"), timedelta(seconds=2.9), 2),
        (pa.date32(), timedelta(days=1, hours=23), 1),
        (pa.int64(), 2.5, 2),
        (pa.uint64(), 3, 3),
    ],
)
def test_within_includes_its_bound_and_nothing_beyond(kind: pa.DataType, within: object, far: int) -> None:
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    stream = pa.table({"k": pa.array([10_000], storage).cast(kind)})
    master = pa.table(
        {"k": pa.array([10_000 + far, 10_001 + far, 10_000 - far, 9_999 - far], storage).cast(kind)}
    )
    assert sorted(matches(stream, master, Predicate("k", within=within))[1]) == [0, 2]


def test_within_of_decimals_is_exact() -> None:
    stream = pa.table({"k": [Decimal("1.10")]})
    master = pa.table({"k": [Decimal("1.15"), Decimal("1.16"), Decimal("1.05"), Decimal("1.04")]})
    assert sorted(matches(stream, master, Predicate("k", within=Decimal("0.05")))[1]) == [0, 2]


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_comparison_ignores_order_and_detects_a_changed_value(name: str) -> None:
    rng = np.random.default_rng(0)
    column = random_column(PAYLOAD_TYPES[name], 200, rng)
    table = pa.table({"i": np.arange(200) % 20, "c": column})
    assert_same_rows(table.take(pa.array(rng.permutation(200))), table)
    if name != "null":
        changed = table.set_column(1, "c", random_column(PAYLOAD_TYPES[name], 200, rng))
        with pytest.raises(AssertionError, match="missing"):
            assert_same_rows(changed, table)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([""]), pa.array([None], pa.string())),
        (pa.array([[]], pa.list_(pa.int8())), pa.array([None], pa.list_(pa.int8()))),
        (pa.array([[None]], pa.list_(pa.int8())), pa.array([[]], pa.list_(pa.int8()))),
        (pa.array([[1, 2], [3]]), pa.array([[1], [2, 3]])),
        (
            pa.array([{"a": None}], pa.struct([("a", pa.int8())])),
            pa.array([None], pa.struct([("a", pa.int8())])),
        ),
        (pa.array([1, 1, 2]), pa.array([1, 2, 2])),
        (pa.array([1, 1]), pa.array([1])),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
    ],
)
def test_comparison_detects_small_differences(one: pa.Array, other: pa.Array) -> None:
    for left, right in ((one, other), (other, one)):
        assert_same_rows(pa.table({"c": left}), pa.table({"c": left}))
        with pytest.raises(AssertionError):
            assert_same_rows(pa.table({"c": left}), pa.table({"c": right}))


def test_comparison_detects_reordered_and_renamed_columns() -> None:
    table = pa.table({"a": [1], "b": [1]})
    for other in (table.select(["b", "a"]), table.rename_columns(["a", "c"]), table.select(["a"])):
        with pytest.raises(AssertionError, match="instead of"):
            assert_same_rows(other, table)
