"""A machine of the papers' time, and what an operator achieves on it.

Time passes on a simulated clock, and only where the machine says so: a read takes the time of the simulated
disk, a stream row and a block of the master take some processor time, results take none. So the numbers are
the same on every machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.master.device import HARD_DISK, Cost, Device, Disk, SimulatedDisk
from adjoin.operators.clock import Clock, SimulatedClock, SystemClock
from workloads import Arrivals

ROW_SECONDS = 1e-6
"""To take a stream row, find its pages and join it: the processor is limited to a million rows per second."""
BLOCK_SECONDS = 2.5e-6
"""To process the rows in a block of the master, about 80 ns for each of 32."""
PAPERS_DISK = Cost(HARD_DISK.positioning_seconds, HARD_DISK.block_seconds + BLOCK_SECONDS)

_WARM_SHARE = 0.5
_ROUNDS = 2
_DEADLINES_TO_LEARN, _DEADLINES = 30, 50
_TOLERANCE = 0.03
_HOPELESS = 1 / 4096


class Operator(Protocol):
    """The operator measured: a semi-stream join."""

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...
    def offer(self, batch: pa.RecordBatch) -> bool: ...
    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]: ...
    def finish(self) -> Iterator[pa.RecordBatch]: ...
    def metrics(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Machine:
    """The machine an operator runs on.

    Attributes:
        clock: Its clock.
        device: The device that holds the master.
        row_seconds: Seconds per stream row, in addition to what the clock measures by itself.
    """

    clock: Clock
    device: Device
    row_seconds: float = 0.0

    def take(self, rows: int) -> None:
        """Let the time pass that this many stream rows take."""
        if self.row_seconds:
            self.clock.sleep(rows * self.row_seconds)


def simulated_machine(disk: Cost = PAPERS_DISK) -> Machine:
    """A machine whose clock advances only while it works."""
    clock = SimulatedClock()
    return Machine(clock, SimulatedDisk(clock, disk), ROW_SECONDS)


def real_machine() -> Machine:
    """This machine."""
    return Machine(SystemClock(), Disk())


@dataclass(frozen=True)
class Stream:
    """The rows that arrive, and how many of them a run takes.

    An operator is warm once it has read as many pages as the master has, or taken its share of the rows; it
    is measured over a given number of further rounds.

    Attributes:
        rows: The rows.
        round_pages: Pages of the master.
        portion_rows: Rows handed over together; few in relation to the operator's memory.
    """

    rows: pa.RecordBatch
    round_pages: int
    portion_rows: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def portion(self, first: int) -> pa.RecordBatch:
        """The portion that begins with this row."""
        return self.rows.slice(first, self.portion_rows)


@dataclass(frozen=True)
class Service:
    """What an operator did per row while rows were always available."""

    rows_per_second: float
    pages_per_row: float
    seeks_per_row: float
    hit_share: float


def service(operator: Operator, machine: Machine, stream: Stream) -> Service:
    """Hand rows over as fast as they are taken.

    An operator reads for many rows at once, so the measurement begins right after the first read that follows
    the warm-up, and ends right after the last one.
    """
    row = warm_up(operator, machine, stream)
    marks = [_Mark.of(operator, machine)]
    enough_pages = marks[0].pages_read + _ROUNDS * stream.round_pages
    while row < len(stream) and marks[-1].pages_read < enough_pages:
        row += _hand_over(operator, machine, stream.portion(row))
        mark = _Mark.of(operator, machine)
        if mark.pages_read > marks[-1].pages_read:
            marks.append(mark)
    if len(marks) > 2:
        return marks[-1].since(marks[1])
    return _Mark.of(operator, machine).since(marks[0])


def warm_up(operator: Operator, machine: Machine, stream: Stream) -> int:
    """Hand over rows until the operator is warm; returns how many."""
    row = 0
    while row < _WARM_SHARE * len(stream) and operator.metrics()["pages_read"] < stream.round_pages:
        row += _hand_over(operator, machine, stream.portion(row))
    return row


def _hand_over(operator: Operator, machine: Machine, batch: pa.RecordBatch) -> int:
    machine.take(batch.num_rows)
    for _ in operator.push(batch):
        pass
    return int(batch.num_rows)


@dataclass(frozen=True)
class _Mark:
    """Counters of an operator at a moment."""

    seconds: float
    rows: float
    pages_read: float
    seeks: float
    hits: float

    @classmethod
    def of(cls, operator: Operator, machine: Machine) -> "_Mark":
        now = operator.metrics()
        answered = now["rows_in"] - now["rows_waiting"]
        return cls(machine.clock.now(), answered, now["pages_read"], now["seeks"], now["cache_hits"])

    def since(self, before: "_Mark") -> Service:
        rows = self.rows - before.rows
        return Service(
            rows_per_second=rows / (self.seconds - before.seconds),
            pages_per_row=(self.pages_read - before.pages_read) / rows,
            seeks_per_row=(self.seeks - before.seeks) / rows,
            hit_share=(self.hits - before.hits) / rows,
        )


def highest_rate(is_kept: Callable[[float], bool], most: float, tolerance: float = _TOLERANCE) -> float:
    """The highest rate that is kept, at most `most`; 0 if none is.

    Searched downwards in doubling steps, because it is often close to `most`, and then by bisection.

    >>> round(highest_rate(lambda rate: rate < 700, most=1000, tolerance=0.001))
    700
    >>> highest_rate(lambda rate: True, most=1000)
    1000
    """
    kept = missed = most
    step = tolerance
    while not is_kept(kept):
        missed = kept
        kept, step = max(most * (1 - step), missed / 2), 2 * step
        if kept < most * _HOPELESS:
            return 0.0
    while missed - kept > 1.01 * tolerance * missed:
        middle = (kept + missed) / 2
        if is_kept(middle):
            kept = middle
        else:
            missed = middle
    return kept


def keeps_up(operator: Operator, machine: Machine, stream: Stream, arrivals: Arrivals) -> bool:
    """Whether an operator has room for all rows as they arrive, whatever it is busy with.

    After the warm-up, rows that have arrived are offered each time the operator yields. It does not keep up
    as soon as one of them finds no room.
    """
    operator.offer(stream.rows.slice(0, 0))  # announces that rows will arrive while it works
    arriving = _Arriving(machine, stream, warm_up(operator, machine, stream), arrivals)
    enough_pages = operator.metrics()["pages_read"] + _ROUNDS * stream.round_pages
    while arriving.left_rows and operator.metrics()["pages_read"] < enough_pages:
        if not _takes(operator, arriving):
            return False
    return True


def meets_deadlines(
    operator: Operator, machine: Machine, stream: Stream, arrivals: Arrivals, deadline_seconds: float
) -> bool:
    """Whether it also meets every deadline, after a few deadlines in which it may learn how long it takes.

    Unlike in `keeps_up`, the operator may act between arrivals.
    """
    operator.offer(stream.rows.slice(0, 0))  # announces that rows will arrive while it works
    arriving = _Arriving(machine, stream, warm_up(operator, machine, stream), arrivals)
    begin = machine.clock.now()
    learned = begin + _DEADLINES_TO_LEARN * deadline_seconds
    rows, missed = arriving.left_rows, np.inf

    def is_in_time() -> bool:
        nonlocal missed
        now_missed = operator.metrics()["deadlines_missed"]
        if machine.clock.now() < learned and arriving.left_rows > rows / 2:
            missed = now_missed
        return now_missed <= missed

    while arriving.left_rows and machine.clock.now() < begin + _DEADLINES * deadline_seconds:
        if not _has_room(operator, arriving, operator.idle(arriving.seconds_to_next()), is_in_time):
            return False
        if not _takes(operator, arriving, is_in_time):
            return False
    return is_in_time()


def _takes(operator: Operator, arriving: "_Arriving", is_fine: Callable[[], bool] = lambda: True) -> bool:
    """Hand over the next rows; the last of them makes the operator work."""
    batch = arriving.next()
    last = batch.num_rows - 1
    return _offer(operator, batch.slice(0, last)) and _has_room(
        operator, arriving, operator.push(batch.slice(last)), is_fine
    )


def _has_room(
    operator: Operator, arriving: "_Arriving", results: Iterator[pa.RecordBatch], is_fine: Callable[[], bool]
) -> bool:
    return all(is_fine() and _offer(operator, arriving.there()) for _ in results)


def _offer(operator: Operator, batch: pa.RecordBatch) -> bool:
    return batch.num_rows == 0 or operator.offer(batch)


class _Arriving:
    """The rows of a stream from a given one on, arriving from now on."""

    def __init__(self, machine: Machine, stream: Stream, first: int, arrivals: Arrivals) -> None:
        self._machine = machine
        self._rows = stream.rows.slice(first)
        self._times = machine.clock.now() + arrivals.times(self._rows.num_rows)
        self._portion_rows = stream.portion_rows
        self._taken = 0

    @property
    def left_rows(self) -> int:
        return int(self._rows.num_rows) - self._taken

    def seconds_to_next(self) -> float:
        """How long until the next portion has arrived."""
        return float(max(0.0, self._times[self._taken + self._portion() - 1] - self._machine.clock.now()))

    def next(self) -> pa.RecordBatch:
        """All rows that have arrived, at least the next portion."""
        self._machine.clock.sleep(self.seconds_to_next())
        return self._take(max(self._portion(), self._arrived()))

    def there(self) -> pa.RecordBatch:
        """All rows that have arrived, or none before a portion is complete."""
        arrived = self._arrived()
        return self._take(arrived if arrived >= self._portion() else 0)

    def _portion(self) -> int:
        return min(self._portion_rows, self.left_rows)

    def _arrived(self) -> int:
        return int(np.searchsorted(self._times, self._machine.clock.now(), "right")) - self._taken

    def _take(self, rows: int) -> pa.RecordBatch:
        batch = self._rows.slice(self._taken, rows)
        self._taken += rows
        self._machine.take(rows)
        return batch
