"""The benchmarks on tiny data: every contender starts, has the plan it claims, and agrees with the oracle."""

import subprocess
import sys
from pathlib import Path

import pytest

import adjoin
from benchmarks.harness import results
from benchmarks.spark.cases import ALL
from benchmarks.streamjoin_spark.cases import ALL as STREAM_CONTENDERS
from benchmarks.streamjoin_spark.cases import FLINK, OURS, OURS_MANY
from benchmarks.streamjoin_spark.flink import install

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_contender_runs_and_agrees_with_the_oracle(tmp_path):
    command = [sys.executable, "-m", "benchmarks.spark", "--smoke", "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = results.read(tmp_path / "smoke" / "spark.csv")
    assert {row["contender"]: row["failure"] for row in rows} == dict.fromkeys(ALL, "")
    assert all(float(row["add_batch_seconds"]) > 0 for row in rows)
    page = (tmp_path / "smoke" / "spark.md").read_text()
    assert "| at least 8 x faster than Spark's own join | addBatch |" in page
    assert "| 4 partitions | 20,000 | enrich |" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_joins_of_streams_agree_with_the_oracle_and_with_each_other(tmp_path):
    """What is not there, like Flink without its jars, says so; everything else must run."""
    command = [sys.executable, "-m", "benchmarks.streamjoin_spark", "--smoke", "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stderr
    rows = results.read(tmp_path / "smoke" / "streamjoin_spark.csv")
    missing = {name for name in FLINK if not (install.INSTALLED / "pom.xml").exists()}
    missing |= {name for name in (OURS, OURS_MANY) if not hasattr(adjoin, name.removeprefix("adjoin."))}
    assert {row["contender"] for row in rows} == set(STREAM_CONTENDERS)
    assert {row["contender"] for row in rows if row["failure"].startswith("skipped: ")} == missing
    assert all(float(row["rows_per_second"]) > 0 for row in rows if row["contender"] not in missing)
    page = (tmp_path / "smoke" / "streamjoin_spark.md").read_text()
    assert "| band, random | spark cells | 1 |" in page
