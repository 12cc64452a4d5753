"""Streaming queries: rows, versions, replays, warm pages, metrics."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import adjoin
from adjoin import EnrichListener, EnrichProgress, Master
from tests.spark.programs import until
from tests.spark.shop import build, products, read_batches, rows_of, sales, wanted, write_batches


class Sink:
    """Keeps the rows of every micro-batch; a repeated one replaces its rows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(self.directory / f"{batch_id:05d}"))

    def rows(self, spark, batch_id: int):
        return rows_of(spark.read.parquet(str(self.directory / f"{batch_id:05d}")))


class ChangesAfterSecond(Sink):
    """Some products change once the second micro-batch is written."""

    def __init__(self, directory: Path, master_path: Path) -> None:
        super().__init__(directory)
        self.master_path = master_path

    def write(self, batch: DataFrame, batch_id: int) -> None:
        super().write(batch, batch_id)
        if batch_id == 1:
            Master.open(self.master_path).apply(changed(10, "v2"), txn="after the second")


def run(result: DataFrame, sink: Sink, checkpoint: Path, **options):
    """Run the query until all input is used up, and stop it."""
    writer = result.writeStream.foreachBatch(sink.write).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def changed(rows: int, note: str) -> pa.Table:
    return products(rows, note=note).append_column("_op", pa.array(["upsert"] * rows))


@pytest.mark.parametrize("route", ["range", "none"])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_every_kind_of_join(spark, tmp_path, how, route):
    table, batches = products(2_000), [sales(700, 5_000, seed) for seed in (1, 2)]
    master = build(table, tmp_path / "master")
    write_batches(batches, tmp_path / "in")
    sink = Sink(tmp_path / "out")
    stream = read_batches(spark, tmp_path / "in")
    run(adjoin.enrich(stream, master, on="id", how=how, route=route), sink, tmp_path / "checkpoint")
    for number, batch in enumerate(batches):
        assert sink.rows(spark, number) == wanted(batch, table, how=how)


def test_every_micro_batch_sees_the_newest_version_and_again_when_it_is_replayed(spark, tmp_path):
    batches = [sales(400, 600, seed) for seed in range(3)]
    build(products(300, note="v1"), tmp_path / "master").close()
    sink, checkpoint = Sink(tmp_path / "out"), tmp_path / "checkpoint"
    (tmp_path / "in").mkdir()
    for number, batch in enumerate(batches):
        write_batches([batch] * (number + 1), tmp_path / "in")
        result = adjoin.enrich(read_batches(spark, tmp_path / "in"), tmp_path / "master", on="id")
        run(result, sink, checkpoint)
        Master.open(tmp_path / "master").apply(changed(300, f"v{number + 2}")).vacuum(keep=1)
    for number in range(3):
        assert sink.rows(spark, number) == wanted(batches[number], products(300, note=f"v{number + 1}"))
    last = sink.rows(spark, 2)
    shutil.rmtree(sink.directory / "00002")
    for log in (checkpoint / "commits").glob("*2*"):
        log.unlink()
    result = adjoin.enrich(read_batches(spark, tmp_path / "in"), tmp_path / "master", on="id")
    run(result, sink, checkpoint)
    assert sink.rows(spark, 2) == last


def test_enrich_inside_foreach_batch_sees_one_version_per_micro_batch(spark, tmp_path):
    batch = sales(300, 400)
    build(products(200, note="v1"), tmp_path / "master").close()
    write_batches([batch, batch], tmp_path / "in")
    seen = []

    def body(df: DataFrame, batch_id: int) -> None:
        first = rows_of(adjoin.enrich(df, tmp_path / "master", on="id"))
        Master.open(tmp_path / "master").apply(changed(200, f"v{batch_id + 2}"), txn=f"t{batch_id}")
        seen.append((first, rows_of(adjoin.enrich(df, tmp_path / "master", on="id"))))

    stream = read_batches(spark, tmp_path / "in").writeStream.foreachBatch(body)
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    for number, (first, second) in enumerate(seen):
        assert first == second == wanted(batch, products(200, note=f"v{number + 1}"))


