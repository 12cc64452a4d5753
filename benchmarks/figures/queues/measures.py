"""What a point of these figures can show, measured or predicted."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from adjoin.master.device import SimulatedDisk
from adjoin.operators.clock import SimulatedClock
from adjoin.semistream.base.queued import QueuedJoin
from benchmarks.figures import simulation
from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.queues.predictions import predicted_loop
from benchmarks.figures.queues.setting import QueueSetting, Scaled
from benchmarks.figures.simulation import Machine

_PORTIONS = 60
"""How many portions fill the memory."""
_FEW_ROWS = 1000
"""Enough for a join that reads for every row."""
_WARM_SHARE = 0.3


@dataclass(frozen=True)
class Served:
    """An operator in the steady state, at the paper's sizes.

    Attributes:
        rows_per_second: The service rate.
        loop_seconds: Seconds per iteration.
        loop_rows: Rows answered per iteration.
        loop_hits: Rows answered without a read in that time.
        rows_waiting: Pending rows.
    """

    rows_per_second: float
    loop_seconds: float
    loop_rows: float
    loop_hits: float
    rows_waiting: float


def service_rate(setting: QueueSetting, world: World) -> Measurement:
    """Rows per second when rows are always available."""
    served = served_in(setting, world)
    return Measurement(served.rows_per_second, vars(served))


def loop_seconds(setting: QueueSetting, world: World) -> Measurement:
    """Seconds per iteration."""
    served = served_in(setting, world)
    return Measurement(served.loop_seconds, vars(served))


@cache
def served_in(setting: QueueSetting, world: World) -> Served:
    """Measured or predicted, once for all figures that need it."""
    return serve(setting.at(world)) if setting.model is None else predict(setting.at(world))


def predict(scaled: Scaled) -> Served:
    """The prediction of the model."""
    rows, seconds, hits = predicted_loop(scaled)
    scale = 1 if scaled.is_inlj else scaled.world.scale
    return Served(rows / seconds, seconds * scale, rows * scale, hits * scale, scaled.waiting_rows * scale)


def serve(scaled: Scaled) -> Served:
    """What the operator does when rows are always available, once it is warm.

    The same number of rows is pending whenever it begins to read, so the measurement begins and ends there.
    """
    clock = SimulatedClock()
    machine = Machine(clock, SimulatedDisk(clock, scaled.disk), simulation.ROW_SECONDS)
    rows = scaled.stream().draw(scaled.world)
    portion = 1 if scaled.is_inlj else 1 + scaled.waiting_rows // _PORTIONS
    rows = rows.slice(0, _FEW_ROWS) if scaled.is_inlj else rows
    with scaled.operator(machine) as operator:
        marks = list(_reads(operator, machine, rows, portion))
    first, last = marks[int(_WARM_SHARE * len(marks))], marks[-1]
    return first.until(last, 1 if scaled.is_inlj else scaled.world.scale)


@dataclass(frozen=True)
class _Mark:
    """Counters of an operator right after a read."""

    seconds: float
    rows: float
    loops: float
    hits: float
    waiting_rows: float

    def until(self, later: "_Mark", scale: int) -> Served:
        rows, loops, seconds = later.rows - self.rows, later.loops - self.loops, later.seconds - self.seconds
        return Served(
            rows_per_second=rows / seconds,
            loop_seconds=seconds / loops * scale,
            loop_rows=rows / loops * scale,
            loop_hits=(later.hits - self.hits) / loops * scale,
            rows_waiting=later.waiting_rows * scale,
        )


def _reads(operator: QueuedJoin, machine: Machine, rows: pa.RecordBatch, portion: int) -> Iterator[_Mark]:
    """Hand over all rows; yields after every read of the operator."""
    loops = 0.0
    for first in range(0, rows.num_rows, portion):
        batch = rows.slice(first, portion)
        machine.take(batch.num_rows)
        for _ in operator.push(batch):
            pass
        now = operator.metrics()
        if now["iterations"] > loops:
            loops = now["iterations"]
            yield _Mark(machine.clock.now(), now["rows_in"], loops, now["cache_hits"], now["rows_waiting"])
