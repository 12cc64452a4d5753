"""The benchmark on tiny data: every contender starts, has the plan it claims, and agrees with the oracle."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import results
from benchmarks.spark.cases import ALL

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
