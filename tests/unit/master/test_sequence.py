"""The greatest value of the sequence column wins, in whatever order batches arrive."""

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin.errors import OptionError, SchemaError
from adjoin.master import apply as apply_module
from adjoin.master.master import Master
from adjoin.master.versions import Home
from tests.unit.master.sequenced import (
    Change,
    Model,
    as_changes,
    as_rows,
    key_table,
    latest_rows,
    latest_table,
)
from tests.unit.master.tables import build_master, files_below, multiset, rows_of, typed_column

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
KEY_TYPES = (
    "int8",
    "uint64",
    "half",
    "float",
    "double",
    "decimal128",
    "decimal256",
    "bool",
    "large_string",
    "binary",
    "large_binary",
    "fixed_binary",
    "date32",
    "date64",
    "time32",
    "time64",
    "timestamp_tz",
    "duration",
)
KEYS = ("int64", "int32", "double", "string", "composite", "timestamp")


def _ordered(kind: str) -> list[Any]:
    """At most twelve values of a sequence type, in ascending order."""
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
    st.sampled_from(["sequenced", "sequenced", "sequenced", "plain", "replay", "compact"]),
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
def test_the_result_is_that_of_the_model(
    kind: str, tmp_path_factory: pytest.TempPathFactory, **drawn: Any
) -> None:
    _check(kind, tmp_path_factory.mktemp("m"), **drawn)