def test_pages_stay_warm_from_one_micro_batch_to_the_next(spark, tmp_path):
    table = products(20_000)
    master = build(table, tmp_path / "master")
    batch = sales(3_000, 40_000)
    write_batches([batch, batch, batch], tmp_path / "in")
    result = adjoin.enrich(read_batches(spark, tmp_path / "in"), master, on="id", memory="64MB")
    query = run(result, Sink(tmp_path / "out"), tmp_path / "checkpoint")
    first, *others = [EnrichProgress.of(progress)[0] for progress in query.recentProgress]
    assert first.pages_read > master.pages / 4
    # A page at the boundary of two ranges is needed by both partitions; boundaries are sampled.
    assert all(progress.pages_read < first.pages_read / 10 for progress in others)


def test_cached_rows_stay_warm_from_one_micro_batch_to_the_next(spark, tmp_path):
    """Also at the next version, except for the rows of changed pages."""
    table, batch = products(5_000), sales(3_000, 10_000)
    master = build(table, tmp_path / "master")
    write_batches([batch, batch, batch], tmp_path / "in")
    sink = ChangesAfterSecond(tmp_path / "out", tmp_path / "master")
    stream = read_batches(spark, tmp_path / "in")
    result = adjoin.enrich(stream, master, on="id", memory="64MB", algorithm="ssij+front")
    query = run(result, sink, tmp_path / "checkpoint")
    first, second, third = [EnrichProgress.of(progress)[0] for progress in query.recentProgress]
    assert second.cache_hits >= second.front_hits > max(first.front_hits, 1_000)
    assert second.front_hits / 2 < third.front_hits
    assert (second.master_version, third.master_version) == (1, 2)
    newer = pa.concat_tables([changed(10, "v2").drop_columns("_op"), table.slice(10)])
    assert [sink.rows(spark, 1), sink.rows(spark, 2)] == [wanted(batch, table), wanted(batch, newer)]


def test_metrics_arrive_in_the_progress_of_the_query(spark, tmp_path):
    table, batch = products(1_000), sales(2_000, 3_000)
    master = build(table, tmp_path / "master")
    write_batches([batch], tmp_path / "in")
    heard: list[EnrichProgress] = []
    listener = EnrichListener(heard.append)
    spark.streams.addListener(listener)
    try:
        result = adjoin.enrich(
            read_batches(spark, tmp_path / "in"),
            master,
            on="id",
            how="left",
            memory="32MB",
            partitions=2,
            name="first",
        )
        result = adjoin.enrich(
            result, master, on="id", how="semi", memory="32MB", route="none", name="second"
        )
        query = run(result, Sink(tmp_path / "out"), tmp_path / "checkpoint")
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert sorted(progress.name for progress in heard) == ["first", "second"]
    progress = next(one for one in heard if one.name == "first")
    assert progress in EnrichProgress.of(query.recentProgress[0])
    matched = int(np.isin(batch["id"].to_numpy(), np.arange(1_000) * 2).sum())
    assert (progress.query_id, progress.batch_id, progress.master_version) == (query.id, 0, 1)
    assert (progress.rows_in, progress.rows_out, progress.rows_unmatched) == (2_000, 2_000, 2_000 - matched)
    assert 0 < progress.peak_bytes <= progress.memory_bytes <= 32 << 20
    assert 0 < progress.pages_read <= 2 * master.pages
    assert sum(task.rows_in for task in progress.tasks) == 2_000
    assert [task.partition for task in progress.tasks] == [0, 1]
    assert all(task.seconds > 0 for task in progress.tasks)


