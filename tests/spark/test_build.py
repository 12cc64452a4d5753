"""Masters built from DataFrames equal those built from pyarrow tables."""

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from adjoin import Master, MasterExistsError, NullKeyError, OptionError, SchemaError, StorageError
from adjoin.master.vacuum import Retention, Vacuumed, vacuum
from adjoin.master.versions import Home
from adjoin.spark import build as build_module
from adjoin.spark import jobs
from adjoin.spark.ranges import Survey
from tests.spark import programs
from tests.spark.failing_jobs import failing_after
from tests.spark.on_retries import ROWS, changed, table
from tests.spark.programs import read_json
from tests.unit.master.tables import files_below, multiset, products, rows_of

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
KEYS: dict[str, Callable[[int], Any]] = {
    "int32": lambda number: pa.scalar(number - 500, pa.int32()).as_py(),
    "double": lambda number: [0.0, -0.0, float("nan")][number] if number < 3 else (number - 500) / 7,
    "text": lambda number: f"key {number}",
    "long decimal": lambda number: Decimal(number) * 10**22,
    "moment": lambda number: EPOCH + datetime.timedelta(seconds=number),
}
TYPES = {
    "int32": pa.int32(),
    "double": pa.float64(),
    "text": pa.string(),
    "long decimal": pa.decimal128(30, 0),
    "moment": pa.timestamp("us", "UTC"),
}


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "_ROWS_PER_TASK", 400)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("kind", KEYS)
def test_pages_hold_the_same_rows_in_the_same_order(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    numbers = np.random.default_rng(3).permutation(np.repeat(np.arange(1000), 2))
    rows = pa.table(
        {
            "key": pa.array([KEYS[kind](int(number)) for number in numbers], TYPES[kind]),
            "value": [f"row {number}" for number in range(len(numbers))],
        }
    )
    df = spark.createDataFrame(rows).repartition(3)
    built = Master.build(df, key="key", path=tmp_path / "spark", page_bytes=4096, filter_bits=8)
    wanted = Master.build(rows, key="key", path=tmp_path / "arrow", page_bytes=4096, filter_bits=8)
    _assert_same(built, wanted)
    assert len(built.files) > 3


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_keys_repeated_over_many_pages(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    rows = products(3000, space=7)
    df = spark.createDataFrame(rows).repartition(partitions)
    built = Master.build(df, key="id", path=tmp_path / "spark", page_bytes=4096, memory=1 << 16)
    _assert_same(built, Master.build(rows, key="id", path=tmp_path / "arrow", page_bytes=4096))
    assert built.pages > 3 * 7
    assert 1 < len(built.files) <= 7


@pytest.mark.usefixtures("small_tasks")
def test_composite_keys_and_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(2000).selectExpr(
        "CAST(id % 50 AS string) AS shop",
        "CAST(id AS int) AS `odd ``name``.x`",
        "array(id, null) AS many",
        "map('k', struct(id AS a, timestamp_seconds(id) AS t)) AS nested",
        "IF(id % 3 = 0, null, x'00ff') AS bytes",
    )
    key = ["shop", "odd `name`.x"]
    built = Master.build(df, key=key, path=tmp_path / "spark", filter_bits=8)
    assert built.schema.field("nested").type.item_type.field("t").type == pa.timestamp("us", "UTC")
    assert all(field.nullable for field in built.schema)
    wanted = Master.build(df.toArrow().cast(built.schema), key=key, path=tmp_path / "arrow", filter_bits=8)
    _assert_same(built, wanted)


def test_an_empty_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    built = Master.build(spark.range(0), key="id", path=tmp_path / "m", filter_bits=8)
    built.verify()
    assert (built.rows, built.pages, built.version) == (0, 0, 1)
    assert built.filter is not None


@pytest.mark.usefixtures("small_tasks")
def test_null_keys_are_counted_or_dropped(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(1000).selectExpr("IF(id % 10 = 0, null, id) AS key", "id AS value")
    with pytest.raises(NullKeyError, match=r"100 of 1000 rows have a null in the key \['key'\]"):
        Master.build(df, key="key", path=tmp_path / "m")
    assert files_below(tmp_path / "m") == [str(tmp_path / "m" / "writers.lock")]
    built = Master.build(df, key="key", path=tmp_path / "m", null_keys="drop")
    built.verify()
    assert built.rows == 900


def test_bad_sources_are_rejected_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "m"
    with pytest.raises(OptionError, match="streaming DataFrame"):
        Master.build(spark.readStream.format("rate").load(), key="value", path=path)
    with pytest.raises(SchemaError, match="interval year to month"):
        Master.build(spark.sql("SELECT 1 AS id, interval '1-2' year to month AS m"), key="id", path=path)
    with pytest.raises(SchemaError, match="missing"):
        Master.build(spark.range(3), key="missing", path=path)
    assert not path.exists()
    Master.build(spark.range(3), key="id", path=path)
    with pytest.raises(MasterExistsError):
        Master.build(spark.range(3), key="id", path=path)


def test_a_failed_job_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "run", failing_after("/somewhere: no space; make room"))
    with pytest.raises(StorageError, match=r"^/somewhere: no space; make room$"):
        Master.build(spark.range(1000), key="id", path=tmp_path / "m", filter_bits=8)
    assert files_below(tmp_path / "m") == [str(tmp_path / "m" / "writers.lock")]


def test_vacuum_spares_files_that_executors_have_just_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def run(df: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> list[Any]:
        results = jobs.run(df, work)
        seen.append(vacuum(Home(tmp_path / "m"), Retention(1)))
        return results

    monkeypatch.setattr(build_module, "run", run)
    Master.build(spark.range(1000), key="id", path=tmp_path / "m").verify()
    assert seen == [Vacuumed((), 0, 0)]


@pytest.mark.slow
def test_failed_attempts_are_retried_and_leave_nothing_behind(tmp_path: Path) -> None:
    programs.run("on_retries", tmp_path, work=tmp_path / "logs")
    failed = read_json(tmp_path / "report.json")
    assert failed["building"] == 3
    assert failed["applying"] >= 2
    master = Master.open(tmp_path / "master")
    master.verify()
    new = changed().drop_columns("_op")
    old = [row for row in table().to_pylist() if row["id"] % 2]
    assert multiset(rows_of(master)) == multiset(
        pa.concat_tables([new, pa.Table.from_pylist(old, new.schema)])
    )
    assert multiset(rows_of(master.at(1))) == multiset(table())
    assert master.rows == ROWS + ROWS // 2
    assert master.vacuum(keep=2).files == 0


@given(
    parts=st.lists(st.tuples(st.lists(st.integers(-5, 40), max_size=30), st.integers(1, 9)), max_size=4),
    wanted=st.integers(1, 8),
)
def test_cuts_balance_the_rows(parts: list[tuple[list[int], int]], wanted: int) -> None:
    sample = np.concatenate([np.empty(0, np.int64), *(np.array(keys, np.int64) for keys, _ in parts)])
    weights = np.concatenate([np.empty(0), *(np.full(len(keys), float(weight)) for keys, weight in parts)])
    cuts = Survey(0, 0, 0, sample, weights).cuts(wanted)
    assert len(cuts) < wanted or len(sample) == 0 == len(cuts)
    assert (np.diff(cuts) > 0).all()
    heaviest = max((weights[sample == key].sum() for key in sample), default=0)
    shares = np.bincount(np.searchsorted(cuts, sample, "right"), weights)
    assert shares.max(initial=0) <= weights.sum() / wanted + heaviest


def _assert_same(built: Master, wanted: Master) -> None:
    built.verify()
    built.index.check_invariants()
    assert built.schema.equals(wanted.schema)
    assert multiset(rows_of(built)) == multiset(rows_of(wanted))
    assert _encoded(built) == _encoded(wanted)
    if wanted.filter is not None:
        assert built.filter is not None
        assert np.array_equal(built.filter.words, wanted.filter.words)
        assert built.filter.capacity == wanted.filter.capacity


def _encoded(master: Master) -> list[int]:
    rows = rows_of(master).combine_chunks().to_batches()
    return [
        int(key) for batch in rows for key in master.codec.encode([batch[name] for name in master.key])[0]
    ]


def test_strings_that_are_not_utf8(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql("SELECT 1L AS id, CAST(X'FF61' AS string) AS v, array(CAST(X'FE' AS string)) AS vs")
    master = Master.build(df, key="id", path=tmp_path / "master")
    master.verify()
