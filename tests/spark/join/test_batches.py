"""Batch DataFrames are joined completely."""

from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import adjoin

ROWS = 3_000


@pytest.fixture(scope="module")
def sides(spark):
    """Rows with duplicate, unmatched and null keys."""
    chance = np.random.default_rng(1)
    frames = []
    for name in ("left", "right"):
        keys = pa.array(chance.integers(0, ROWS // 2, ROWS), mask=chance.random(ROWS) < 0.05)
        columns = {
            "k": keys,
            "x": pa.array(chance.normal(size=ROWS)),
            f"{name}_row": pa.array(np.arange(ROWS)),
        }
        times = pa.array(1_767_225_600_000_000 + chance.integers(0, 10**9, ROWS), pa.timestamp("us", "UTC"))
        frames.append(spark.createDataFrame(pa.table({**columns, f"{name}_at": times})))
    return frames


def rows_of(df, *names):
    return sorted(tuple(row) for row in df.select(*names).collect())


SLOW_HOWS = [pytest.param(how, marks=pytest.mark.slow) for how in ("left", "right", "semi", "anti")]


@pytest.mark.parametrize("how", ["inner", "full", *SLOW_HOWS])
def test_equality(sides, how):
    left, right = sides
    found = adjoin.join(left, right, on="k", how=how, memory="4MB")
    expected = left.join(right.withColumnRenamed("x", "x_right"), on="k", how=how)
    assert found.columns == expected.columns
    key = F.coalesce("k", F.lit(-1)).alias("k")
    names = [F.coalesce(name, F.lit(-1)) for name in ("left_row", "right_row") if name in found.columns]
    assert rows_of(found, key, *names) == rows_of(expected, key, *names)


@pytest.mark.parametrize("how", ["inner", pytest.param("right", marks=pytest.mark.slow)])
def test_band(sides, how):
    left, right = sides
    found = adjoin.join(left, right, on="x", within=0.001, how=how, memory="4MB")
    renamed = right.toDF(*(f"{name}_2" for name in right.columns))
    # A sum of floats is rounded, so the condition is written as the join computes it.
    expected = left.join(renamed, F.expr("x_2 between x - 0.001D and x + 0.001D"), how)
    assert rows_of(found.fillna(-1), "left_row", "right_row") == rows_of(
        expected.fillna(-1), "left_row", "right_row_2"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "within", "bound"),
    [
        ("date_add(date'2026-01-01', cast(k as int))", timedelta(days=2), "interval 2 days"),
        ("cast(k / 7 as decimal(10, 3))", Decimal("1.5"), "1.5BD"),
        ("cast(k as decimal(4, 0))", 2, "2"),
        ("cast(k as smallint)", 2, "2"),
        ("cast(k as float)", 2, "2"),
        ("make_dt_interval(k)", timedelta(days=2), "interval 2 days"),
        ("timestamp_micros(k)", timedelta(microseconds=2), "interval 2 microseconds"),
    ],
    ids=["date", "decimal", "short decimal", "smallint", "float", "interval", "timestamp"],
)
def test_a_band_of_keys_of_every_kind_in_several_buckets(sides, key, within, bound):
    left, right = (df.selectExpr(f"{key} {name}", f"{row}") for df, name, row in named(sides))
    found = adjoin.join(left, right, on={"x": "y"}, within=within, memory="24MB", partitions=3)
    expected = left.join(right, F.expr(f"y between x - {bound} and x + {bound}"))
    rows = rows_of(found, "left_row", "right_row")
    assert rows
    assert rows == rows_of(expected, "left_row", "right_row")


def named(sides):
    """The sides, few rows of each, with names for key and row."""
    names = ("x", "left_row"), ("y", "right_row")
    return [(df.filter(f"{row} < 300"), name, row) for df, (name, row) in zip(sides, names, strict=True)]


def test_a_bound_on_time(sides):
    left, right = sides
    found = adjoin.join(
        left, right, on="k", time=("left_at", "right_at"), before="1 minute", after="5 minutes", memory="4MB"
    )
    bound = "right_at between left_at - interval 1 minute and left_at + interval 5 minutes"
    expected = left.join(right.drop("x"), on="k").filter(bound)
    assert rows_of(found, "left_row", "right_row") == rows_of(expected, "left_row", "right_row")
    assert expected.count() > 0


def test_a_right_column_keeps_its_own_type_and_metadata(spark):
    left = spark.sql("select 1 k, interval '1' day v, 'A' w")
    right = spark.sql("select 1 k, interval '3' hour v, 'a' collate utf8_lcase w")
    right = right.withMetadata("v", {"unit": "hours"})
    found = adjoin.join(left, right, on="k", memory="8MB").schema
    for theirs, ours in (("v", "v_right"), ("w", "w_right")):
        assert found[ours].dataType == right.schema[theirs].dataType
        assert found[ours].metadata == right.schema[theirs].metadata
    assert found["v"].dataType == left.schema["v"].dataType


@pytest.mark.slow
def test_rows_of_eight_megabytes(spark):
    left = spark.sql("select id k, repeat('x', 8000000) c from range(3)")
    right = spark.sql("select id k, repeat('y', 8000000) d from range(1, 4)")
    with pytest.raises(PySparkException, match="block_bytes="):
        adjoin.join(left, right, on="k", memory="64MB", partitions=1).collect()
    found = adjoin.join(left, right, on="k", memory="200MB", partitions=1, block_bytes=8_100_000)
    assert rows_of(found, "k", F.length("c"), F.length("d")) == [
        (1, 8_000_000, 8_000_000),
        (2, 8_000_000, 8_000_000),
    ]