@pytest.mark.slow
@settings(max_examples=150)
@_cases
@pytest.mark.parametrize("kind", SEQUENCES)
def test_the_result_is_that_of_the_model_in_many_cases(
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
        elif what == "compact":
            master = master.compact()
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[dt.datetime]:
    """The current time, which tests set."""
    now = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    monkeypatch.setattr(apply_module, "now_utc", lambda: now[0])
    return now


def _feed(*changes: tuple[str, int, str, Any], type_: pa.DataType | None = None) -> pa.Table:
    batch = [Change(operation, key, value, changed, 0) for operation, key, value, changed in changes]
    return as_changes(batch, "int64", type_ or pa.int64()).drop_columns("tie")


def _values(master: Master) -> dict[int, str]:
    return {row["key"]: row["value"] for row in rows_of(master).to_pylist()}


def _start(path: Path, rows: int = 3) -> Master:
    return build_master(as_rows([(key, "old") for key in range(rows)], "int64"), "key", path, page_bytes=4096)


def test_a_late_change_does_not_win(tmp_path: Path) -> None:
    """A change of January 1 arrives after one of January 2, or after a delete, even of a missing key."""
    master = _start(tmp_path / "m")
    first = _feed(("upsert", 0, "second", 2), ("delete", 1, "", 2), ("delete", 9, "", 2))
    late = _feed(("upsert", 0, "first", 1), ("upsert", 1, "first", 1), ("upsert", 9, "first", 1))
    master = master.apply(first, sequence="changed").apply(late, sequence="changed")
    assert _values(master) == {0: "second", 2: "old"}
    again = _feed(("delete", 0, "", 2), ("upsert", 1, "again", 2), ("upsert", 9, "again", 3))
    assert _values(master.apply(again, sequence="changed")) == {1: "again", 2: "old", 9: "again"}


def test_late_changes_commit_nothing_without_a_txn(tmp_path: Path) -> None:
    master = _start(tmp_path / "m").apply(_feed(("delete", 7, "", 5)), sequence="changed")
    assert master.version == 2
    before = files_below(tmp_path)
    late = _feed(("upsert", 7, "late", 4))
    assert master.apply(late, sequence="changed").version == 2
    assert files_below(tmp_path) == before
    assert master.apply(late, "late", sequence="changed").version == 3


def test_the_sequence_may_be_a_column_of_the_master(tmp_path: Path) -> None:
    table = pa.table({"key": [1, 2], "changed": pa.array([5, 5], pa.int32())})
    master = build_master(table, "key", tmp_path / "m")
    step = pa.table({"_op": ["upsert", "upsert"], "key": [1, 1], "changed": pa.array([9, 7], pa.int64())})
    master = master.apply(step, sequence="changed", order_by="changed")
    late = pa.table({"_op": ["upsert", "delete"], "key": [1, 2], "changed": [8, 1]})
    assert rows_of(master.apply(late, sequence="changed")).to_pylist() == [{"key": 1, "changed": 9}]


def test_changes_without_a_sequence_leave_the_records_alone(tmp_path: Path) -> None:
    master = _start(tmp_path / "m").apply(_feed(("upsert", 0, "five", 5)), sequence="changed")
    recorded = latest_table(master)
    master = master.apply(_feed(("delete", 0, "", 9), ("upsert", 1, "plain", 9)).drop_columns("changed"))
    assert latest_table(master) == recorded
    late = _feed(("upsert", 0, "four", 4), ("upsert", 1, "one", 1))
    assert _values(master.apply(late, sequence="changed")) == {1: "one", 2: "old"}


@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        (_feed(("upsert", 1, "x", None)), SchemaError, "'changed' has 1 nulls"),
        (
            _feed(("insert", 1, "x", 1)),
            OptionError,
            "_op='insert' cannot be used with a sequence: .* give 'upsert'",
        ),
        (_feed(("upsert", 1, "x", math.nan), type_=pa.float64()), SchemaError, "'changed' has NaN"),
        (_feed(("upsert", 1, "x", True), type_=pa.bool_()), SchemaError, "unsupported type bool for the seq"),
        (_feed(("upsert", 1, "x", [1]), type_=pa.list_(pa.int8())), SchemaError, "unsupported type list"),
        (
            _feed(("upsert", 1, "x", 1)).drop_columns("changed"),
            SchemaError,
            "lack the sequence column 'changed'",
        ),
    ],
    ids=["null", "insert", "NaN", "bool", "list", "missing"],
)
def test_changes_whose_sequence_has_no_order_are_refused(
    step: pa.Table, error: type[Exception], match: str, tmp_path: Path
) -> None:
    master = _start(tmp_path / "m")
    before = files_below(tmp_path)
    with pytest.raises(error, match=match):
        master.apply(step, sequence="changed")
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.int8(), pa.int64()),
        (pa.int64(), pa.uint32()),
        (pa.uint8(), pa.uint64()),
        (pa.float16(), pa.float64()),
        (pa.decimal128(22, 2), pa.decimal128(38, 2)),
        (pa.decimal128(22, 2), pa.int8()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
        (pa.large_string(), pa.dictionary(pa.int8(), pa.string())),
        (pa.binary(1), pa.large_binary()),
    ],
    ids=str,
)
def test_later_values_may_have_another_type_of_the_same_kind(
    first: pa.DataType, later: pa.DataType, tmp_path: Path
) -> None:
    master = _start(tmp_path / "m")
    for operation, key, value, type_ in [
        ("upsert", 0, 5, first),
        ("delete", 0, 4, later),
        ("upsert", 1, 5, later),
    ]:
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        text = pa.types.is_large_string(plain) or pa.types.is_string(plain)
        raw = [str(value) if text else str(value).encode() if "binary" in str(plain) else value]
        days = pa.types.is_date(plain)
        values = pa.array([DAY + dt.timedelta(days=value)] if days else raw).cast(plain)
        step = _feed((operation, key, f"{value}", 0)).set_column(3, "changed", values.cast(type_))
        master = master.apply(step, sequence="changed")
    assert _values(master) == {0: "5", 1: "5", 2: "old"}


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.int64(), pa.uint64()),
        (pa.int64(), pa.float64()),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused(first: pa.DataType, later: pa.DataType, tmp_path: Path) -> None:
    master = _start(tmp_path / "m").apply(_feed(("upsert", 0, "x", 1), type_=first), sequence="changed")
    with pytest.raises(SchemaError, match=r"but the recorded values have type .*; cast it to") as error:
        master.apply(_feed(("upsert", 0, "y", 2), type_=later), sequence="changed")
    assert str(later) in str(error.value)
    assert str(first).partition("(")[0] in str(error.value)


