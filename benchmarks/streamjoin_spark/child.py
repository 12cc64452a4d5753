"""A program that is measured: what it said, and the most memory it had."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.streamjoin_spark.resident import Peak, Resident

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """A program that has ended."""

    code: int
    output: str
    errors: str
    peak: Resident

    def memory(self) -> dict[str, int]:
        """The columns of the results."""
        return {"peak_bytes": self.peak.all, "peak_java_bytes": self.peak.java}


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
    with child, Peak(child.pid) as peak:
        try:
            output, errors = child.communicate()
        except BaseException:
            child.terminate()
            raise
    return Done(child.returncode, output, errors, peak.most)
