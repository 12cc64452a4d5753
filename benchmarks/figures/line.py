"""Streams on a simulated clock: rows arrive while the join is busy, and results are counted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.master.device import HARD_DISK, Cost
from adjoin.operators.clock import SimulatedClock
from adjoin.streamjoin.base.phases import SpillingJoin
from adjoin.streamjoin.base.sizes import INPUT_SHARE
from workloads import ExponentialGaps, Fragments

J = TypeVar("J", bound=SpillingJoin)

ROW_BYTES = 200
BLOCK_BYTES = 8192
PAPERS_BLOCK_BYTES = 10 << 10
PORTION_ROWS = 100
ROWS_PER_SECOND = 1000.0
WAIT_SECONDS = 0.025
MAX_NEW = 1000
_FRAGMENTS = 10


def papers_disk() -> Cost:
    """A disk on which a block takes as long, relative to the arrivals, as it did on the paper's."""
    share = BLOCK_BYTES / PAPERS_BLOCK_BYTES
    papers_seconds = HARD_DISK.positioning_seconds + HARD_DISK.block_seconds / share
    slower = share * papers_seconds / HARD_DISK.seconds(1, BLOCK_BYTES // 4096)
    return Cost(HARD_DISK.positioning_seconds * slower, HARD_DISK.block_seconds * slower)


def arrival_times(batches: Sequence[pa.RecordBatch], silence: float, seed: int) -> list[NDArray[np.float64]]:
    """When the rows of each relation arrive, with an optional pause after each tenth of it."""
    times = []
    for number, batch in enumerate(batches):
        gaps = ExponentialGaps(ROWS_PER_SECOND, seed=seed + number)
        if silence:
            fragments = Fragments(gaps, max(1, batch.num_rows // _FRAGMENTS), silence)
            times.append(fragments.times(batch.num_rows))
        else:
            times.append(gaps.times(batch.num_rows))
    return times


class Line(SimulatedClock):
    """A clock that lets the rows of all relations arrive as time passes.

    Args:
        relations: The rows of every relation, by name.
        silence: The pause after each tenth of a relation, as a share of the time of that tenth.
        ahead_rows: How many rows may arrive before a busy join must take them.
        seed: The seed of the arrivals.

    Attributes:
        relations: The relations.
        batches: Their rows.
        most_outside: The most rows that had found no room in the input buffer when a reactive phase ended.
        refused: How often rows found no room.
    """

    def __init__(
        self, relations: Mapping[str, pa.RecordBatch], silence: float, ahead_rows: int, seed: int
    ) -> None:
        super().__init__()
        self.relations = dict(relations)
        self._names = tuple(relations)
        self.batches = tuple(relations.values())
        self._times = arrival_times(self.batches, silence, seed)
        self._end = max(float(times[-1]) for times in self._times) + WAIT_SECONDS
        self._taken = [0] * len(self.batches)
        self._join: SpillingJoin | None = None
        self._offers = silence > 0
        self._ahead_rows = ahead_rows
        self._is_idle = False
        self._phases, self._outside = 0, 0
        self.most_outside = 0
        self.refused = 0.0

    def join(self, make: Callable[..., J], memory: float, **options: Any) -> J:
        """A join with memory for tuples, as a share of the input, plus whatever it reserves for other uses.

        Args:
            make: Makes the join from its memory and options.
            memory: The share.
            **options: The options of the join.
        """
        tuples_bytes = int(memory * ROW_BYTES * sum(batch.num_rows for batch in self.batches))
        options |= {"block_bytes": BLOCK_BYTES, "columns": [], "max_new": self._ahead_rows}
        memory_bytes = tuples_bytes + (1 << 21)
        for _ in range(6):  # what a join reserves depends slightly on the total
            with make(memory=memory_bytes, **options) as join:
                sizes = join._storage.sizes
                aside = sizes.all_notes_bytes + sizes.work_bytes + sizes.reactive_bytes
            memory_bytes = int((tuples_bytes + aside) / (1 - INPUT_SHARE * self._offers))
        join = make(memory=memory_bytes, wait_seconds=WAIT_SECONDS, clock=self, disk=papers_disk(), **options)
        join._makes_room_for_reactive_phases()  # or tuples would use it until the first reactive phase
        return join

    def details(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics that explain the results of a join."""
        return {
            "online": metrics["results_online"],
            "reactive": metrics["results_reactive"],
            "blocks_flushed": metrics["blocks_flushed"],
            "pages_read": metrics["pages_read"],
            "buffer_most": metrics["input_buffer_rows_at_handover_max"] + self.most_outside,
            "buffer_mean": metrics["input_buffer_rows_at_handover"] / max(1, metrics["reactive_phases"]),
            "refused": self.refused,
        }

    def feed(self, join: SpillingJoin) -> Iterator[tuple[float, int]]:
        """Hand over all rows; yields the share that has arrived and the results so far."""
        total, found = sum(batch.num_rows for batch in self.batches), 0
        self._join = join
        yield 0.0, 0
        while sum(self._taken) < total:
            if self._offers and self._coming(1)[0] - self.now() > WAIT_SECONDS:
                self._is_idle = True
                found += self._count(join.idle(self._coming(self._ahead_rows + 1)[-1] - self.now()))
                self._is_idle = False
            self._let_pass(max(0.0, self._end_of_portion() - self.now()))
            for side, batch in self._due():
                found += self._count(join.push(self._names[side], batch))
            yield sum(self._taken) / total, found

    def sleep(self, seconds: float) -> None:
        """Let time pass; offer the rows that arrive meanwhile to the busy operator."""
        super().sleep(seconds)
        if self._join is not None and self._offers:
            if self._waiting() >= (1 if self._is_idle else PORTION_ROWS):
                for side, batch in self._due():
                    if not self._join.offer(self._names[side], batch):
                        self._taken[side] -= batch.num_rows
                        self.refused += 1
            if self._is_idle:
                self._note_outside(self._join.counters.reactive_phases)

    def _note_outside(self, phases: int) -> None:
        """If a reactive phase has ended, record the rows outside the buffer at its last block read."""
        if phases > self._phases:
            self.most_outside = max(self.most_outside, self._outside)
        self._phases, self._outside = phases, self._waiting()

    def _let_pass(self, seconds: float) -> None:
        super().sleep(seconds)

    def _coming(self, rows: int) -> NDArray[np.float64]:
        """When the next rows of all relations arrive."""
        times = np.concatenate([times[taken : taken + rows] for times, taken in self._ahead()])
        return np.sort(times)[:rows] if len(times) else np.array([self.now()])

    def _end_of_portion(self) -> float:
        """When a whole portion of rows has arrived, or a pause begins."""
        times = self._coming(PORTION_ROWS)
        silences = np.flatnonzero(np.diff(times) > WAIT_SECONDS)
        return float(times[silences[0]] if len(silences) else times[-1])

    def _ahead(self) -> list[tuple[NDArray[np.float64], int]]:
        return list(zip(self._times, self._taken, strict=True))

    def _waiting(self) -> int:
        return sum(int(np.searchsorted(times, self.now(), "right")) - taken for times, taken in self._ahead())

    def _due(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows that have arrived and were not taken yet."""
        for side, times in enumerate(self._times):
            first = self._taken[side]
            count = int(np.searchsorted(times, self.now(), "right")) - first
            if count > 0:
                self._taken[side] += count
                yield side, self.batches[side].slice(first, count)

    def _count(self, results: Iterator[pa.RecordBatch]) -> int:
        """Count the results emitted before all rows have arrived."""
        return sum(batch.num_rows for batch in results if self.now() <= self._end)
