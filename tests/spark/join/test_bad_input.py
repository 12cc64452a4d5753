"""What is wrong is said by the call, with what to do about it."""

from typing import Any

import pytest

import adjoin
from adjoin import BudgetError, OptionError, SchemaError

SCHEMA = "k long, t timestamp, name string"
BOUND: dict[str, Any] = {"time": ("t", "t"), "before": "0 s", "after": "1 hour"}


@pytest.fixture
def streams(stateful, tmp_path):
    """Two streams with watermarks."""
    (tmp_path / "in").mkdir()
    stream = stateful.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    return stream.withWatermark("t", "1 minute"), stream.withWatermark("t", "2 minutes")


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"on": "missing"}, SchemaError, "missing"),
        ({"on": []}, OptionError, "on="),
        ({"how": "outer"}, OptionError, "outer"),
        ({"how": "left"}, OptionError, "time="),
        ({"how": "full", "time": ("t", "t"), "after": "1 hour"}, OptionError, "before="),
        ({"how": "anti", "time": ("t", "t"), "before": "1 hour"}, OptionError, "after="),
        ({"before": "1 hour"}, OptionError, "time="),
        ({"time": ("t", "t")}, OptionError, "before"),
        ({"time": ("t", "missing"), "after": "1 s"}, SchemaError, "missing"),
        ({"time": ("t", "name"), "after": "1 s"}, SchemaError, "name"),
        ({**BOUND, "after": "soon"}, OptionError, "soon"),
        ({"on": "name", "within": 3}, SchemaError, "hashed"),
        ({"within": -1}, OptionError, "within"),
        ({"within": 1, "between": ("k", "k")}, OptionError, "both"),
        ({"within": 1, "how": "left", **BOUND, "partitions": 4}, OptionError, "partitions"),
        ({"memory": "1KB"}, BudgetError, "memory="),
        ({"memory": "many"}, OptionError, "many"),
        ({"partitions": 0}, OptionError, "partitions"),
        ({"name": ""}, OptionError, "name"),
        ({"suffix": ""}, SchemaError, "suffix"),
        ({"spill": "s3://bucket/spill"}, OptionError, "s3"),
    ],
)
def test_wrong_arguments(streams, options, error, what):
    with pytest.raises(error, match=what):
        adjoin.join(*streams[:2], **{"on": "k", "memory": "8MB", **options})


def test_what_is_not_a_dataframe(streams):
    with pytest.raises(OptionError, match=r"right is a list.*DINER"):
        adjoin.join(streams[0], [], on="k")  # type: ignore[arg-type]


def test_a_stream_and_a_batch(spark, streams):
    with pytest.raises(OptionError, match=r"adjoin\.enrich"):
        adjoin.join(streams[0], spark.range(3).withColumnRenamed("id", "k"), on="k")


def test_an_outer_join_without_watermark(stateful, tmp_path):
    stream = stateful.readStream.schema(SCHEMA).parquet(str(tmp_path))
    with pytest.raises(OptionError, match="withWatermark"):
        adjoin.join(stream, stream.withWatermark("t", "1 second"), "k", "left", **BOUND)


@pytest.mark.parametrize("name", ["providerClass", "rocksdb.boundedMemoryUsage"])
def test_a_state_store_that_is_not_set_up(stateful, streams, name):
    stateful.conf.unset(f"spark.sql.streaming.stateStore.{name}")
    with pytest.raises(OptionError, match=rf"spark\.conf\.set.*{name}"):
        adjoin.join(streams[0], streams[1], on="k")
