"""What pages are read from: a real disk, or a simulated one with the same interface.

A read of n adjacent blocks costs `positioning_seconds + n * block_seconds`. The read plan weighs
the two, so the same operator coalesces reads for a spinning disk and for an object store.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from adjoin.errors import StorageError
from adjoin.kernels.pages import read_blocks
from adjoin.parts.arena import BLOCK_BYTES
from adjoin.parts.clock import Clock

ReadTask = Callable[[int, int], tuple[int, int]]
"""Reads the scans from the first number up to the second; returns a status and a page."""


@dataclass(frozen=True)
class Cost:
    """Seconds to position, and seconds per block of 4096 bytes."""

    positioning_seconds: float
    block_seconds: float

    def seconds(self, scans: int, blocks: int) -> float:
        return scans * self.positioning_seconds + blocks * self.block_seconds


class Device(Protocol):
    def cost(self, files: Sequence[str]) -> Cost:
        """What reading these files costs."""

    def open(self, path: str) -> int:
        """A descriptor for reading."""

    def start(self, task: ReadTask, scans: int, blocks: int) -> "Callable[[], list[tuple[int, int]]]":
        """Begin to read so many scans; the function returned waits for them."""

    def close(self) -> None:
        """Stop all threads."""


class Disk:
    """The file system, read by several threads at once, past the page cache where it allows.

    Args:
        in_flight: Reads under way at the same time.
        direct: Read with direct I/O; falls back to ordinary reads where the file system has none.
        cost: Known cost; measured once per file system and remembered when None.
    """

    def __init__(self, in_flight: int = 16, direct: bool = True, cost: Cost | None = None) -> None:
        self._in_flight = in_flight
        self._direct = direct
        self._cost = cost
        self._threads = ThreadPoolExecutor(in_flight, thread_name_prefix="adjoin-read")

    def open(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            if self._direct:
                try:
                    return os.open(path, flags | os.O_DIRECT)
                except OSError as error:
                    if not isinstance(error, FileNotFoundError):
                        return os.open(path, flags)
                    raise
            return os.open(path, flags)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from error

    def start(self, task: ReadTask, scans: int, blocks: int) -> Callable[[], list[tuple[int, int]]]:  # noqa: ARG002
        parts = min(self._in_flight, scans)
        bounds = [scans * part // parts for part in range(parts + 1)]
        running: list[Future[tuple[int, int]]] = [
            self._threads.submit(task, begin, end) for begin, end in pairwise(bounds)
        ]
        return lambda: [future.result() for future in running]

    def cost(self, files: Sequence[str]) -> Cost:
        if self._cost is None:
            self._cost = _remembered_cost(self, files, self._in_flight)
        return self._cost

    def close(self) -> None:
        self._threads.shutdown(wait=True)


class SimulatedDisk:
    """A disk whose time passes on a simulated clock; bytes come from the real files.

    Args:
        clock: The clock that a read moves.
        cost: What a read costs.
    """

    def __init__(self, clock: Clock, cost: Cost) -> None:
        self._clock = clock
        self._cost = cost

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def start(self, task: ReadTask, scans: int, blocks: int) -> Callable[[], list[tuple[int, int]]]:
        def wait() -> list[tuple[int, int]]:
            self._clock.sleep(self._cost.seconds(scans, blocks))
            return [task(0, scans)]

        return wait

    def cost(self, files: Sequence[str]) -> Cost:  # noqa: ARG002
        return self._cost

    def close(self) -> None:
        return


HARD_DISK = Cost(positioning_seconds=8e-3, block_seconds=4096 / 100e6)
"""The disk of the papers' time."""
SSD = Cost(positioning_seconds=10e-6, block_seconds=4096 / 2e9)
OBJECT_STORE = Cost(positioning_seconds=20e-3, block_seconds=4096 / 90e6)

_SMALLEST_SAMPLE_BYTES = 64 << 20
_ROUNDS = 8
_RANDOM_READS = 256
_SCAN_BLOCKS = 256
_SCANS = 32
_LEAST_BLOCK_SECONDS = BLOCK_BYTES / 10e9


def _remembered_cost(disk: Disk, files: Sequence[str], in_flight: int) -> Cost:
    """Cost of the files' file system: from the notes of an earlier run, measured, or an SSD's."""
    largest = max(files, key=os.path.getsize, default=None)
    if largest is None or os.path.getsize(largest) < _SMALLEST_SAMPLE_BYTES:
        return SSD
    notes = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "adjoin" / "devices.json"
    name = f"{os.statvfs(largest).f_fsid:x}/{in_flight}"
    try:
        known = json.loads(notes.read_text())
    except (OSError, ValueError):
        known = {}
    if name in known:
        return Cost(float(known[name][0]), float(known[name][1]))
    cost = measure_cost(disk, largest)
    _write_notes(notes, {**known, name: [cost.positioning_seconds, cost.block_seconds]})
    return cost


def _write_notes(notes: Path, known: dict[str, list[float]]) -> None:
    try:
        notes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=notes.parent, delete=False) as file:
            json.dump(known, file)
        os.replace(file.name, notes)
    except OSError:
        return  # A home that cannot be written costs a new measurement each time, nothing else.


def measure_cost(disk: Disk, file: str) -> Cost:
    """Read at random and in long scans, both with as many reads in flight as operators use.

    The fastest of several rounds counts: whatever else the machine does only adds to the others.
    """
    blocks = os.path.getsize(file) // BLOCK_BYTES
    random = np.random.default_rng()
    alone = scan = np.inf
    for _ in range(_ROUNDS):
        places = random.integers(0, blocks - 1, _RANDOM_READS)
        alone = min(alone, _seconds_to_read(disk, file, places, 1) / _RANDOM_READS)
        places = random.integers(0, blocks - _SCAN_BLOCKS, _SCANS)
        scan = min(scan, _seconds_to_read(disk, file, places, _SCAN_BLOCKS) / _SCANS)
    block_seconds = max((scan - alone) / (_SCAN_BLOCKS - 1), _LEAST_BLOCK_SECONDS)
    return Cost(max(alone - block_seconds, block_seconds), block_seconds)


def _seconds_to_read(disk: Disk, file: str, start_blocks: np.ndarray, blocks: int) -> float:
    descriptor = disk.open(file)
    try:
        begin = time.perf_counter()
        wait = disk.start(
            lambda first, last: (read_blocks(descriptor, start_blocks[first:last], blocks), -1),
            len(start_blocks),
            len(start_blocks) * blocks,
        )
        statuses = wait()
        elapsed = time.perf_counter() - begin
    finally:
        os.close(descriptor)
    if any(status for status, _ in statuses):
        raise StorageError(f"cannot read {file}")
    return elapsed
