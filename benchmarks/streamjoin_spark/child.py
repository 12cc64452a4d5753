"""A program that is measured: what it said, and the most memory it had."""

import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.streamjoin_spark.resident import Resident, Watch

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """A program that has ended."""

    code: int
    output: str
    errors: str
    seen: list[Resident]

    def memory(self) -> dict[str, Any]:
        """The columns of the results; growth compares the last quarter of the time with the one before."""
        most = max(self.seen, key=lambda each: each.all, default=Resident())
        quarter = len(self.seen) // 4
        found: dict[str, Any] = {"peak_bytes": most.all, "peak_java_bytes": most.java}
        if quarter:
            last = statistics.median(each.all for each in self.seen[-quarter:])
            before = statistics.median(each.all for each in self.seen[-2 * quarter : -quarter])
            found["memory_growth"] = last / max(before, 1)
        return found


def run(command: Sequence[str]) -> Done:
    """Run a program to its end; Python workers that it starts import the contenders from here."""
    paths = [str(_REPOSITORY), os.environ.get("PYTHONPATH", "")]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )
    with child, Watch(child.pid) as watch:
        try:
            output, errors = child.communicate()
        except BaseException:
            child.terminate()
            raise
    return Done(child.returncode, output, errors, watch.seen)