def test_two_routed_joins_in_a_row_report_every_row_once(spark, tmp_path):
    batch = sales(2_000, 3_000)
    master = build(products(1_000), tmp_path / "master")
    write_batches([batch], tmp_path / "in")
    result = adjoin.enrich(read_batches(spark, tmp_path / "in"), master, on="id", how="left", memory="32MB")
    result = adjoin.enrich(result, master, on="id", how="semi", memory="32MB")
    query = run(result, Sink(tmp_path / "out"), tmp_path / "checkpoint")
    progress = EnrichProgress.of(query.recentProgress[0])
    assert [one.rows_in for one in progress] == [2_000, 2_000]


@pytest.mark.parametrize("names", [("left", "right"), (None, None)])
def test_joined_branches_of_one_stream(spark, tmp_path, names):
    table, left, right = products(1_000), sales(1_000, 1_500, seed=1), sales(1_000, 1_500, seed=2)
    master = build(table, tmp_path / "master")
    branches = []
    for number, (name, batch) in enumerate(zip(names, (left, right), strict=True)):
        write_batches([batch], tmp_path / f"in {number}")
        stream = read_batches(spark, tmp_path / f"in {number}")
        branches.append(adjoin.enrich(stream, master, on="id", name=name, memory="32MB"))
    sink = Sink(tmp_path / "out")
    query = run(branches[0].union(branches[1]), sink, tmp_path / "checkpoint")
    assert sink.rows(spark, 0) == wanted(left, table) + wanted(right, table)
    progress = EnrichProgress.of(query.recentProgress[0])
    assert [one.rows_in for one in progress] == [1_000, 1_000]
    assert len({one.name for one in progress}) == 2
    assert names[0] is None or {one.name for one in progress} == set(names)


def _enrich_stream(stream: DataFrame, master: Master, **options: Any) -> DataStreamWriter:
    return adjoin.enrich(stream, master, on="id", memory="16MB", **options).writeStream.format("noop")


def _enrich_beside(stream: DataFrame, master: Master) -> DataStreamWriter:
    static = stream.sparkSession.range(0, 100)
    kept = adjoin.enrich(static, master, on="id", how="semi", memory="16MB")
    return stream.join(kept, "id").writeStream.format("noop")


def _enrich_in_body(stream: DataFrame, master: Master) -> DataStreamWriter:
    def body(df: DataFrame, batch_id: int) -> None:
        df.sparkSession.conf.set("spark.adjoin.arena.dir", directory)
        adjoin.enrich(df, master, on="id", memory="16MB").write.format("noop").mode("append").save()

    directory = stream.sparkSession.conf.get("spark.adjoin.arena.dir") or ""
    return stream.writeStream.foreachBatch(body)


def _page_files(path: Path) -> list[Path]:
    """The page files; folders may disappear during the search."""
    return [Path(folder, name) for folder, _, names in os.walk(path) for name in names if ".arena" in name]


@pytest.mark.parametrize(
    "write",
    [
        _enrich_stream,
        partial(_enrich_stream, version=1),
        partial(_enrich_stream, algorithm="ssij+front"),
        _enrich_beside,
        _enrich_in_body,
    ],
)
def test_page_memory_is_freed_when_the_query_ends(spark, tmp_path, write):
    (tmp_path / "pages").mkdir()
    master = build(products(500), tmp_path / "master")
    write_batches([sales(500, 900)], tmp_path / "in")
    spark.conf.set("spark.adjoin.arena.dir", str(tmp_path / "pages"))
    try:
        writer = write(read_batches(spark, tmp_path / "in"), master)
    finally:
        spark.conf.unset("spark.adjoin.arena.dir")
    for starts in (1, 2):  # the second time it resumes from its checkpoint
        write_batches([sales(500, 900)] * starts, tmp_path / "in")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            files = _page_files(tmp_path)
            assert files
            assert sum(path.stat().st_blocks * 512 for path in files) <= 16 << 20
        finally:
            query.stop()
        until(lambda: not _page_files(tmp_path), what="page memory that is free")
