"""What a point of a figure can show."""

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
"""Memory per row of a portion: it would take more than a thousand portions to fill the memory."""
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
        """Run a function on a new operator on a new machine."""
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
        """Its performance when rows are always available."""
        return self.run(lambda operator, machine: simulation.service(operator, machine, self.stream))

    def keeps_up(self, rows_per_second: float) -> bool:
        """Whether this arrival rate causes no overflow."""
        return self.keeps_up_with(self.stream, ConstantRate(rows_per_second))

    def keeps_up_with(self, stream: Stream, arrivals: Arrivals) -> bool:
        """Whether a stream with these arrivals causes no overflow."""
        return self.run(lambda operator, machine: simulation.keeps_up(operator, machine, stream, arrivals))

    def meets_deadlines(self, rows_per_second: float) -> bool:
        """Whether this rate causes neither overflow nor missed deadlines."""
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
    """Rows per second when rows are always available."""
    served = Trial(setting, world).service()
    return Measurement(served.rows_per_second, asdict(served))


def sustainable_rate(setting: Setting, world: World) -> Measurement:
    """The highest constant arrival rate without overflow.

    It is searched below the service rate, its bound in the long run: with a stream as short as the paper's,
    the input buffer would absorb some of the excess. On a real disk only the service rate is measured.
    """
    trial = Trial(setting, world)
    served = trial.service()
    if world.is_real:
        return Measurement(served.rows_per_second, asdict(served))
    rate = simulation.highest_rate(trial.keeps_up, served.rows_per_second)
    return Measurement(rate, {"service": served.rows_per_second, **asdict(served)})


def timely_rate(setting: Setting, world: World) -> Measurement:
    """The highest constant arrival rate at which no deadline is missed."""
    served = Trial(replace(setting, seconds={}), world).service()
    rate = simulation.highest_rate(Trial(setting, world).meets_deadlines, served.rows_per_second)
    return Measurement(rate, asdict(served))