def test_another_sequence_column_is_refused(tmp_path: Path) -> None:
    master = _start(tmp_path / "m").apply(_feed(), sequence="changed")
    renamed = _feed(("upsert", 0, "x", 1)).rename_columns({"changed": "at"})
    master = master.apply(renamed, sequence="at")  # nothing has been recorded yet
    with pytest.raises(OptionError, match=r"sequence='changed' cannot be compared .* give sequence='at'"):
        master.apply(_feed(("upsert", 0, "x", 1)), sequence="changed")
    for wrong in ("", 1, ["at"]):
        with pytest.raises(OptionError, match="sequence="):
            master.apply(renamed, sequence=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["", "1 year", "-1 days", 5, dt.timedelta(-1), "days"], ids=str)
def test_invalid_durations_for_tombstones_are_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r'tombstones=.*give a duration such as "30 days"'):
        _start(tmp_path / "m").apply(_feed(), sequence="changed", tombstones=wrong)


def _tombstones(master: Master) -> int:
    table = latest_table(master)
    return 0 if table is None else pc.sum(table["deleted"]).as_py() or 0


def test_expired_tombstones_are_removed_in_bounded_steps(clock: list[dt.datetime], tmp_path: Path) -> None:
    master = _start(tmp_path / "m")
    deletes = _feed(*(("delete", key, "", 5) for key in range(20_000)))
    master = master.apply(deletes, sequence="changed", tombstones="7 days")
    clock[0] += dt.timedelta(days=7)
    kept = master.apply(_feed(("upsert", 1, "late", 4)), "a", sequence="changed", tombstones="7 days")
    assert _values(kept) == {}
    assert _tombstones(kept) == 20_000
    clock[0] += dt.timedelta(seconds=1)
    forever = kept.apply(_feed(("upsert", -1, "x", 4)), sequence="changed", tombstones=None)
    assert _tombstones(forever) == 20_000
    counts, master = [20_000], forever
    while counts[-1]:
        step = _feed(("upsert", -1, "x", 4 + len(counts)))
        before = set(master.index.checksum.tolist())
        master = master.apply(step, sequence="changed", tombstones=dt.timedelta(7))
        counts.append(_tombstones(master))
        assert counts[-1] < counts[-2]
        assert len(before - set(master.index.checksum.tolist())) <= 1
        master.verify()
    assert 3 < len(counts) < 20
    assert latest_table(master).num_rows == 1  # type: ignore[union-attr]
    late = master.apply(_feed(("upsert", 1, "late", 4)), sequence="changed")
    assert _values(late)[1] == "late"


def test_tombstones_never_outnumber_other_records_for_long(clock: list[dt.datetime], tmp_path: Path) -> None:
    """Every hour adds 500 keys and deletes those of the hour before; tombstones are kept for a day."""
    master, most = _start(tmp_path / "m", 0), 0
    for hour in range(100):
        clock[0] += dt.timedelta(hours=1)
        new = [("upsert", 500 * hour + key, "x", hour) for key in range(500)]
        old = [("delete", 500 * (hour - 1) + key, "", hour) for key in range(500)]
        master = master.apply(_feed(*new, *old), sequence="changed", tombstones="24 hours")
        most = max(most, _tombstones(master))
        master.vacuum(keep=1)
    assert 24 * 500 <= most < 2 * 24 * 500
    assert master.rows == 500


def test_a_sweep_removes_only_expired_tombstones(clock: list[dt.datetime], tmp_path: Path) -> None:
    """A sweep removes no record of an existing row, and no younger tombstone."""
    draw = np.random.default_rng(1)
    master, model = _start(tmp_path / "m", 0), dict[int, tuple[str, dt.datetime]]()
    for step in range(40):
        clock[0] += dt.timedelta(days=1)
        keys = np.unique(draw.integers(0, 300, 30)).tolist()
        operations = draw.choice(["upsert", "delete"], len(keys)).tolist()
        feed = _feed(
            *((str(operation), key, "x", step) for operation, key in zip(operations, keys, strict=True))
        )
        master = master.apply(feed, sequence="changed", tombstones="10 days")
        model |= {key: (operation, clock[0]) for operation, key in zip(operations, keys, strict=True)}
        table = latest_table(master)
        assert table is not None
        there = set(table["key_0"].to_pylist())
        young = {
            key
            for key, (operation, at) in model.items()
            if operation == "upsert" or at >= clock[0] - dt.timedelta(days=10)
        }
        assert there == young


