"""Runs a join on a simulated clock, and counts what it delivers before its inputs end."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.master.device import HARD_DISK, Cost
from adjoin.parts.clock import SimulatedClock
from adjoin.streamjoin.frame import INPUT_SHARE, SpillingJoin
from adjoin.streamjoin.sizes import Sizes
from adjoin.streamjoin.spec import SIDES
from adjoin.workloads import ExponentialGaps, Fragments, Records
from benchmarks.figures.diner.setting import JOINS, Setting
from benchmarks.figures.figure import Measurement, World

ROW_BYTES = 200
BLOCK_BYTES = 8192
PAPERS_BLOCK_BYTES = 10 << 10
PORTION_ROWS = 100
ROWS_PER_SECOND = 1000.0
WAIT_SECONDS = 0.025
MAX_NEW = 1000
_FRAGMENTS = 10


def results_online(setting: Setting, world: World) -> Measurement:
    """Results up to the share of the input that has arrived, in thousands."""
    run = _run(setting.with_(arrived=1.0), world)
    return Measurement(float(np.interp(setting.arrived, *run.progress)) / 1000, run.details)


def share_online(setting: Setting, world: World) -> Measurement:
    """Results before the inputs end, in percent of all."""
    run = _run(setting, world)
    return Measurement(100 * run.progress[1][-1] / run.total, run.details)


def buffer_most(setting: Setting, world: World) -> Measurement:
    """The most rows that waited where a reactive phase ended, those with no room in the buffer included."""
    run = _run(setting, world)
    return Measurement(run.details["buffer_most"], run.details)


@dataclass(frozen=True)
class _Run:
    """What came out.

    Attributes:
        progress: Shares of the input, and results at each.
        total: Results of the whole join.
        details: What explains them.
    """

    progress: tuple[NDArray[np.float64], NDArray[np.float64]]
    total: int
    details: dict[str, float]


@lru_cache(maxsize=8)
def _run(setting: Setting, world: World) -> _Run:
    keys = setting.source.draw(world)
    line = _Line(
        setting, world, [Records(ROW_BYTES, seed=side).batch(each) for side, each in enumerate(keys)]
    )
    with _operator(setting, line, _disk()) as join:
        shares, results = zip(*line.feed(join), strict=True)
        metrics = join.metrics()
    phases = max(1, metrics["reactive_phases"])
    details = {
        "online": metrics["results_online"],
        "reactive": metrics["results_reactive"],
        "blocks_flushed": metrics["blocks_flushed"],
        "pages_read": metrics["pages_read"],
        "buffer_most": metrics["input_buffer_rows_at_handover_max"] + line.most_outside,
        "buffer_mean": metrics["input_buffer_rows_at_handover"] / phases,
        "refused": line.refused,
    }
    return _Run((np.array(shares), np.array(results)), _pairs(*keys, setting.within or 0), details)


def _pairs(left: NDArray[np.int64], right: NDArray[np.int64], within: int) -> int:
    """Results of the whole join."""
    values, counts = np.unique(right, return_counts=True)
    ends = np.concatenate(([0], np.cumsum(counts)))
    upper = np.searchsorted(values, left + within, "right")
    return int((ends[upper] - ends[np.searchsorted(values, left - within, "left")]).sum())


def _disk() -> Cost:
    """A block takes as long, in relation to the time in which a relation arrives, as the paper's did then."""
    share = BLOCK_BYTES / PAPERS_BLOCK_BYTES
    papers_seconds = HARD_DISK.positioning_seconds + HARD_DISK.block_seconds / share
    slower = share * papers_seconds / HARD_DISK.seconds(1, BLOCK_BYTES // 4096)
    return Cost(HARD_DISK.positioning_seconds * slower, HARD_DISK.block_seconds * slower)


def _operator(setting: Setting, line: "_Line", disk: Cost) -> SpillingJoin:
    schema = line.batches[0].schema
    options: dict[str, Any] = {"max_new": line.ahead_rows, "block_bytes": BLOCK_BYTES, "columns": []}
    if setting.algorithm == "DINER":
        options["max_outer"] = setting.max_outer
    if setting.within is not None:
        options["within"] = setting.within
    make = JOINS[setting.algorithm]
    tuples_bytes = int(setting.memory * ROW_BYTES * sum(batch.num_rows for batch in line.batches))
    memory = tuples_bytes + (1 << 20)
    for _ in range(6):  # what is set aside depends a little on the whole
        with make(schema, schema, on="key", memory=memory, **options) as join:
            memory = int((tuples_bytes + set_aside(join._sizes)) / (1 - INPUT_SHARE * (setting.silence > 0)))
    times = {"wait_seconds": WAIT_SECONDS, "clock": line, "disk": disk}
    return make(schema, schema, on="key", memory=memory, **times, **options)


def set_aside(sizes: Sizes) -> int:
    """Memory that is not for tuples."""
    return sizes.notes_bytes + sizes.work_bytes + sizes.reading_bytes


class _Line(SimulatedClock):
    """A clock that lets rows arrive as time passes, whatever the operator is busy with."""

    def __init__(self, setting: Setting, world: World, batches: list[pa.RecordBatch]) -> None:
        super().__init__()
        self.batches = batches
        self._times = [
            self._arrivals(setting, world, side, batch.num_rows) for side, batch in enumerate(batches)
        ]
        self._end = max(float(times[-1]) for times in self._times) + WAIT_SECONDS
        self._taken = [0, 0]
        self._join: SpillingJoin | None = None
        self._offers = setting.silence > 0
        self.ahead_rows = world.scaled(MAX_NEW) if setting.algorithm == "DINER" else 0
        self._is_idle = False
        self.most_outside = 0
        self.refused = 0.0

    @staticmethod
    def _arrivals(setting: Setting, world: World, side: int, rows: int) -> NDArray[np.float64]:
        gaps = ExponentialGaps(ROWS_PER_SECOND, seed=world.seed + side)
        if not setting.silence:
            return gaps.times(rows)
        return Fragments(gaps, max(1, rows // _FRAGMENTS), setting.silence).times(rows)

    def feed(self, join: SpillingJoin) -> Iterator[tuple[float, int]]:
        """Hand all rows over; gives the share of them that has arrived, and the results so far."""
        total, found = sum(batch.num_rows for batch in self.batches), 0
        self._join = join
        yield 0.0, 0
        while sum(self._taken) < total:
            if self._offers and self._coming(1)[0] - self.now() > WAIT_SECONDS:
                self._is_idle = True
                found += self._count(join.idle(self._coming(self.ahead_rows + 1)[-1] - self.now()))
                self._is_idle = False
            self._let_pass(max(0.0, self._end_of_portion() - self.now()))
            for side, batch in self._due():
                found += self._count(join.push(SIDES[side], batch))
            yield sum(self._taken) / total, found

    def sleep(self, seconds: float) -> None:
        """Time passes; what comes meanwhile is offered, as the operator is busy."""
        super().sleep(seconds)
        if self._join is not None and self._offers:
            if self._waiting() >= (1 if self._is_idle else PORTION_ROWS):
                for side, batch in self._due():
                    if not self._join.offer(SIDES[side], batch):
                        self._taken[side] -= batch.num_rows
                        self.refused += 1
            if self._is_idle:
                self.most_outside = max(self.most_outside, self._waiting())

    def _let_pass(self, seconds: float) -> None:
        super().sleep(seconds)

    def _coming(self, rows: int) -> NDArray[np.float64]:
        """When the next rows of both relations come."""
        times = np.concatenate([times[taken : taken + rows] for times, taken in self._ahead()])
        return np.sort(times)[:rows] if len(times) else np.array([self.now()])

    def _end_of_portion(self) -> float:
        """When so many rows have come as are handed over together, or a silence begins."""
        times = self._coming(PORTION_ROWS)
        silences = np.flatnonzero(np.diff(times) > WAIT_SECONDS)
        return float(times[silences[0]] if len(silences) else times[-1])

    def _ahead(self) -> list[tuple[NDArray[np.float64], int]]:
        return list(zip(self._times, self._taken, strict=True))

    def _waiting(self) -> int:
        return sum(int(np.searchsorted(times, self.now(), "right")) - taken for times, taken in self._ahead())

    def _due(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """What has come and was not taken."""
        for side, times in enumerate(self._times):
            first = self._taken[side]
            count = int(np.searchsorted(times, self.now(), "right")) - first
            if count > 0:
                self._taken[side] += count
                yield side, self.batches[side].slice(first, count)

    def _count(self, results: Iterator[pa.RecordBatch]) -> int:
        """Results that come before all rows have arrived."""
        return sum(batch.num_rows for batch in results if self.now() <= self._end)
