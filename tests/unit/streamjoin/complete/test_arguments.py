"""The arguments of joins that return all results at once, and the form of their results."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from adjoin import DINER, AdjoinError, OptionError, SchemaError

LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("u", pa.int64()), ("v", pa.string())])
TIMED = {"time": ("t", "u"), "before": 1, "after": 2}
ZONE = datetime.UTC


def complete(left: pa.Schema = LEFT, right: pa.Schema = RIGHT, **options: Any) -> DINER:
    return DINER(left, right, **{"on": "k", "memory": "1MB", "results": "complete", **options})


def timed(left: pa.DataType, right: pa.DataType, **options: Any) -> DINER:
    schemas = [pa.schema([("k", pa.int64()), (name, type_)]) for name, type_ in (("t", left), ("u", right))]
    return complete(*schemas, **{**TIMED, **options})


def rows(schema: pa.Schema, *values: Any) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def all_of(batches: Any) -> list[Any]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"results": "early", "how": "left"}, 'needs results="complete"'),
        ({"results": "early", **TIMED}, 'need results="complete"'),
        ({"results": "all"}, "results='all'"),
        ({"how": "outer"}, "how='outer' is not one of inner, left, right, full, semi, anti"),
        ({"how": 3}, "how=3"),
        ({"before": 1}, "name them with time="),
        ({"time": ("t", "u")}, "needs before= or after="),
        ({**TIMED, "time": "t"}, "time='t'"),
        ({**TIMED, "time": ("t",)}, "must name a column of the left and one of the right"),
        ({**TIMED, "before": -3}, "leave no time"),
        ({**TIMED, "after": "2 hours"}, "after='2 hours' must be a finite number"),
        ({**TIMED, "after": float("nan")}, "after=nan"),
        ({**TIMED, "after": True}, "after=True"),
    ],
)
def test_wrong_options(options, complaint):
    with pytest.raises(OptionError, match=complaint):
        complete(**options)


@pytest.mark.parametrize("name", [("x", "u"), ("t", "x")])
def test_missing_time_columns(name):
    with pytest.raises(SchemaError, match="has no column 'x'"):
        complete(**{**TIMED, "time": name})


@pytest.mark.parametrize(
    ("left", "right", "complaint"),
    [
        (pa.int64(), pa.uint64(), "cast one"),
        (pa.int64(), pa.timestamp("us"), "cannot be compared"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "cannot be compared"),
        (pa.timestamp("us", "UTC"), pa.date32(), "cannot be compared"),
        (pa.string(), pa.string(), "cannot be a time"),
        (pa.float64(), pa.float64(), "cannot be a time"),
        (pa.time32("s"), pa.time32("s"), "cannot be a time"),
    ],
)
def test_times_that_cannot_be_compared(left, right, complaint):
    with pytest.raises(SchemaError, match=complaint):
        timed(left, right)


NOON = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - columns without a time zone
DAY, QUARTER = datetime.timedelta(days=1), datetime.timedelta(milliseconds=250)
CASES: list[tuple[Any, ...]] = [
    (pa.timestamp("us"), pa.timestamp("ms"), "1 second", "1.5 s", NOON, datetime.timedelta(seconds=1), 1),
    (
        pa.timestamp("s"),
        pa.timestamp("ns"),
        0,
        Decimal("0.25"),
        NOON,
        QUARTER,
        1,
    ),
    (pa.timestamp("s"), pa.timestamp("us"), 0, 0.25, NOON, QUARTER + datetime.timedelta(microseconds=1), 0),
    (pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "UTC"), 0, DAY, NOON.replace(tzinfo=ZONE), DAY, 1),
    (pa.date32(), pa.date32(), "1 hour", "47 hours", NOON.date(), DAY, 1),
    (pa.date32(), pa.date32(), "1 hour", "47 hours", NOON.date(), 2 * DAY, 0),
    (pa.date32(), pa.timestamp("ms"), "0 s", "11 hours", NOON.date(), datetime.timedelta(hours=11), 1),
    (pa.date64(), pa.date32(), None, "1 day", NOON.date(), -100 * DAY, 1),
    (pa.int8(), pa.int64(), 0.5, Decimal("7.5"), 100, 7, 1),
    (pa.uint8(), pa.int16(), 0.5, 7.5, 100, 8, 0),
    (pa.uint64(), pa.uint64(), 0, 3, 2**63 - 1, 3, 1),
    (pa.int64(), pa.int64(), 2**63, None, 2**63 - 1, -(2**63), 1),
    (pa.int64(), pa.int64(), 2**63 - 1, 0, 2**63 - 1, -(2**63), 0),
    (pa.dictionary(pa.int8(), pa.int64()), pa.int64(), 0, 0, 5, 0, 1),
]


@pytest.mark.parametrize(("left", "right", "before", "after", "time", "later", "matches"), CASES)
def test_bounds_are_exact_in_the_finer_unit(left, right, before, after, time, later, matches):
    with timed(left, right, before=before, after=after) as join:
        one, other = (
            pa.schema([("k", pa.int64()), (name, type_)]) for name, type_ in (("t", left), ("u", right))
        )
        other_time = time + later
        if pa.types.is_date(left) and pa.types.is_timestamp(right):
            other_time = datetime.datetime(time.year, time.month, time.day) + later  # noqa: DTZ001
        assert all_of(join.push("left", rows(one, (1, time), (1, None)))) == []
        assert len(all_of(join.push("right", rows(other, (1, other_time), (1, None))))) == matches
        join.check_invariants()


@pytest.mark.parametrize(
    ("type_", "moment", "complaint"),
    [
        (pa.timestamp("us"), NOON.replace(tzinfo=ZONE), "without a time zone"),
        (pa.timestamp("us", "UTC"), NOON, "with a time zone"),
        (pa.timestamp("us"), 5, "must be a datetime"),
        (pa.int64(), NOON, "must be a finite number"),
        (pa.int64(), None, "must be a finite number"),
    ],
)
def test_moments_of_the_wrong_kind(type_, moment, complaint):
    with timed(type_, type_, before=0, after=0) as join, pytest.raises(OptionError, match=complaint):
        join.expire(moment)


def test_methods_say_what_they_need():
    batch = rows(LEFT, (1, 1, "x"))
    with DINER(LEFT, RIGHT, on="k", memory="1MB") as early:
        for call in (
            lambda: early.expire(1),
            lambda: early.expire_rows(1, 1),
            lambda: early.keep_only(1, 1),
            early.newly_matched,
            lambda: early.next_row_number,
            lambda: early.load("left", batch, np.arange(1), np.zeros(1, bool)),
        ):
            with pytest.raises(OptionError, match='needs results="complete"'):
                call()
    with complete() as timeless:
        for call in (
            lambda: timeless.expire(1),
            lambda: timeless.expire_rows(1, 1),
            lambda: timeless.keep_only(1, 1),
        ):
            with pytest.raises(OptionError, match="time="):
                call()
        with pytest.raises(SchemaError, match="a number and a flag for each of the 1 rows"):
            timeless.load("left", batch, np.arange(2), np.zeros(1, bool))
    with complete(**TIMED) as join:
        with pytest.raises(OptionError, match="left_before='a'"):
            join.expire_rows("a", None)  # type: ignore[arg-type]
        list(join.push("left", batch))
        pending = join.push("right", rows(RIGHT, (1, 1, "y")))
        with pytest.raises(AdjoinError, match="exhaust the results"):
            join.keep_only(None, None)
        assert len(all_of(pending)) == 1


@pytest.mark.parametrize(
    ("how", "right_nulls", "left_nulls"), [("left", 1, 0), ("right", 0, 1), ("full", 1, 1)]
)
def test_columns_that_a_result_may_lack_can_be_null(how, right_nulls, left_nulls):
    left = pa.schema([pa.field("k", pa.int64(), False), pa.field("l", pa.int8(), False)])
    right = pa.schema([pa.field("k", pa.int64(), False), pa.field("r", pa.int8(), False)])
    with complete(left, right, how=how) as join:
        assert [field.nullable for field in join.schema] == [False, left_nulls, right_nulls]


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_key_that_stands_once_has_the_key_of_either_side(how):
    left = pa.schema([("k", pa.int16()), ("w", pa.dictionary(pa.int8(), pa.string(), ordered=True))])
    right = pa.schema([("k", pa.int64()), ("w", pa.string()), ("r", pa.int64())])
    with complete(left, right, how=how, on=["k", "w"]) as join:
        assert join.schema.types == [pa.int64(), pa.string(), pa.int64()]
        ordered = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), ["a", "b"], ordered=True)
        list(
            join.push(
                "left", pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int16()), ordered], schema=left)
            )
        )
        pairs = all_of(
            join.push("right", rows(right, (1, "b", 10), (2, "c", 11), (1 << 40, "d", 12), (None, "e", 13)))
        )
        assert pairs == [(1, "b", 10)]
        lonely = [(2, "a", None)] if how == "full" else []
        assert sorted(all_of(join.finish()), key=str) == sorted(
            [*lonely, (2, "c", 11), (1 << 40, "d", 12), (None, "e", 13)], key=str
        )


def test_a_key_that_no_type_holds_for_both_sides_is_refused():
    left, right = (pa.schema([("k", type_)]) for type_ in (pa.int64(), pa.uint64()))
    with complete(left, right) as join:
        assert join.schema.types == [pa.int64()]
    with pytest.raises(SchemaError, match="no result column can hold both"):
        complete(left, right, how="full")


def test_columns_and_suffix():
    with complete(how="semi", columns=["v"]) as semi:
        assert semi.schema.names == ["v"]
    with complete(how="anti") as anti:
        assert anti.schema.equals(LEFT)
    with complete(how="full", columns=["u", "v_r"], suffix="_r") as full:
        assert full.schema.names == ["u", "v_r"]
        list(full.push("left", rows(LEFT, (1, 2, "x"))))
        list(full.push("right", rows(RIGHT, (2, 3, "y"))))
        assert sorted(all_of(full.finish()), key=str) == [(3, "y"), (None, None)]
    renamed = LEFT.append(pa.field("v_right", pa.int8()))
    with complete(renamed, how="semi") as join:
        assert join.schema.equals(renamed)


def test_run_returns_rows_without_a_partner_at_the_end():
    with complete(how="left") as join:
        items = [("left", rows(LEFT, (1, 0, "a"), (2, 0, "b"))), ("right", rows(RIGHT, (1, 0, "c")))]
        assert sorted(all_of(join.run(items))) == [(1, 0, "a", 0, "c"), (2, 0, "b", None, None)]
        metrics = join.metrics()
        assert metrics["rows_out"] == metrics["results_online"] + metrics["rows_unmatched"] == 2
        assert metrics["results_cleanup"] == metrics["results_reactive"] == 0
