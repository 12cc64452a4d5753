"""How long rows wait, and how long they are pending, when the stream is slow."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.master.device import Cost, SimulatedDisk
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.base.queued import QueuedJoin
from adjoin.semistream.models.meshjoin import loop, waiting_seconds
from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.masters import PAGE_BYTES
from benchmarks.figures.queues.measures import served_in
from benchmarks.figures.queues.setting import QueueSetting, Scaled
from benchmarks.figures.simulation import PAPERS_DISK, ROW_SECONDS, Machine
from workloads import ExponentialGaps

_SECONDS = 40.0
_FINER = 5
"""Slow streams need few pages of a load, so pages must not be too coarse: a smaller scale."""
_MOST_ROWS = 4000
"""A join that cannot keep up with the stream would fall behind forever."""
_WARM_SHARE = 0.2


@dataclass(frozen=True)
class Stays:
    """Mean seconds per row: from arrival until it is taken, and from then until it is joined."""

    waiting: float
    processing: float


def waiting_time(setting: QueueSetting, world: World) -> Measurement:
    """Seconds until a row is taken, at the paper's size."""
    scaled = setting.at(replace(world, scale=1))
    if setting.model is not None:
        return Measurement(_predicted_waiting(scaled))
    stays = slow_stream(scaled)
    return Measurement(stays.waiting, vars(stays))


def processing_time(setting: QueueSetting, world: World) -> Measurement:
    """Seconds until a row that was taken is joined.

    If rows are always available, it is the number of pending rows divided by the service rate. MESHJOIN
    joins a row after half its stay.
    """
    if setting.arrivals is not None:
        stays = slow_stream(setting.at(replace(world, scale=max(1, world.scale // _FINER))))
        return Measurement(stays.processing, vars(stays))
    scaled = setting.at(world)
    served = served_in(setting, world)
    share = 0.5 if setting.algorithm == "meshjoin" else 1.0
    stay = scaled.waiting_rows * world.scale / served.rows_per_second
    return Measurement(share * stay, vars(served))


def _predicted_waiting(scaled: Scaled) -> float:
    """MESHJOIN waits until a portion of rows is complete, HYBRIDJOIN for half of a whole load."""
    load_bytes = scaled.page_counts[0] * PAGE_BYTES
    if scaled.setting.algorithm == "meshjoin":
        rows, _ = loop(scaled.sizes, scaled.constants, load_bytes)
        return waiting_seconds(rows, scaled.setting.arrivals or 1.0)
    return scaled.constants.scan_seconds(load_bytes) / 2


def slow_stream(scaled: Scaled) -> Stays:
    """Let rows arrive independently of each other; before each iteration the join takes those available."""
    clock = SimulatedClock()
    scale = 1 if scaled.is_inlj else scaled.world.scale
    disk = Cost(PAPERS_DISK.positioning_seconds, PAPERS_DISK.block_seconds * scale)
    machine = Machine(clock, SimulatedDisk(clock, disk), ROW_SECONDS)
    rate = scaled.setting.arrivals
    assert rate is not None
    many = int(min(rate * _SECONDS, _MOST_ROWS if scaled.is_inlj else np.inf))
    rows = replace(scaled.stream(), rows=many * scaled.world.scale).draw(scaled.world)
    arrived = ExponentialGaps(rate, seed=scaled.world.seed).times(many)
    taken, joined = np.full(many, np.nan), np.full(many, np.nan)
    with scaled.operator(machine, how="inner") as operator:
        for results in _run(operator, machine, rows, arrived, taken, 1 if scaled.is_inlj else many):
            numbers = results.column("row").to_numpy()
            joined[numbers] = np.fmin(joined[numbers], clock.now())
    counted = np.arange(many) >= _WARM_SHARE * many
    return Stays(
        waiting=float(np.nanmean((taken - arrived)[counted])),
        processing=float(np.nanmean((joined - taken)[counted])),
    )


def _run(
    operator: QueuedJoin,
    machine: Machine,
    rows: pa.RecordBatch,
    arrived: NDArray[np.float64],
    taken: NDArray[np.float64],
    most_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Repeatedly take up to `most_rows` of the rows that have arrived and read once, until all are taken."""
    first, clock, algorithm = 0, machine.clock, operator._algorithm
    while first < rows.num_rows:
        if not algorithm.rows_pending:
            clock.sleep(max(0.0, float(arrived[first]) - clock.now()))
        there = int(np.searchsorted(arrived, clock.now(), "right"))
        last = min(there, first + most_rows)
        if last > first:
            taken[first:last] = clock.now()
            machine.take(last - first)
            yield from operator.push(rows.slice(first, last - first))
            first = last
        if algorithm.rows_pending:
            yield from algorithm.join_phase()
