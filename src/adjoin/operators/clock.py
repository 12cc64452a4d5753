"""The clock that operators use: the system's, or a simulated one."""

import time
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from adjoin import arguments


@dataclass(frozen=True)
class Pause:
    """In an input: nothing arrives for this number of seconds."""

    seconds: float


@runtime_checkable
class Clock(Protocol):
    def now(self) -> float:
        """Seconds since a fixed point in time."""

    def sleep(self, seconds: float) -> None:
        """Let this number of seconds pass."""


class SystemClock:
    """The system's clock, in seconds since 1970, comparable with timestamps in the data."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SimulatedClock:
    """A clock that advances only by `sleep`, so that every run sees the same times.

    >>> clock = SimulatedClock()
    >>> clock.sleep(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now = start_seconds

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def clock_of(clock: Clock | None) -> Clock:
    """The clock that was given, or the system's; an OptionError if it is not a clock."""
    arguments.kind("clock", clock, Clock)
    return SystemClock() if clock is None else clock
