"""The device that pages are read from: a real disk, or a simulated one with the same interface.

Reading n adjacent blocks costs `positioning_seconds + n * block_seconds`. The read plan weighs
the two, so the same operator coalesces reads for a spinning disk and for an object store.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from adjoin.errors import CorruptionError, StorageError
from adjoin.kernels.pages import READ, Reads, read_scans
from adjoin.kernels.types import Array
from adjoin.master.async_queue import AsyncQueue
from adjoin.memory.arena import BLOCK_BYTES, Arena
from adjoin.operators.clock import Clock

Status = tuple[int, int]
"""The outcome of reading scans (READ, READ_FAILED or PAGE_DAMAGED), and the page where it went wrong."""


@dataclass(frozen=True)
class ReadJob:
    """Scans to read.

    Attributes:
        first: The first page of each scan.
        last: The last page of each scan.
        reads: The pages, and where they go.
        scans: The number of scans.
        positionings: How many of them do not continue where the previous one ended.
        blocks: The number of blocks read.
        files: Keeps the files open until the job is done.
    """

    first: Array
    last: Array
    reads: Reads
    scans: int
    positionings: int
    blocks: int
    files: object = None

    def read(self, begin: int, end: int) -> Status:
        """Read the scans begin..end-1, one after the other."""
        return read_scans(self.first, self.last, begin, end, self.reads)

    def read_ahead(self, queue: AsyncQueue, begin: int, end: int) -> Status:
        """Read the scans begin..end-1, many at the same time."""
        return queue.read(self.first, self.last, begin, end, self.reads)


@dataclass(frozen=True)
class Cost:
    """Seconds to position, and seconds per block of 4096 bytes."""

    positioning_seconds: float
    block_seconds: float

    @property
    def is_possible(self) -> bool:
        return all(0 < seconds < np.inf for seconds in (self.positioning_seconds, self.block_seconds))

    def seconds(self, scans: int, blocks: int) -> float:
        return scans * self.positioning_seconds + blocks * self.block_seconds


@runtime_checkable
class Device(Protocol):
    def cost(self, files: Sequence[str]) -> Cost:
        """What reading these files costs."""

    def open(self, path: str) -> int:
        """Open a file for reading; returns a descriptor."""

    def start(self, job: ReadJob) -> Callable[[], list[Status]]:
        """Start reading; returns a function that waits until everything has been read."""

    def close(self) -> None:
        """Stop all threads."""


class Disk:
    """The file system, read with many reads in flight, bypassing the page cache where possible.

    One thread keeps a queue of asynchronous reads full. Where the system has no such queue, several
    threads read synchronously.

    Args:
        in_flight: The number of reads at the same time.
        direct: Whether to use direct I/O; falls back to ordinary reads where the file system has none.
        cost: The cost, if it is known; by default it is measured once per file system and remembered.
    """

    def __init__(self, in_flight: int = 128, direct: bool = True, cost: Cost | None = None) -> None:
        self._direct = direct
        self._cost = cost
        self._process = os.getpid()
        self._queue = _queue(in_flight) if direct else None
        self._workers = 1 if self._queue else min(in_flight, _MOST_THREADS)
        self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="adjoin-read")
        self.name = f"{'queue' if self._queue else 'threads'}-{in_flight}"

    def open(self, path: str) -> int:
        """Open a file for reading; returns a descriptor."""
        flags = os.O_RDONLY | os.O_CLOEXEC
        with _errors_of(path):
            if self._direct:
                with suppress(OSError):
                    return os.open(path, flags | os.O_DIRECT)
            return os.open(path, flags)

    def start(self, job: ReadJob) -> Callable[[], list[Status]]:
        """Start reading; returns a function that waits until everything has been read."""
        if os.getpid() != self._process:
            raise StorageError(
                "an operator cannot read in a fork of the process that created it; create a new one there"
            )
        parts = min(self._workers, job.scans)
        bounds = [job.scans * part // parts for part in range(parts + 1)]
        read = job.read if self._queue is None else partial(job.read_ahead, self._queue)
        running = [self._threads.submit(read, begin, end) for begin, end in pairwise(bounds)]
        return lambda: [future.result() for future in running]

    def cost(self, files: Sequence[str]) -> Cost:
        """What reading these files costs."""
        if self._cost is None:
            self._cost = _remembered_cost(self, files)
        return self._cost

    def close(self) -> None:
        """Stop all threads."""
        self._threads.shutdown(wait=True)
        if self._queue:
            self._queue.close()


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Report that a file of a master cannot be opened."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptionError(f"{path} is missing; restore it, or open another version") from error
    except OSError as error:
        raise StorageError(
            f"cannot open {path}: {error.strerror}; check its permissions and the device"
        ) from error


def _queue(in_flight: int) -> AsyncQueue | None:
    try:
        return AsyncQueue(in_flight)
    except OSError:
        return None


class SimulatedDisk:
    """A disk whose time passes on a simulated clock; bytes come from the real files.

    Args:
        clock: The clock that reading advances.
        cost: The cost of reading.
    """

    def __init__(self, clock: Clock, cost: Cost) -> None:
        self._clock = clock
        self._cost = cost

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def start(self, job: ReadJob) -> Callable[[], list[Status]]:
        """Start reading; returns a function that reads everything and advances the clock."""

        def wait() -> list[Status]:
            self._clock.sleep(self._cost.seconds(job.positionings, job.blocks))
            return [job.read(0, job.scans)]

        return wait

    def cost(self, files: Sequence[str]) -> Cost:  # noqa: ARG002
        return self._cost

    def close(self) -> None:
        return


HARD_DISK = Cost(positioning_seconds=8e-3, block_seconds=4096 / 100e6)
"""A disk of the time of the papers."""
SSD = Cost(positioning_seconds=10e-6, block_seconds=4096 / 2e9)
OBJECT_STORE = Cost(positioning_seconds=20e-3, block_seconds=4096 / 90e6)

_MOST_THREADS = 16
_SMALLEST_SAMPLE_BYTES = 64 << 20
_ROUNDS = 8
_MEASURING_SECONDS = 0.1
_RANDOM_READS = 128
_SCAN_BLOCKS = 256
_SCANS = 16
_LEAST_BLOCK_SECONDS = BLOCK_BYTES / 10e9


def _remembered_cost(disk: Disk, files: Sequence[str]) -> Cost:
    """The cost of the files' file system: remembered, or else measured; that of an SSD if files are small."""
    largest = max(files, key=_size, default=None)
    if largest is None or _size(largest) < _SMALLEST_SAMPLE_BYTES:
        return SSD
    name = f"{os.statvfs(largest).f_fsid:x}/{disk.name}"
    for place in _note_files():
        noted = _read_notes(place).get(name)
        if noted is not None:
            return noted
    cost = measure_cost(disk, largest)
    for place in _note_files():
        if _write_notes(place, {**_read_notes(place), name: cost}):
            break
    return cost


