"""Results on disk: one CSV row per repetition."""

import csv
import json
import os
import platform
import subprocess
import time
from pathlib import Path

from benchmarks.engine.runner import Result

COLUMNS = (
    "run",
    "commit",
    "machine",
    "seed",
    "goal",
    "stream",
    "batch_rows",
    "master_rows",
    "memory_bytes",
    "contender",
    "variant",
    "repetition",
    "cap_bytes",
    "cap",
    "warm_rows",
    "batches",
    "rows",
    "rows_out",
    "seconds",
    "rows_per_second",
    "batch_seconds_median",
    "batch_seconds_max",
    "peak_bytes",
    "resident_peak_bytes",
    "failure",
    "metrics",
)


def describe_run() -> Result:
    """What every row of this run says of its origin."""
    return {
        "run": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_gib()} GiB, Linux {platform.release()}",
    }


def replace_goals(path: Path, goals: set[str], new: list[Result]) -> None:
    """Put in the rows of the goals that were measured now, keep those of the others."""
    kept = [row for row in read(path) if row["goal"] not in goals] if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        writer.writerows(
            {**_rounded(row), "metrics": json.dumps(row.get("metrics", {}), default=float)} for row in new
        )


def read(path: Path) -> list[dict[str, str]]:
    """All rows."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _rounded(row: Result) -> Result:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()

    dirty = git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    return (git("rev-parse", "--short", "HEAD") or "none") + ("+changes" if dirty else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30))
