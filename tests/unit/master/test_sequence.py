"""The greatest value of the sequence column wins, however batches come."""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin.master.master import Master
from tests.unit.master.sequenced import Change, Model, as_changes, as_rows, key_table, latest_rows
from tests.unit.master.tables import build_master, files_below, multiset, rows_of

DAY = dt.date(2024, 1, 1)
_ZONE = dt.timezone(dt.timedelta(hours=2))
SEQUENCES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int8": (pa.int8(), lambda at: at - 6),
    "uint64": (pa.uint64(), lambda at: 2**64 - 13 + at),
    "decimal": (pa.decimal128(30, 3), lambda at: Decimal(at - 5) / 8),
    "wide decimal": (pa.decimal256(50, 0), lambda at: Decimal(10) ** 45 * (at - 5)),
    "float": (pa.float32(), lambda at: [-math.inf, -0.0, 0.0, math.inf][at] if at < 4 else at / 4),
    "date": (pa.date32(), lambda at: DAY + dt.timedelta(days=at)),
    "date64": (pa.date64(), lambda at: DAY - dt.timedelta(days=20 * at)),
    "timestamp": (pa.timestamp("ns"), lambda at: np.datetime64("2024-01-01", "ns") + at),
    "zoned": (pa.timestamp("ms", "Asia/Tokyo"), lambda at: dt.datetime(2024, 1, 1 + at, tzinfo=_ZONE)),
    "string": (pa.string(), lambda at: ["", "10", "9", "Z", "a", "z", "é", "€", "\U0001f600"][at % 9]),
    "binary": (pa.binary(), lambda at: bytes([at % 4 * 80, at])),
}
KEYS = ("int64", "int32", "double", "string", "composite", "timestamp")


def _ordered(kind: str) -> list[Any]:
    """Twelve values or fewer of a sequence type in their order."""
    _, value_of = SEQUENCES[kind]
    values = {repr(value_of(at)): value_of(at) for at in range(12)}.values()
    return sorted(values, key=lambda value: value.encode() if isinstance(value, str) else value)


_change = st.tuples(
    st.sampled_from(["upsert", "upsert", "delete"]),
    st.integers(0, 400),
    st.integers(0, 11),
    st.integers(1, 40),
)
_batch = st.tuples(
    st.sampled_from(["sequenced", "sequenced", "sequenced", "plain", "replay"]),
    st.lists(_change, max_size=20),
)


_cases = given(
    data=st.data(),
    batches=st.lists(_batch, min_size=1, max_size=6),
    key=st.sampled_from(KEYS),
    memory=st.sampled_from([1 << 12, 1 << 15, 1 << 28]),
    hash_bits=st.sampled_from([2, 64]),
    space=st.sampled_from([3, 30, 401]),
)


@settings(max_examples=3)
@_cases
@pytest.mark.parametrize("kind", SEQUENCES)
def test_equals_the_model(kind: str, tmp_path_factory: pytest.TempPathFactory, **drawn: Any) -> None:
    _check(kind, tmp_path_factory.mktemp("m"), **drawn)


@pytest.mark.slow
@settings(max_examples=150)
@_cases
@pytest.mark.parametrize("kind", SEQUENCES)
def test_equals_the_model_in_many_cases(
    kind: str, tmp_path_factory: pytest.TempPathFactory, **drawn: Any
) -> None:
    _check(kind, tmp_path_factory.mktemp("m"), **drawn)


def _check(
    kind: str,
    path: Path,
    data: st.DataObject,
    batches: list[tuple[str, list[tuple[str, int, int, int]]]],
    key: str,
    memory: int,
    hash_bits: int,
    space: int,
) -> None:
    values = _ordered(kind)
    start = [(at % space, "old" * (at % 7)) for at in data.draw(st.lists(st.integers(0, 400), max_size=60))]
    model = Model(start)
    master = build_master(
        as_rows(start, key), list(key_table([], key).column_names), path, page_bytes=4096, hash_bits=hash_bits
    )
    applied: list[pa.Table] = []
    for number, (what, drawn) in enumerate(batches):
        batch = [
            Change(operation, (at + offset) % space, f"{number} {at}", values[rank % len(values)], rank)
            for operation, at, rank, many in drawn
            for offset in range(many)
        ]
        table = as_changes(batch, key, SEQUENCES[kind][0])
        before = multiset(rows_of(master))
        older = master
        if what == "plain":
            model.apply_plainly(batch)
            master = master.apply(table.drop_columns(["changed", "tie"]), memory=memory)
        elif what == "replay" and applied:
            at = data.draw(st.integers(0, len(applied) - 1))
            master = Master.open(path).apply(applied[at], ("feed", at), sequence="changed", memory=memory)
            assert master.version == older.version
        else:
            by_tie = data.draw(st.booleans())
            model.apply(batch, values, by_tie=by_tie)
            master = master.apply(
                table if by_tie else table.drop_columns("tie"),
                ("feed", len(applied)),
                sequence="changed",
                order_by="tie" if by_tie else (),
                memory=memory,
            )
            applied.append(table)
        master.verify()
        assert multiset(rows_of(master)) == multiset(as_rows(model.rows(), key))
        assert latest_rows(master, key, pa.array(values, SEQUENCES[kind][0])) == model.latest
        assert multiset(rows_of(older)) == before
    assert Master.open(path).vacuum(keep=100).files == 0
    Master.open(path).vacuum(keep=1)
    Master.open(path).verify()
    left = [name for name in files_below(path) if name.endswith((".run", ".keys"))]
    assert left == []
