import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin.errors import SchemaError
from adjoin.keys.codec import KeyCodec


def _instant(year: int) -> dt.datetime:
    return dt.datetime(year, 1, 1)  # noqa: DTZ001 (timestamps without zone exist)


_FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])
_HALVES = st.floats(width=16)
_DATES = st.dates()
_TIMES = st.times()
_INSTANTS = st.datetimes(_instant(1700), _instant(2200))
_SPANS = st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999))


def _decimals(digits: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(lambda number: Decimal(f"{number}e-2"))


def _ints(type_: pa.DataType, low: int, bits: int) -> tuple[pa.DataType, Any]:
    return type_, st.integers(low, low + (1 << bits) - 1)


ORDERED = [
    _ints(pa.int8(), -(1 << 7), 8),
    _ints(pa.int16(), -(1 << 15), 16),
    _ints(pa.int32(), -(1 << 31), 32),
    _ints(pa.int64(), -(1 << 63), 64),
    _ints(pa.uint8(), 0, 8),
    _ints(pa.uint16(), 0, 16),
    _ints(pa.uint32(), 0, 32),
    _ints(pa.uint64(), 0, 64),
    (pa.bool_(), st.booleans()),
    (pa.float16(), _HALVES.map(np.float16)),
    (pa.float32(), _FLOATS),
    (pa.float64(), st.floats() | _FLOATS),
    (pa.date32(), _DATES),
    (pa.date64(), _DATES),
    (pa.time32("ms"), _TIMES.map(lambda time: time.replace(microsecond=0))),
    (pa.time64("us"), _TIMES),
    (pa.timestamp("us"), _INSTANTS),
    (pa.timestamp("ns", "UTC"), _INSTANTS.map(lambda instant: instant.replace(tzinfo=dt.UTC))),
    (pa.duration("us"), _SPANS),
    (pa.decimal128(18, 2), _decimals(18)),
    (pa.decimal256(18, 2), _decimals(18)),
    *(
        (getattr(pa, name)(digits, 2), _decimals(digits))
        for name, digits in (("decimal32", 9), ("decimal64", 18))
        if hasattr(pa, name)
    ),
]
HASHED = [
    (pa.string(), st.text(max_size=4)),
    (pa.large_string(), st.text(max_size=40)),
    (pa.binary(), st.binary(max_size=4)),
    (pa.large_binary(), st.binary(max_size=40)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.binary(0), st.just(b"")),
    (pa.decimal128(38, 2), _decimals(38)),
    (pa.decimal256(60, 2), _decimals(60)),
]


def _name(value: Any) -> str:
    return str(value) if isinstance(value, pa.DataType) else ""


def _codec(*types: pa.DataType, **options: int) -> KeyCodec:
    names = [f"k{at}" for at in range(len(types))]
    return KeyCodec.of(pa.schema(list(zip(names, types, strict=True))), names, **options)


def _less(one: Any, other: Any) -> bool:
    if isinstance(one, float | np.floating):
        if math.isnan(one):
            return False
        return math.isnan(other) or one < other
    return bool(one < other)


def _equal(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float | np.floating) and math.isnan(one) and math.isnan(other)
    return both_nan or bool(one == other)


@pytest.mark.parametrize(("type_", "values"), ORDERED, ids=_name)
def test_encoding_preserves_order_and_equality(type_: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(values, min_size=2, max_size=6))
    def check(sample: list[Any]) -> None:
        keys, valid = _codec(type_).encode([pa.array(sample, type_)])
        assert valid is None
        assert keys.dtype == np.int64
        for one, left in zip(sample, keys, strict=True):
            for other, right in zip(sample, keys, strict=True):
                assert (left < right) == _less(one, other)
                assert (left == right) == _equal(one, other)

    check()


@pytest.mark.parametrize(("type_", "values"), ORDERED + HASHED, ids=_name)
def test_encoding_of_slices_with_nulls(type_: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(values | st.none(), min_size=3, max_size=12))
    def check(sample: list[Any]) -> None:
        codec = _codec(type_)
        column = pa.array(sample, type_)
        keys, valid = codec.encode([column])
        part, part_valid = codec.encode([column.slice(1, len(sample) - 2)])
        there = np.array([value is not None for value in sample])
        assert (there if valid is None else valid).tolist() == there.tolist()
        assert part_valid is None or part_valid.tolist() == there[1:-1].tolist()
        assert (part == keys[1:-1])[there[1:-1]].all()
        other = column.take(pa.array(np.roll(np.arange(len(sample)), 1)))
        turned = [sample[-1], *sample[:-1]]
        expected = [
            a is not None and b is not None and _equal(a, b) for a, b in zip(sample, turned, strict=True)
        ]
        assert codec.same([column], [other]).tolist() == expected
        kept = column.drop_null()
        ids = codec.identify([kept])
        plain = kept.to_pylist()
        assert [[a == b for b in ids] for a in ids] == [[_equal(a, b) for b in plain] for a in plain]

    check()


@pytest.mark.parametrize(("type_", "values"), HASHED, ids=_name)
def test_keys_have_equal_hashes_if_and_only_if_they_are_equal(type_: pa.DataType, values: Any) -> None:
    @given(st.lists(values, max_size=8))
    def check(sample: list[Any]) -> None:
        codec = _codec(type_)
        keys, _ = codec.encode([pa.array(sample, type_)])
        assert not codec.ordered
        assert [[a == b for b in keys] for a in keys] == [[a == b for b in sample] for a in sample]

    check()


def test_the_hash_of_a_composite_key_depends_on_all_columns() -> None:
    codec = _codec(pa.string(), pa.int32(), pa.float64())
    columns = [
        pa.array(["a", "a", "b", "a"]),
        pa.array([1, 2, 1, 1], pa.int32()),
        pa.array([0.0, 0.0, 0.0, -0.0]),
    ]
    keys, _ = codec.encode(columns)
    assert codec.kind == "hashed"
    assert len(set(keys.tolist())) == 3
    assert keys[0] == keys[3]
    left, right = ([column.take(pa.array(rows)) for column in columns] for rows in ([0, 0], [3, 1]))
    assert codec.same(left, right).tolist() == [True, False]
    assert codec.identify(columns).tolist()[0] == codec.identify(columns).tolist()[3]


def test_a_null_in_any_column_makes_the_key_null() -> None:
    codec = _codec(pa.string(), pa.int64())
    _, valid = codec.encode([pa.array(["a", None, "c"]), pa.array([1, 2, None])])
    assert valid is not None
    assert valid.tolist() == [True, False, False]


def test_fewer_hash_bits_collide_and_are_saved() -> None:
    codec = _codec(pa.string(), hash_bits=2)
    keys, _ = codec.encode([pa.array([str(number) for number in range(100)])])
    assert set(keys.tolist()) <= {0, 1, 2, 3}
    schema = pa.schema([("k0", pa.string())])
    assert KeyCodec.from_json(codec.to_json(), schema, ["k0"]) == codec


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (pa.int64(), "identity"),
        (pa.timestamp("us"), "identity"),
        (pa.date64(), "identity"),
        (pa.time64("ns"), "identity"),
        (pa.duration("s"), "identity"),
        (pa.int32(), "ordered"),
        (pa.uint64(), "ordered"),
        (pa.decimal128(18, 3), "ordered"),
        (pa.decimal128(19, 3), "hashed"),
        (pa.string(), "hashed"),
    ],
    ids=str,
)
def test_the_type_of_a_key_decides_its_kind_of_codec(type_: pa.DataType, kind: str) -> None:
    assert _codec(type_).kind == kind