def _size(path: str) -> int:
    with _errors_of(path):
        return os.path.getsize(path)


def _note_files() -> list[Path]:
    """Files where costs are remembered, best first; a user may have no home directory, or a read-only one."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    homes = [Path(cache) / "adjoin"] if os.path.isabs(cache) else []
    own = Path(tempfile.gettempdir()) / f"adjoin-{os.getuid()}"
    return [directory / "devices.json" for directory in (*homes, own)]


def _read_notes(place: Path) -> dict[str, Cost]:
    try:
        known = {name: Cost(*map(float, noted)) for name, noted in json.loads(place.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {name: cost for name, cost in known.items() if cost.is_possible}


def _write_notes(place: Path, known: dict[str, Cost]) -> bool:
    noted = {name: [cost.positioning_seconds, cost.block_seconds] for name, cost in known.items()}
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
            json.dump(noted, file)
        os.replace(file.name, place)
    except OSError:
        return False
    return True


def measure_cost(disk: Disk, file: str) -> Cost:
    """Measure random reads and long scans, both with as many reads in flight as operators use.

    The fastest of several rounds counts, because other load on the machine can only make rounds slower. On
    a slow device a single round is enough.
    """
    blocks = os.path.getsize(file) // BLOCK_BYTES
    random = np.random.default_rng()
    alone = scan = np.inf
    end = time.perf_counter() + _MEASURING_SECONDS
    for _ in range(_ROUNDS):
        places = random.integers(0, blocks - 1, _RANDOM_READS)
        alone = min(alone, _seconds_to_read(disk, file, places, 1) / _RANDOM_READS)
        places = random.integers(0, blocks - _SCAN_BLOCKS, _SCANS)
        scan = min(scan, _seconds_to_read(disk, file, places, _SCAN_BLOCKS) / _SCANS)
        if time.perf_counter() > end:
            break
    block_seconds = max((scan - alone) / (_SCAN_BLOCKS - 1), _LEAST_BLOCK_SECONDS)
    return Cost(max(alone - block_seconds, block_seconds), block_seconds)


def _seconds_to_read(disk: Disk, file: str, start_blocks: Array, blocks: int) -> float:
    descriptor = disk.open(file)
    try:
        job = _sample(descriptor, start_blocks, blocks)
        begin = time.perf_counter()
        statuses = disk.start(job)()
        elapsed = time.perf_counter() - begin
    finally:
        os.close(descriptor)
    if any(status != READ for status, _ in statuses):
        raise StorageError(f"cannot read {file}; check the device")
    return elapsed


def _sample(descriptor: int, start_blocks: Array, blocks: int) -> ReadJob:
    """Reads at these blocks, all into the same slot, whose content is not used."""
    count = len(start_blocks)
    arena = Arena(1, 0, blocks * BLOCK_BYTES, 0, BLOCK_BYTES)
    reads = Reads(
        descriptor=np.full(count, descriptor, np.int32),
        offset=start_blocks * BLOCK_BYTES,
        length=np.full(count, blocks * BLOCK_BYTES),
        checksum=np.empty(0, np.uint64),
        slot=np.zeros(count, np.int32),
        slot_base=arena.slot_base,
        arena=arena.bytes,
        words=arena.words,
        scratch_bytes=arena.scratch_bytes,
        layout=np.zeros(count, np.int64),
        wanted=np.empty((1, 0), np.int64),
        offsets=np.empty((0, 2), np.int32),
        rows=np.empty(2, np.int32),
    )
    every = np.arange(count, dtype=np.int32)
    return ReadJob(every, every, reads, count, count, count * blocks)
