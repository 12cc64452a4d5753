"""Data sets on disk: written once, kept, and validated by a stamp."""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.engine import workload
from benchmarks.engine.contenders.catalogue import contender_class

_FORMAT = 1  # increase it when a generator or builder changes


def dataset_of(data: Path, contender: str, filtered: bool, master_rows: int) -> Path:
    """The path of a contender's data set, built unless it exists."""
    kind = contender_class(contender, filtered)
    path = data / f"{kind.dataset}-{master_rows}"
    return written_once(path, lambda: kind.build(path, master_rows))


def stream_of(data: Path, stream: str, master_rows: int, rows: int, seed: int) -> Path:
    """The path of a stream's keys, a plain int64 array."""
    path = data / f"stream-{stream}-{master_rows}-{rows}-{seed}"

    def write() -> None:
        keys = workload.zipf_keys(master_rows, rows, seed)
        if stream == "absent":
            keys = workload.mostly_absent_keys(keys, master_rows, seed)
        keys.tofile(path / "keys.bin")

    return written_once(path, write) / "keys.bin"


def keys_in(stream: Path, start: int, rows: int) -> np.ndarray:
    """Some keys of a stream."""
    return np.fromfile(stream, np.int64, count=rows, offset=8 * start)


def written_once(path: Path, write: Callable[[], None]) -> Path:
    """Write a data set unless it exists, complete and in this format."""
    stamp = path / "stamp.json"
    if stamp.exists() and json.loads(stamp.read_text()).get("format") == _FORMAT:
        return path
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    started = time.perf_counter()
    write()
    seconds = round(time.perf_counter() - started, 1)
    stamp.write_text(json.dumps({"format": _FORMAT, "seconds": seconds}))
    print(f"wrote {path.name} in {seconds} s", file=sys.stderr, flush=True)
    return path
