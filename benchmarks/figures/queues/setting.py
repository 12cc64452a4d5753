"""One point of a figure: a join and the sizes of its parts, as the papers count memory."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from adjoin.master.device import Cost
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.page_memory import FinePages
from adjoin.semistream.algorithms import algorithm_named
from adjoin.semistream.base.queue import QueueRoom, RowQueue
from adjoin.semistream.base.queued import QueuedJoin
from adjoin.semistream.meshjoin.keyed_rows import KeyedRows
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.setting import CostConstants
from adjoin.semistream.models.setting import Setting as Sizes
from adjoin.semistream.models.xhybridjoin import tune
from benchmarks.figures.figure import World
from benchmarks.figures.masters import PAGE_BYTES, KeyedMaster
from benchmarks.figures.queues.popularity import page_weights
from benchmarks.figures.simulation import PAPERS_DISK, ROW_SECONDS, Machine
from benchmarks.figures.streams import ROW_BYTES, ZipfStream

MEGABYTE = 1e6
WAITING_ROW_BYTES = 32
"""A stream row of 20 bytes and its queue node, in the papers."""
_HELD_ROW_BYTES = ROW_BYTES + KeyedRows.row_bytes + RowQueue.state_bytes + 17
"""The size of a row for MESHJOIN when it divides its memory."""
_ROOMY = 2.0
"""Memory given per byte counted: rows that left occupy it until the queue is compacted."""

_ROUNDS = {"hybridjoin": 60, "xhybridjoin": 90}
_FEW_ROUNDS = 6
"""Length of the stream as a multiple of the memory: loads of hot pages are random, scans are not."""
_MOST_ROWS = 4_000_000

Model = Literal["corrected", "mean", "paper"]
Parts = Literal["tuned", "equal"]


@dataclass(frozen=True)
class QueueSetting:
    """A join of the papers, with the papers' sizes.

    Attributes:
        algorithm: The operator's name.
        rows: Rows of the master.
        memory: Bytes of pending rows and pages together.
        skew: The exponent of the stream.
        parts: X-HYBRIDJOIN: sizes of the pinned and the swappable part from the model, or both as large as
            the best buffer of HYBRIDJOIN.
        disk_pages: Pages read together, if given.
        pinned_pages: Pages that stay in memory, if given.
        arrivals: Rows that arrive per second; None if rows are always available.
        model: Predict with this form of the model instead of measuring.
    """

    algorithm: str
    rows: int = 2_000_000
    memory: float = 50 * MEGABYTE
    skew: float = 1.0
    parts: Parts = "tuned"
    disk_pages: int | None = None
    pinned_pages: int | None = None
    arrivals: float | None = None
    model: Model | None = None

    def with_(self, **changes: Any) -> "QueueSetting":
        """The same with other sizes."""
        return replace(self, **changes)

    def at(self, world: World) -> "Scaled":
        """The same at a scale."""
        return Scaled(self, world)


class PaperRoom(QueueRoom):
    """Room for a number of rows, whatever their size."""

    def __init__(self, operator: QueuedJoin, queue: RowQueue, rows: int) -> None:
        super().__init__(operator.parts.pages, operator.parts.budget, queue)
        self._rows = rows

    @property
    def bytes(self) -> int:
        """The bytes that MESHJOIN divides evenly."""
        return self._rows * _HELD_ROW_BYTES

    def has(self, more_bytes: int) -> bool:
        """Whether there is room for more rows."""
        is_below = self.queue.rows < self._rows
        return is_below and self._pages.make_room(more_bytes, ask_borrower=False)


@dataclass(frozen=True)
class Scaled:
    """A setting at a scale, which divides master, memory and the seek time of the disk.

    So all ratios are the paper's: of memory to master, of seek time to read time, of one load to all loads.
    Rows per second are those at the paper's sizes; rows and seconds per iteration are divided by the scale.
    """

    setting: QueueSetting
    world: World

    @cached_property
    def master(self) -> Master:
        return KeyedMaster(rows=self.setting.rows, row_bytes=120, fill=1.0).open(self.world)

    @property
    def is_inlj(self) -> bool:
        """INLJ reads a page per row at any scale, so its seek time is not divided."""
        return self.setting.algorithm == "inlj"

    @property
    def disk(self) -> Cost:
        """What reading costs."""
        scale = 1 if self.is_inlj else self.world.scale
        return Cost(PAPERS_DISK.positioning_seconds / scale, PAPERS_DISK.block_seconds)

    @cached_property
    def sizes(self) -> Sizes:
        """In the form that models take."""
        row_bytes = self.master.pages * PAGE_BYTES / self.master.rows
        memory = self.setting.memory / self.world.scale
        return Sizes(memory, self.master.rows, row_bytes, WAITING_ROW_BYTES)

    @property
    def constants(self) -> CostConstants:
        """In the form that models take."""
        disk = self.disk
        return CostConstants(
            disk.positioning_seconds, disk.block_seconds / BLOCK_BYTES, read_seconds=ROW_SECONDS
        )

    @cached_property
    def weights(self) -> Any:
        """How often the stream needs each page."""
        return page_weights(self.master, self.setting.skew)

    @cached_property
    def page_counts(self) -> tuple[int, int]:
        """Pages read together, and pages that stay in memory."""
        setting = self.setting
        if setting.disk_pages is not None:
            pinned = setting.pinned_pages or 0
            return self.world.scaled(setting.disk_pages), self.world.scaled(pinned) if pinned else 0
        if setting.algorithm == "xhybridjoin" and setting.parts == "tuned":
            tuned = tune(self.sizes, self.constants, self.weights, pinned_rows_wait=False)
            return tuned.swappable_pages, tuned.pinned_pages
        best = max(1, round(best_buffer_bytes(self.sizes, self.constants) / PAGE_BYTES))
        return min(best, self.master.pages), best if setting.algorithm == "xhybridjoin" else 0

    @property
    def waiting_rows(self) -> int:
        """Rows that the paper's memory holds next to these pages."""
        return int(self.sizes.waiting_rows(PAGE_BYTES * sum(self.page_counts)))

    def stream(self) -> ZipfStream:
        """The stream, keys numbered by frequency."""
        rounds = _ROUNDS.get(self.setting.algorithm, _FEW_ROUNDS)
        rows = min(rounds * self.waiting_rows, _MOST_ROWS) * self.world.scale
        return ZipfStream(self.setting.rows, rows, self.setting.skew, form="continuous")

    def operator(self, machine: Machine, how: str = "semi") -> QueuedJoin:
        """The operator, on a machine."""
        disk_pages, pinned_pages = self.page_counts
        make: Any = algorithm_named(self.setting.algorithm)
        held_bytes = 64 * self.waiting_rows + 1.1 * PAGE_BYTES * (disk_pages + 2 * pinned_pages)
        operator: QueuedJoin = make(
            self.master,
            on="key",
            how=how,
            columns=["row"] if how == "inner" else None,
            memory=make.least_memory(self.master) + int(_ROOMY * held_bytes),
            device=machine.device,
            clock=machine.clock,
            shared_index=True,
            pages=FinePages(),
            disk_pages=disk_pages,
            **({"pinned_pages": pinned_pages} if pinned_pages else {}),
        )
        assert operator.room is not None
        room = PaperRoom(operator, operator.room.queue, self.waiting_rows)
        operator._algorithm.room = room  # type: ignore[misc]
        return operator
