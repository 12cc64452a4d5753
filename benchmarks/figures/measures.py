"""What a point of a figure can be the measure of."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TypeVar

from adjoin.master.master import Master
from benchmarks.figures import simulation
from benchmarks.figures.figure import Measurement, World
from benchmarks.figures.setting import Setting
from benchmarks.figures.simulation import Machine, Operator, Service, Stream
from workloads import Arrivals, ConstantRate

T = TypeVar("T")

_BYTES_PER_PORTION_ROW = 1 << 16
"""So much memory for every row that arrives in a portion: a thousand portions and more would fill it."""
_PORTIONS_PER_DEADLINE = 50


@dataclass(frozen=True)
class Trial:
    """One setting in one world, with a new operator for each run."""

    setting: Setting
    world: World

    @cached_property
    def master(self) -> Master:
        return self.setting.master.open(self.world)

    @cached_property
    def stream(self) -> Stream:
        portion_rows = int(self.setting.memory * self.master.bytes) // _BYTES_PER_PORTION_ROW
        return Stream(self.setting.stream.draw(self.world), self.master.pages, max(1, portion_rows))

    def run(self, what: Callable[[Operator, Machine], T]) -> T:
        """Do something with a new operator on a new machine."""
        if self.world.is_real:
            machine = simulation.real_machine()
        else:
            machine = simulation.simulated_machine(self.setting.disk)
        with (
            closing(machine.device),
            self.setting.operator(self.master, self.world, machine) as operator,
        ):
            return what(operator, machine)

    def service(self) -> Service:
        """How it does when rows are always there."""
        return self.run(lambda operator, machine: simulation.service(operator, machine, self.stream))

    def keeps_up(self, rows_per_second: float) -> bool:
        """Whether this rate of arrivals leads to no overflow."""
        return self.keeps_up_with(self.stream, ConstantRate(rows_per_second))

    def keeps_up_with(self, stream: Stream, arrivals: Arrivals) -> bool:
        """Whether a stream that arrives so leads to no overflow."""
        return self.run(lambda operator, machine: simulation.keeps_up(operator, machine, stream, arrivals))

    def meets_deadlines(self, rows_per_second: float) -> bool:
        """Whether this rate leads neither to overflow nor to late answers."""
        deadline = self.setting.seconds["deadline"] / self.world.scale
        portion_rows = max(1, int(rows_per_second * deadline / _PORTIONS_PER_DEADLINE))
        stream = replace(self.stream, portion_rows=min(portion_rows, self.stream.portion_rows))
        arrivals = ConstantRate(rows_per_second)
        return self.run(
            lambda operator, machine: simulation.meets_deadlines(
                operator, machine, stream, arrivals, deadline
            )
        )


def service_rate(setting: Setting, world: World) -> Measurement:
    """Rows per second when rows are always there."""
    served = Trial(setting, world).service()
    return Measurement(served.rows_per_second, asdict(served))


def sustainable_rate(setting: Setting, world: World) -> Measurement:
    """The highest constant rate of arrivals without overflow.

    It is looked for below the service rate, which bounds it in the long run: a stream as short as the paper's
    would let the input buffer swallow some of the excess. A real disk gives the service rate alone.
    """
    trial = Trial(setting, world)
    served = trial.service()
    if world.is_real:
        return Measurement(served.rows_per_second, asdict(served))
    rate = simulation.highest_rate(trial.keeps_up, served.rows_per_second)
    return Measurement(rate, {"service": served.rows_per_second, **asdict(served)})


def timely_rate(setting: Setting, world: World) -> Measurement:
    """The highest constant rate of arrivals at which no deadline is missed."""
    served = Trial(replace(setting, seconds={}), world).service()
    rate = simulation.highest_rate(Trial(setting, world).meets_deadlines, served.rows_per_second)
    return Measurement(rate, asdict(served))
