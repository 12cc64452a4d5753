"""Flink's joins as contenders: how they are started, and what they print."""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.spark.check import check_plan_of
from benchmarks.spark.contenders.contender import PlanRule
from benchmarks.streamjoin_spark.cases import Case
from benchmarks.streamjoin_spark.child import run
from benchmarks.streamjoin_spark.datasets import Inputs
from benchmarks.streamjoin_spark.flink.install import UnavailableError, find
from benchmarks.streamjoin_spark.shapes import BOUND_SECONDS, DELAY_SECONDS

PARALLELISM = 2
_OPENED = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util"))
_SETTINGS = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "10s",
    "execution.checkpointing.incremental": "true",
    "taskmanager.memory.managed.size": "1gb",
    "pipeline.object-reuse": "true",
}
_SHARED = (
    "Flink 2.3 in one process, parallelism 2, RocksDB with 1 GB of managed memory, incremental checkpoints "
    "every 10 s, heap of 4 GB; reads the same rows from fixed-width records, one file for each input, and "
    "drops the result; rows per second from the end of the warm-up to the end of the job"
)
SETTINGS = {
    "flink interval join": f"{_SHARED}; `INNER JOIN ... ON id AND paid_at BETWEEN ...` over two event times",
    "flink regular join": "the same without event times: state is never removed; mini-batches of 5,000 rows",
}
_MORE_SETTINGS = {
    "flink interval join": {},
    "flink regular join": {
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "5000",
    },
}
_PLANS = {
    "flink interval join": PlanRule(has=("IntervalJoin(joinType=[InnerJoin]",)),
    "flink regular join": PlanRule(has=("Join(joinType=[InnerJoin]",), lacks=("IntervalJoin",)),
}


def measure(name: str, case: Case, inputs: Inputs, scratch: Path) -> dict[str, Any]:
    """Run one of them to its end."""
    try:
        flink = find()
    except UnavailableError as error:
        return {"failure": f"skipped: {error}"}
    side_rows, warm_rows = case.all_batches * case.batch_rows, case.warm_batches * case.batch_rows
    given = {
        "join": name.split()[1],
        **{side: str(path) for side, path in inputs.records().items()},
        "rows": 2 * side_rows,
        "warm": 2 * warm_rows,
        "minutes": BOUND_SECONDS // 60,
        "delay": DELAY_SECONDS,
        "parallelism": PARALLELISM,
        "execution.checkpointing.dir": (scratch / "checkpoints").as_uri(),
        "io.tmp.dirs": str(scratch),
        **_SETTINGS,
        **_MORE_SETTINGS[name],
    }
    command = [flink.java, "-Xmx4g", *_OPENED, "-cp", flink.class_path, "StreamJoin"]
    done = run([*command, *(f"{key}={value}" for key, value in given.items())])
    if done.code != 0:
        sys.stderr.write(done.errors)
        faults = [line for line in done.errors.splitlines() if "Exception" in line]
        return {"failure": (faults or [f"ended with {done.code}"])[-1][:200], **done.memory()}
    check_plan_of(name, _PLANS[name], done.errors)
    found = json.loads(done.output.splitlines()[-1])
    return {
        "rows_per_second": 2 * (side_rows - warm_rows) / found["seconds"],
        "whole_seconds": found["whole_seconds"],
        "rows_out": found["rows"],
        "answer": {"rows": found["rows"], "pairs": found["pairs"]},
        "failure": "",
        **done.memory(),
    }
