"""Batch DataFrames are joined completely."""

import numpy as np
import pyarrow as pa
import pytest
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


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_equality(sides, how):
    left, right = sides
    found = adjoin.join(left, right, on="k", how=how, memory="4MB")
    expected = left.join(right.withColumnRenamed("x", "x_right"), on="k", how=how)
    assert found.columns == expected.columns
    key = F.coalesce("k", F.lit(-1)).alias("k")
    names = [F.coalesce(name, F.lit(-1)) for name in ("left_row", "right_row") if name in found.columns]
    assert rows_of(found, key, *names) == rows_of(expected, key, *names)


@pytest.mark.parametrize("how", ["inner", "right"])
def test_band(sides, how):
    left, right = sides
    found = adjoin.join(left, right, on="x", within=0.001, how=how, memory="4MB")
    renamed = right.toDF(*(f"{name}_2" for name in right.columns))
    # A sum of floats is rounded, so the condition is written as the join computes it.
    expected = left.join(renamed, F.expr("x_2 between x - 0.001D and x + 0.001D"), how)
    assert rows_of(found.fillna(-1), "left_row", "right_row") == rows_of(
        expected.fillna(-1), "left_row", "right_row_2"
    )


def test_a_bound_on_time(sides):
    left, right = sides
    found = adjoin.join(
        left, right, on="k", time=("left_at", "right_at"), before="1 minute", after="5 minutes", memory="4MB"
    )
    bound = "right_at between left_at - interval 1 minute and left_at + interval 5 minutes"
    expected = left.join(right.drop("x"), on="k").filter(bound)
    assert rows_of(found, "left_row", "right_row") == rows_of(expected, "left_row", "right_row")
    assert expected.count() > 0
