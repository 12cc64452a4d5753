"""State beyond memory is on disk, and leaves memory, disk and log with the watermark."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adjoin
from adjoin import JoinProgress
from tests.spark.join.scripts import BEGIN, operators
from tests.spark.programs import until

ROWS, BATCHES, MEMORY = 8_000, 12, 1 << 20
MINUTE = 60_000_000
SCHEMA = "k long, t timestamp, payload string"


@pytest.fixture
def directory(tmp_path):
    """Two inputs in files of one micro-batch each; a partner comes up to three minutes later."""
    chance = np.random.default_rng(5)
    for number in range(BATCHES):
        keys = chance.integers(0, 1 << 40, ROWS)
        times = BEGIN + number * MINUTE + chance.integers(0, MINUTE, ROWS)
        for name, later in (("left", 0), ("right", 3 * MINUTE)):
            path = tmp_path / name / f"{number:03d}.parquet"
            path.parent.mkdir(exist_ok=True)
            stamps = pa.array(times + chance.integers(0, later + 1, ROWS), pa.timestamp("us", "UTC"))
            payload = [f"{key:080d}" for key in keys.tolist()]
            pq.write_table(pa.table({"k": keys, "t": stamps, "payload": payload}), path)
            os.utime(path, (1_700_000_000 + number,) * 2)
    return tmp_path


def joined(spark, directory: Path, **options):
    sides = []
    for name in ("left", "right"):
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        sides.append(reader.parquet(str(directory / name)).withWatermark("t", "10 seconds"))
    left, right = sides
    return adjoin.join(
        left, right.withColumnRenamed("t", "u"), on="k", time=("t", "u"), before="0 s", **options
    )


@pytest.mark.slow
@pytest.mark.parametrize(("after", "is_steady"), [("1 day", False), ("3 minutes", True)])
def test_state_is_many_times_the_memory(stateful, directory, after, is_steady):
    result = joined(stateful, directory, after=after, memory=MEMORY, spill=str(directory))
    writer = result.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "out"), format="parquet")
    query.awaitTermination()
    rows = stateful.read.parquet(str(directory / "out"))
    assert rows.count() == rows.distinct().count() == BATCHES * ROWS
    assert rows.filter("payload != payload_right or u < t").count() == 0
    said = [one for progress in query.recentProgress for one in JoinProgress.of(progress)]
    assert all(one.peak_bytes <= one.memory_bytes <= MEMORY for one in said)
    assert sum(one.results_from_disk for one in said) > ROWS
    assert max(one.log_bytes for one in said) > 5 * MEMORY
    middle, late = said[BATCHES - 5], said[BATCHES - 1]
    for name in ("rows_kept", "log_bytes"):
        grown = getattr(late, name) / getattr(middle, name)
        assert grown < 1.2 if is_steady else grown > 1.2, (name, grown)
    assert (sum(one.rows_expired for one in said) > BATCHES * ROWS) == is_steady


@pytest.mark.slow
def test_operators_and_files_end_with_the_query(stateful, directory):
    result = joined(stateful, directory, after="1 day", memory="4MB", spill=str(directory))
    query = result.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    until(lambda: not operators(directory), what="the end of all operators")
    until(lambda: not list(directory.glob(f"adjoin-*/{query.id}-*")), what="the end of their directories")
