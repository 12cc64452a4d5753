"""Results on disk: one CSV row per repetition."""

import csv
import json
from pathlib import Path

from benchmarks.engine.results import describe_run, read
from benchmarks.spark.runner import Result

__all__ = ["COLUMNS", "describe_run", "read", "replace_settings"]

COLUMNS = (
    "run",
    "commit",
    "machine",
    "seed",
    "setting",
    "case",
    "master_rows",
    "batch_rows",
    "partitions",
    "memory_bytes",
    "contender",
    "repetition",
    "warm_batches",
    "batches",
    "rows_out",
    "add_batch_seconds",
    "add_batch_seconds_max",
    "trigger_seconds",
    "trigger_seconds_max",
    "prepare_seconds",
    "slowest_to_median",
    "rows_to_median",
    "held_bytes",
    "load_average",
    "failure",
    "metrics",
)


def replace_settings(path: Path, settings: set[str], new: list[Result]) -> None:
    """Put in the rows of the settings that were measured now, keep those of the others."""
    kept = [row for row in read(path) if row["setting"] not in settings] if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        writer.writerows(
            {**_rounded(row), "metrics": json.dumps(row.get("metrics", {}), default=str)} for row in new
        )


def _rounded(row: Result) -> Result:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
