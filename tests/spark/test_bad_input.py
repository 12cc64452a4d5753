"""Errors reach the driver with the cure, after which the query resumes from its checkpoint."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException

import adjoin
from adjoin import AdjoinError, BudgetError, MasterNotFoundError, OptionError, SchemaError
from tests.spark.programs import until
from tests.spark.shop import build, products, read_batches, rows_of, sales, wanted, write_batches

ROWS = 2_000
TABLE = products(ROWS)
SETTING = "spark.adjoin.arena.dir"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> adjoin.Master:
    return build(TABLE, tmp_path_factory.mktemp("bad input") / "master")


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        ([], {"on": "number"}, SchemaError, r"must name the key.*write on=\{"),
        (["id AS number"], {"on": "id"}, SchemaError, "has no column 'id'"),
        (["CAST(id AS string) id"], {}, SchemaError, "int64 in the master but string.*cast the stream"),
        (["CAST(id AS double) id"], {}, SchemaError, "int64 in the master but double.*cast the stream"),
        ([], {"columns": ["price"]}, SchemaError, r"no column 'price'; it has \["),
        (["*", "sale AS amount"], {}, SchemaError, "several columns named 'amount'; rename"),
        (["*", "id"], {}, SchemaError, "several columns named 'id'; rename"),
        (["*", "1 AS _adjoin_report"], {}, OptionError, "'_adjoin_report'.*rename"),
        (["*", "1 AS name", "1 AS name_master"], {}, SchemaError, "'name_master'; choose another suffix="),
        ([], {"memory": "20KB"}, BudgetError, r"give memory=\d+ or more"),
        ([], {"memory": "2MB", "partitions": 64}, BudgetError, "or fewer partitions"),
        ([], {"memory": "plenty"}, OptionError, 'give bytes or a string such as "64MB"'),
        ([], {"partitions": 0}, OptionError, "partitions=0 must be an integer"),
        ([], {"partitions": 1.5}, OptionError, "partitions=1.5 must be an integer"),
        ([], {"partitions": True}, OptionError, "partitions=True must be an integer"),
        ([], {"algorithm": "merge"}, OptionError, "algorithm='merge' is not one of ssij"),
        ([], {"route": "hash"}, OptionError, "route='hash' is not one of range, none"),
        ([], {"how": "outer"}, OptionError, "how='outer' is not one of inner"),
        ([], {"deadline": "soon"}, SchemaError, "no column 'soon' for the deadline"),
        ([], {"version": 7}, AdjoinError, "version 7 of .* never committed"),
    ],
)
def test_invalid_arguments_are_rejected_before_anything_runs(spark, master, change, options, error, message):
    df = spark.createDataFrame(sales(10, 10))
    with pytest.raises(error, match=message):
        adjoin.enrich(df.selectExpr(*change) if change else df, master, **{"on": "id", **options})


def test_only_a_dataframe_is_enriched(master):
    with pytest.raises(OptionError, match="df is a Table; enrich takes a Spark DataFrame"):
        adjoin.enrich(sales(10, 10), master, on="id")


def test_masters_with_the_same_name_are_distinguished(spark, tmp_path):
    """Two directories with the same name, whose columns have the same names too."""
    first, second = products(ROWS), products(ROWS, step=3, note="second")
    for place, table in (("one", first), ("two", second)):
        (tmp_path / place).mkdir()
        build(table, tmp_path / place / "products").close()
    stream = sales(500, 2 * ROWS)
    df = adjoin.enrich(spark.createDataFrame(stream), tmp_path / "one" / "products", on="id")
    result = adjoin.enrich(df, tmp_path / "two" / "products", on="id")
    both = first.join(stream, "id", join_type="inner").select(["id", "sale", "amount", "name", "note"])
    assert rows_of(result) == wanted(both, second)


def test_a_master_rebuilt_at_the_same_path_replaces_the_old_one(spark, tmp_path):
    stream = sales(300, 2 * ROWS)
    for note in ("old", "new"):
        table = products(ROWS, note=note)
        build(table, tmp_path / "master").close()
        result = adjoin.enrich(spark.createDataFrame(stream), tmp_path / "master", on="id")
        assert rows_of(result) == wanted(stream, table)
        shutil.rmtree(tmp_path / "master")


class Query:
    """A streaming query that must fail, be cured, and resume."""

    def __init__(self, spark: Any, work: Path) -> None:
        self.spark, self.work = spark, work
        self.batches = [sales(400, 2 * ROWS, seed) for seed in (1, 2)]
        build(TABLE, work / "master").close()
        write_batches(self.batches[:1], work / "in")

    def start(self, **options: Any):
        stream = read_batches(self.spark, self.work / "in")
        result = adjoin.enrich(stream, self.work / "master", on="id", how="left", **options)
        writer = result.writeStream.format("parquet").option("checkpointLocation", str(self.work / "state"))
        return writer.start(str(self.work / "out"))

    def add_batch(self) -> None:
        write_batches(self.batches[1:], self.work / "more")
        (self.work / "more" / "00000.parquet").rename(self.work / "in" / "00001.parquet")

    def run(self, **options: Any) -> None:
        """Until all input is used up."""
        query = self.start(**options)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def fails(self, **options: Any) -> str:
        """The error on the driver, at the start or when the first micro-batch has failed."""
        with pytest.raises((StreamingQueryException, AdjoinError)) as caught:
            self.run(**options)
        return f"{caught.typename}: {caught.value}"

    def assert_rows(self, table: pa.Table = TABLE) -> None:
        found = rows_of(self.spark.read.parquet(str(self.work / "out")))
        assert found == wanted(pa.concat_tables(self.batches), table, how="left")


@pytest.fixture
def query(spark, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def test_a_master_removed_before_the_start(query):
    away = query.work / "away"
    (query.work / "master").rename(away)
    with pytest.raises(MasterNotFoundError, match=r"there is no master at .*; build one with Master\.build"):
        query.run()
    away.rename(query.work / "master")
    query.add_batch()
    query.run()
    query.assert_rows()


def test_a_master_removed_while_the_query_runs(query):
    running, away = query.start(), query.work / "away"
    try:
        running.processAllAvailable()
        (query.work / "master").rename(away)
        query.add_batch()
        with pytest.raises(StreamingQueryException, match=r"there is no master at .*; build one with"):
            running.processAllAvailable()
    finally:
        running.stop()
    away.rename(query.work / "master")
    query.run()
    query.assert_rows()


def _first(directory: Path) -> Path:
    return min(path for path in directory.iterdir() if path.is_file())


DAMAGES: dict[str, Callable[[Path], Path]] = {
    "page": lambda master: _first(master / "data"),
    "index": lambda master: _first(master / "index"),
}


@pytest.mark.parametrize("part", DAMAGES)
def test_a_damaged_master(query, part):
    path = DAMAGES[part](query.work / "master")
    whole = path.read_bytes()
    at = len(whole) // 2
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    message = query.fails()
    assert re.search(rf"CorruptionError: .*{path.name}.*(restore|build)", message), message
    path.write_bytes(whole)
    query.add_batch()
    query.run()
    query.assert_rows()


def test_a_manifest_damaged_while_the_query_is_down(query):
    query.run()
    path = _first(query.work / "master" / "versions")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    query.add_batch()
    with pytest.raises(adjoin.CorruptionError, match=rf"{path.name}.*restore"):
        query.run()
    path.write_bytes(whole)
    query.run()
    query.assert_rows()


def test_a_missing_file_of_the_master(query):
    path = _first(query.work / "master" / "data")
    path.rename(query.work / "aside")
    message = query.fails()
    assert re.search(rf"CorruptionError: .*{path.name}", message), message
    (query.work / "aside").rename(path)
    query.add_batch()
    query.run()
    query.assert_rows()


def test_a_master_that_has_outgrown_its_budget(query):
    with pytest.raises(BudgetError) as refused:
        query.start(memory=1, partitions=2)
    enough = _named_memory(str(refused.value))
    query.run(memory=enough, partitions=2)
    more = products(ROWS * 20, note="more").append_column("_op", pa.array(["upsert"] * ROWS * 20))
    running = query.start(memory=enough, partitions=2)
    try:
        adjoin.Master.open(query.work / "master").apply(more).close()
        query.add_batch()
        with pytest.raises(StreamingQueryException, match=r"BudgetError: .*or fewer partitions") as caught:
            running.processAllAvailable()
    finally:
        running.stop()
    query.run(memory=_named_memory(str(caught.value)), partitions=2)
    rows = rows_of(query.spark.read.parquet(str(query.work / "out")))
    old, new = TABLE, more.drop(["_op"])
    assert rows == wanted(query.batches[0], old, how="left") + wanted(query.batches[1], new, how="left")


def _named_memory(message: str) -> int:
    found = re.search(r"give memory=(\d+) or more", message)
    assert found, message
    return int(found[1])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield path
    finally:
        until(lambda: not subprocess.run(["umount", path], check=False).returncode, what="an unused disk")


@pytest.fixture
def page_files_at(spark) -> Iterator[Callable[[Path], None]]:
    yield lambda path: spark.conf.set(SETTING, str(path))
    spark.conf.unset(SETTING)


def test_no_room_for_page_files(query, page_files_at, small_disk):
    page_files_at(small_disk)
    message = query.fails(memory="4MB", partitions=2)
    assert re.search(rf"ArenaError: .*{small_disk}.*No space left on device.*{SETTING}", message), message
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    query.add_batch()
    query.run(memory="4MB", partitions=2)
    query.assert_rows()
    # Its query has ended, so its page files are removed, even if a worker had them mapped.
    until(lambda: not any(small_disk.iterdir()), what="a disk without files")
    until(lambda: os.statvfs(small_disk).f_bfree == os.statvfs(small_disk).f_blocks, what="a free disk")


def test_a_file_in_place_of_the_directory_for_page_files(spark, query, page_files_at):
    (query.work / "file").touch()
    page_files_at(query.work / "file")
    static = adjoin.enrich(spark.createDataFrame(query.batches[0]), query.work / "master", on="id")
    with pytest.raises(PythonException, match=f"ArenaError: .*{SETTING}"):
        static.collect()
    message = query.fails()
    assert re.search(rf"ArenaError: .*{query.work / 'file'}.*{SETTING}", message), message
    page_files_at(query.work / "pages")
    query.add_batch()
    query.run()
    query.assert_rows()
    until(lambda: not any((query.work / "pages").iterdir()), what="an empty directory")


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Makes a directory read-only, even for root."""
    mounted: list[Path] = []

    def mount(path: Path) -> None:
        if subprocess.run(["mount", "--bind", path, path], check=False, capture_output=True).returncode:
            pytest.skip("a directory cannot be mounted here")
        mounted.append(path)
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_a_master_that_cannot_be_written(query, page_files_at, read_only):
    """The error names the cure; then the query runs, and its page files are removed when it has ended."""
    page_files_at(query.work / "pages")
    read_only(query.work / "master")
    message = query.fails()
    assert re.search(r"StorageError: .*Read-only file system.*records=PATH", message), message
    query.add_batch()
    query.run(records=(query.work / "records").as_uri())
    query.assert_rows()
    until(lambda: not any((query.work / "pages").iterdir()), what="an empty directory")
    assert len(list((query.work / "records").rglob("*.json"))) == 2