@pytest.mark.parametrize("type_", [pa.list_(pa.int8()), pa.null(), pa.struct([("a", pa.int8())])], ids=str)
def test_other_types_cannot_be_keys(type_: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="cannot be a key"):
        _codec(type_)


WIDENING = [
    (pa.int32(), pa.int64(), [1, -2]),
    (pa.uint32(), pa.int64(), [1, 2]),
    (pa.int32(), pa.float64(), [1, 2]),
    (pa.int32(), pa.decimal128(12, 2), [1, 2]),
    (pa.float32(), pa.float64(), [0.5]),
    (pa.string(), pa.large_string(), ["a"]),
    (pa.large_string(), pa.string(), ["a"]),
    (pa.string_view(), pa.string(), ["a"]),
    (pa.binary(), pa.large_binary(), [b"a"]),
    (pa.decimal128(5, 2), pa.decimal128(20, 4), [Decimal("1.25")]),
    (pa.timestamp("ms"), pa.timestamp("us"), [_instant(2020)]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b"]),
    (
        pa.timestamp("us", "UTC"),
        pa.timestamp("us", "Europe/Athens"),
        [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
    ),
]


@pytest.mark.parametrize(("given_type", "wanted", "values"), WIDENING, ids=str)
def test_stream_keys_are_widened(given_type: pa.DataType, wanted: pa.DataType, values: list[Any]) -> None:
    (column,) = _codec(wanted).conform([pa.array(values, given_type)])
    assert column.type == wanted
    assert [value == given for value, given in zip(column.to_pylist(), values, strict=True)] == [True] * len(
        values
    )


@pytest.mark.parametrize(
    ("given_type", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.uint64()),
        (pa.uint64(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.date32(), pa.date64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(20, 4), pa.decimal128(20, 2)),
    ],
    ids=str,
)
def test_lossy_conversions_are_refused_naming_both_types(
    given_type: pa.DataType, wanted: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match="cast the stream's column") as error:
        _codec(wanted).conform([pa.array([], given_type)])
    assert str(given_type) in str(error.value)
    assert str(wanted) in str(error.value)


def test_a_value_that_overflows_in_the_finer_unit_is_an_error() -> None:
    with pytest.raises(SchemaError, match="does not fit"):
        _codec(pa.timestamp("ns")).conform([pa.array([1 << 60], pa.timestamp("s"))])


@pytest.mark.parametrize(
    ("given_type", "values", "wanted", "equal"),
    [
        (pa.int64(), [1, -1, 1 << 40, None], pa.uint32(), [1, None, None, None]),
        (pa.int64(), [1, -1, 200], pa.int8(), [1, -1, None]),
        (pa.int64(), [1, -1], pa.uint64(), [1, None]),
        (pa.decimal128(20), [Decimal(1), Decimal(-1), Decimal(1 << 64)], pa.uint64(), [1, None, None]),
        (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("1.55")], pa.int8(), [None, None]),
        (pa.timestamp("us"), [2_000, 1_500], pa.timestamp("ms"), [2, None]),
        (pa.timestamp("us"), [1, 253_402_214_400_000_000], pa.timestamp("ns"), [1_000, None]),
        (pa.time64("ns"), [1_000, 1_500], pa.time64("us"), [1, None]),
        (pa.duration("us"), [1, 1 << 62], pa.duration("ns"), [1_000, None]),
        (pa.date32(), [1, None], pa.date64(), [86_400_000, None]),
        (pa.binary(), [b"abc", b"a", None], pa.binary(3), [b"abc", None, None]),
        (pa.float64(), [1.5, 0.1, 1e300, None], pa.float32(), [1.5, None, None, None]),
    ],
)
def test_a_value_that_equals_no_key_becomes_null(given_type, values, wanted, equal):
    (column,) = _codec(wanted).conform([pa.array(values, given_type)], exact=False)
    assert column.equals(
        pa.array(equal, pa.int64()).cast(wanted) if _is_time(wanted) else pa.array(equal, wanted)
    )


@pytest.mark.parametrize(
    ("given_type", "wanted"),
    [
        (pa.string(), pa.int64()),
        (pa.float64(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.date32()),
        (pa.string(), pa.binary()),
    ],
)
def test_values_of_another_kind_are_refused(given_type, wanted):
    with pytest.raises(SchemaError, match="cast the stream's column"):
        _codec(wanted).conform([pa.array([], given_type)], exact=False)


def _is_time(type_: pa.DataType) -> bool:
    return pa.types.is_temporal(type_)
