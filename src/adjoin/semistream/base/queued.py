"""What joins have in common whose rows wait in a queue that fills the memory, while pages come and go."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from adjoin.arguments import whole_number
from adjoin.keys.predicate import Distance
from adjoin.master.device import Device
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.budget import MemoryBudget
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock
from adjoin.semistream.base.answering import Counts
from adjoin.semistream.base.buffered import BufferedJoin, Stage
from adjoin.semistream.base.buffers import MOST_STREAM_BYTES, InputBuffer
from adjoin.semistream.base.paged import check_master
from adjoin.semistream.base.spec import On, make_spec
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.setting import CostConstants, Setting
from adjoin.semistream.pages.resident import Residence
from adjoin.semistream.pages.split import Landing, Room

_INPUT_SHARE = 1 / 16
"""Part of the memory of rows that is left to rows that arrive meanwhile."""
_MOST_DISK_SHARE = 0.5
_DECAY = 0.9


@dataclass(frozen=True)
class DiskBuffer:
    """How many pages one load reads: as asked, or where reading and memory are in balance.

    A larger load answers more rows for one positioning of the disk, but takes memory from the rows.

    Attributes:
        pages: Pages of a load; None chooses.
    """

    pages: int | None

    def __call__(self, room: Room) -> Landing:
        """The landing for so much memory."""
        if self.pages is not None:
            return Landing(min(self.pages, max(room.pages, 1)))
        constants = CostConstants(room.cost.positioning_seconds, room.cost.block_seconds / BLOCK_BYTES)
        best_bytes = best_buffer_bytes(Setting(room.bytes, 1, 1, 1), constants)
        most = min(int(_MOST_DISK_SHARE * room.bytes / room.slot_cost) - 8, room.pages)
        return Landing(max(1, min(round(best_bytes / room.slot_cost), most)))


@dataclass
class LoadCounts(Counts):
    """What has happened since the start."""

    iterations: int = 0


class QueueStage(Stage, Protocol):
    """A stage that works in iterations, and can say whether it is sound."""

    @property
    def counts(self) -> LoadCounts:
        """What has happened since the start."""

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""


class QueueRoom:
    """How many bytes the rows of a queue may have.

    Attributes:
        ceded_bytes: What they leave to somebody else.
    """

    def __init__(self, pages: Residence, budget: MemoryBudget) -> None:
        self._pages = pages
        self._budget = budget
        self.ceded_bytes = 0

    @property
    def bytes(self) -> int:
        """The most that rows may have."""
        split = self._pages.split
        others_bytes = self._pages.pinned_slots * split.slot_cost + self.ceded_bytes
        return min(int((1 - _INPUT_SHARE) * split.stream_bytes) - others_bytes, MOST_STREAM_BYTES)

    def has(self, more_bytes: int) -> bool:
        """Whether rows may have so many bytes more."""
        held = self._budget.account("stream") + self._budget.account("inverted")
        return held + more_bytes <= self.bytes and self._pages.make_room(more_bytes, ask_guest=False)

    def account(self, stream_bytes: int, inverted_bytes: int) -> None:
        """From now on rows and what is noted of them take so much; columns may have grown when joined."""
        held = self._budget.account("stream") + self._budget.account("inverted")
        self._pages.make_room(stream_bytes + inverted_bytes - held)
        self._budget.set("inverted", 0)
        self._budget.set("stream", stream_bytes)
        self._budget.set("inverted", inverted_bytes)


class QueuedJoin(BufferedJoin):
    """A join whose rows fill the memory while loads of pages answer some of them, iteration by iteration.

    Args:
        master: The master; `vacuum` leaves its version alone until `refresh` or `close`.
        on: Key: a name, a list of names, or `{"stream column": "master column"}`.
        how: "inner", "left", "semi" or "anti".
        memory: Budget of the whole operator: bytes, or text such as "64MB".
        columns: Master columns to put out, in this order; all by default.
        within: Range join: master key between stream key - within and stream key + within.
        between: Range join: master key between these two stream columns; `on` names the master's key.
        suffix: Appended to a master column whose name the stream has too.
        disk_pages: Pages that one load reads; by default where reading and memory are in balance.
        device: What the master lies on; the file system by default.
        clock: Tells the time; the system's by default.
        pages: Where pages lie; memory of this operator alone by default.
        shared_index: Use the index of `master`, mapped from its file and shared by all who do so, which
            then is not part of `memory`.
    """

    _stage: QueueStage

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        columns: Sequence[str] | None = None,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_master",
        disk_pages: int | None = None,
        device: Device | None = None,
        clock: Clock | None = None,
        pages: PageMemory | None = None,
        shared_index: bool = False,
    ) -> None:
        check_master(master)
        check_pages("disk_pages", disk_pages)
        super().__init__(
            master,
            make_spec(master, on, how, columns, within, between, suffix),
            memory,
            decay=_DECAY,
            device=device,
            clock=clock,
            pages=pages,
            shared_index=self._shares_index(shared_index),
            landing=DiskBuffer(disk_pages),
        )
        self._room = QueueRoom(self._pages, self._budget)
        self._stage = self._make_stage()
        self._input = InputBuffer()

    def _shares_index(self, asked: bool) -> bool:
        return asked

    @abstractmethod
    def _make_stage(self) -> QueueStage: ...

    def cede(self, wanted_bytes: int) -> None:
        """Let rows have so many bytes less as soon as enough of them have left."""
        self._room.ceded_bytes = wanted_bytes

    @property
    def waiting_row_bytes(self) -> float:
        """What a row in the queue takes."""
        held = self._budget.account("stream") + self._budget.account("inverted")
        return held / max(self._stage.rows_waiting, 1)

    @property
    def turn(self) -> int:
        """The iteration."""
        return self._stage.counts.iterations

    @property
    def rows_of_a_round(self) -> float:
        """As many as the queue holds."""
        return self._room.bytes / max(self.waiting_row_bytes, 1)

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        super().check_invariants()
        self._stage.check_invariants()

    def _make_room(self, more_bytes: int) -> bool:
        return self._pages.make_room(more_bytes, ask_guest=not self._stage.rows_waiting)

    def _work(self) -> Iterator[pa.RecordBatch]:
        yield from self._look_all_up()


def check_pages(name: str, pages: int | None) -> None:
    """Raise an OptionError unless this is a number of pages, or None."""
    if pages is not None:
        whole_number(name, pages, 1)
