"""Time that is handed to operators: the system's, or one that only moves when told."""

import time
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Pause:
    """In an input: nothing arrives for so many seconds."""

    seconds: float


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""


class SystemClock:
    """Seconds since 1970, so that they compare with timestamps in the data."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SimulatedClock:
    """Stands still until somebody sleeps; every run sees the same times.

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
