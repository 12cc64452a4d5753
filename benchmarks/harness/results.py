"""Results on disk: one CSV row per repetition."""

import csv
import json
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, Any]
"""One repetition, as measured."""
Row = dict[str, str]
"""One repetition, as read from the file."""
ORIGIN = ("run", "commit", "machine", "seed")
"""The columns that say where a row comes from."""


def describe_run() -> Result:
    """The origin that every row of this run states."""
    return {
        "run": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_gib()} GiB, Linux {platform.release()}",
    }


@dataclass(frozen=True)
class Table:
    """The columns of a results file.

    Attributes:
        columns: All columns, including `metrics`.
        part: The column that says what a row belongs to; a part is measured and replaced as a whole.
    """

    columns: tuple[str, ...]
    part: str

    def replace(self, path: Path, parts: set[str], new: list[Result]) -> None:
        """Replace the rows of the parts just measured, keep the others."""
        kept = [row for row in read(path) if row[self.part] not in parts] if path.exists() else []
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)
            writer.writerows({**_rounded(row), "metrics": _as_json(row.get("metrics", {}))} for row in new)


def read(path: Path) -> list[Row]:
    """All rows."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _as_json(metrics: dict[str, Any]) -> str:
    return json.dumps(metrics, default=lambda value: value.item() if hasattr(value, "item") else str(value))


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
