"""One point of a figure: which join, how large its parts, as the papers count memory."""

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
"""A stream row of 20 bytes and its node of the queue, in the papers."""
_HELD_ROW_BYTES = ROW_BYTES + KeyedRows.row_bytes + RowQueue.state_bytes + 17
"""What MESHJOIN takes a row for when it divides its room."""
_ROOMY = 2.0
"""Memory that is given for what is counted: rows that left stay in it until the others close up."""

_ROUNDS = {"hybridjoin": 60, "xhybridjoin": 90}
_FEW_ROUNDS = 6
"""Length of the stream, in memories full of rows: loads of hot pages come by chance, scans do not."""
_MOST_ROWS = 4_000_000

Model = Literal["corrected", "mean", "paper"]
Parts = Literal["tuned", "equal"]


@dataclass(frozen=True)
class QueueSetting:
    """A join as the papers have it; all sizes are those of the paper.

    Attributes:
        algorithm: The operator's name.
        rows: Rows of the master.
        memory: Bytes of waiting rows and pages together.
        skew: The exponent of the stream.
        parts: X-HYBRIDJOIN: sizes of the pinned and the swappable part by the model, or both the best buffer
            of HYBRIDJOIN.
        disk_pages: Pages that are read together, if that is given.
        pinned_pages: Pages that stay in memory, if that is given.
        arrivals: Rows that arrive in a second; None if rows are always there.
        model: Do not measure, but predict, by this form of the model.
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
    """Room for so many rows, whatever bytes they take."""

    def __init__(self, operator: QueuedJoin, queue: RowQueue, rows: int) -> None:
        super().__init__(operator.parts.pages, operator.parts.budget, queue)
        self._rows = rows

    @property
    def bytes(self) -> int:
        """What MESHJOIN divides evenly."""
        return self._rows * _HELD_ROW_BYTES

    def has(self, more_bytes: int) -> bool:
        """Whether rows may still come."""
        is_below = self.queue.rows < self._rows
        return is_below and self._pages.make_room(more_bytes, ask_borrower=False)


@dataclass(frozen=True)
class Scaled:
    """A setting at a scale: master, memory and the time that a disk takes to position are divided by it.

    So all shares are the paper's: of memory in the master, of positioning in reading, of a load in all loads.
    Rows per second are those of the paper's sizes, rows and seconds of an iteration are divided by the scale.
    """

    setting: QueueSetting
    world: World

    @cached_property
    def master(self) -> Master:
        return KeyedMaster(rows=self.setting.rows, row_bytes=120, fill=1.0).open(self.world)

    @property
    def is_inlj(self) -> bool:
        """It reads a page for a row at any scale, so positioning is not divided."""
        return self.setting.algorithm == "inlj"

    @property
    def disk(self) -> Cost:
        """What reading costs."""
        scale = 1 if self.is_inlj else self.world.scale
        return Cost(PAPERS_DISK.positioning_seconds / scale, PAPERS_DISK.block_seconds)

    @cached_property
    def sizes(self) -> Sizes:
        """As models want them."""
        row_bytes = self.master.pages * PAGE_BYTES / self.master.rows
        memory = self.setting.memory / self.world.scale
        return Sizes(memory, self.master.rows, row_bytes, WAITING_ROW_BYTES)

    @property
    def constants(self) -> CostConstants:
        """As models want them."""
        disk = self.disk
        return CostConstants(
            disk.positioning_seconds, disk.block_seconds / BLOCK_BYTES, read_seconds=ROW_SECONDS
        )

    @cached_property
    def weights(self) -> Any:
        """How often the stream wants each page."""
        return page_weights(self.master, self.setting.skew)

    @cached_property
    def page_counts(self) -> tuple[int, int]:
        """Pages that are read together, pages that stay in memory."""
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
        """Rows that the paper's memory holds beside these pages."""
        return int(self.sizes.waiting_rows(PAGE_BYTES * sum(self.page_counts)))

    def stream(self) -> ZipfStream:
        """The stream, in the order of frequency."""
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
