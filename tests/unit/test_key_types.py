"""A key without an equal matches nothing: any two comparable types, in all kinds of joins."""

import random
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from adjoin import DINER, MINER, SSIJ, Master
from adjoin.keys.casts import is_comparable
from adjoin.keys.codec import KeyCodec
from tests.odd_keys import TYPES, edges, exact

PAIRS = [
    (given, wanted)
    for given, wanted in product(TYPES, TYPES)
    if is_comparable(given, wanted) and not given.equals(wanted)
]
KNOWN = [
    (pa.uint64(), pa.int64()),
    (pa.uint32(), pa.int32()),
    (pa.decimal128(38, 0), pa.decimal128(9, 2)),
    (pa.timestamp("s"), pa.timestamp("ns")),
    (pa.float64(), pa.float16()),
    (pa.date64(), pa.date32()),
]
FEW = KNOWN + random.Random(1).sample(PAIRS, 10)


def expected(given: pa.Array, wanted: pa.Array) -> list[tuple[int, int]]:
    pairs = product(enumerate(exact(given)), enumerate(exact(wanted)))
    return [(row, mate) for (row, value), (mate, key) in pairs if value is not None and value == key]


def numbered(columns: list[pa.Array], name: str) -> pa.RecordBatch:
    keys = {f"k{number}": column for number, column in enumerate(columns)}
    return pa.record_batch({**keys, name: pa.array(range(len(columns[0])))})


def check_joins(given: pa.DataType, wanted: pa.DataType, *, is_double: bool) -> None:
    copies = 2 if is_double else 1
    left, right = numbered([edges(given)] * copies, "l"), numbered([edges(wanted)] * copies, "r")
    names = [f"k{number}" for number in range(copies)]
    pairs = expected(left["k0"], right["k0"])
    with DINER(left.schema, right.schema, on=names, memory="2MB") as join:
        found = pa.Table.from_batches(join.run([("left", left), ("right", right)]), schema=join.schema)
    assert sorted(zip(found["l"].to_pylist(), found["r"].to_pylist(), strict=True)) == pairs
    # MINER uses the codec of one of the two types, to which the other is converted.
    schemas = {"a": left.schema, "b": right.schema}
    with MINER(schemas, [f"a.{name} = b.{name}" for name in names], "2MB") as join:
        found = pa.Table.from_batches(join.run([("b", right), ("a", left)]), schema=join.schema)
    assert sorted(zip(found["a_l"].to_pylist(), found["b_r"].to_pylist(), strict=True)) == pairs


def check_master(given: pa.DataType, wanted: pa.DataType, path: Any, how: str) -> None:
    keys = edges(wanted).drop_null()
    first = {value: number for number, value in reversed(list(enumerate(exact(keys))))}
    keys = keys.take(pa.array(sorted(first.values())))
    stream = numbered([edges(given)], "l")
    table = pa.table({"k0": keys, "r": pa.array(range(len(keys)))})
    master = Master.build(table, key="k0", path=path)
    with SSIJ(master, on="k0", how=how, memory="4MB") as join:
        found = pa.Table.from_batches(join.run([stream]), schema=join.schema_of(stream.schema))
    pairs = expected(stream["k0"], keys)
    if how == "inner":
        assert sorted(zip(found["l"].to_pylist(), found["r"].to_pylist(), strict=True)) == pairs
    else:
        assert sorted(found["l"].to_pylist()) == sorted(
            set(range(stream.num_rows)) - {row for row, _ in pairs}
        )


@pytest.mark.parametrize(("given", "wanted"), FEW, ids=str)
def test_keys_without_an_equal_match_nothing(given, wanted, tmp_path):
    check_joins(given, wanted, is_double=False)
    check_joins(given, wanted, is_double=True)
    check_master(given, wanted, tmp_path / "master", "inner")


@pytest.mark.slow
@pytest.mark.parametrize(("given", "wanted"), PAIRS, ids=str)
def test_keys_of_all_comparable_types(given, wanted, tmp_path):
    check_joins(given, wanted, is_double=False)
    check_joins(given, wanted, is_double=True)
    check_master(given, wanted, tmp_path / "inner", "inner")
    check_master(given, wanted, tmp_path / "anti", "anti")


def test_ordered_keys_keep_their_order():
    for type_ in TYPES:
        codec = KeyCodec.of(pa.schema([("k", type_)]), ["k"])
        if not codec.ordered or pa.types.is_floating(type_):
            continue
        column = edges(type_).drop_null()
        encoded = codec.encode([column])[0].tolist()
        by_value = [key for _, key in sorted(zip(exact(column), encoded, strict=True))]
        assert by_value == sorted(encoded), type_