def test_records_survive_renaming_the_key_and_the_sequence(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "b"], "changed": [1, 1]})
    master = build_master(table, "key", tmp_path / "m", hash_bits=1)
    step = pa.table({"_op": ["upsert", "delete"], "key": ["a", "b"], "changed": [5, 5]})
    master = master.apply(step, sequence="changed").evolve(
        rename={"key": "id", "changed": "at"}, add={"n": "int"}
    )
    late = pa.table(
        {"_op": ["upsert"] * 2, "id": ["b", "a"], "at": [4, 4], "n": pa.array([4, 4], pa.int32())}
    )
    new = late.set_column(2, "at", pa.array([6, 4]))
    assert rows_of(master.apply(late, sequence="at")).to_pylist() == [{"id": "a", "at": 5, "n": None}]
    master = Master.open(master.path).apply(
        new.append_column("more", pa.array([1, 2])), sequence="at", evolve=True
    )
    master.verify()
    rows = rows_of(master).sort_by("id").to_pylist()
    assert rows == [{"id": "a", "at": 5, "n": None, "more": None}, {"id": "b", "at": 6, "n": 4, "more": 1}]


@pytest.mark.parametrize("kind", [*KEY_TYPES, "uuid", "dictionary"])
def test_keys_of_every_type(kind: str, tmp_path: Path) -> None:
    if kind == "uuid":
        keys = pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([bytes([at] * 16) for at in range(5)], pa.binary(16))
        )
    elif kind == "dictionary":
        keys = pa.array(["a", "b", "c", "d", "e"]).dictionary_encode()
    else:
        keys = typed_column(kind, 40, nulls=False).unique()[:5]
    table = pa.table({"key": keys, "value": ["old"] * len(keys)})
    master = build_master(table, "key", tmp_path / "m", hash_bits=1)
    first = table.append_column(
        "_op", pa.array(["upsert", "delete", "upsert", "upsert", "delete"][: len(keys)])
    )
    master = master.apply(first.append_column("at", pa.array([5] * len(keys))), sequence="at")
    late = table.set_column(1, "value", pa.array(["late"] * len(keys)))
    late = late.append_column("_op", pa.array(["upsert"] * len(keys)))
    newest = master.apply(late.append_column("at", pa.array([4] * len(keys))), "late", sequence="at")
    newest.verify()
    assert newest.version == 3
    assert multiset(rows_of(newest)) == multiset(rows_of(master))
    records = latest_table(newest)
    assert records is not None
    assert records.num_rows == len(keys)


def test_records_survive_a_concurrent_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of both relations are moved after they were read, before the commit."""
    master = _start(tmp_path / "m", 2000)
    for start in range(3, 3000, 250):
        operation = "upsert" if start < 2000 else "delete"
        master = master.apply(
            _feed(*((operation, key, "3", 3) for key in range(start, start + 250, 5))), sequence="changed"
        )
    commit = Home.commit

    def late(home: Home, manifest: Any) -> None:
        monkeypatch.setattr(Home, "commit", commit)
        assert Master.open(home.path).compact().version == manifest.version
        commit(home, manifest)

    monkeypatch.setattr(Home, "commit", late)
    feed = _feed(*(("upsert", key, "new", 2) for key in range(3000)))
    newest = master.apply(feed, ("feed", 9), sequence="changed")
    newest.verify()
    assert newest.version == master.version + 2
    there = [key for key in range(3000) if key < 2000 or key % 5 != 3]
    assert _values(newest) == {key: "3" if key % 5 == 3 else "new" for key in there}
    records = latest_table(newest)
    assert records is not None
    assert records["key_0"].to_pylist() == list(range(3000))
    assert records["sequence"].to_pylist() == [3 if key % 5 == 3 else 2 for key in range(3000)]
    assert newest.vacuum(keep=100).files == 0
