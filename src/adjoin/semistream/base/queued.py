"""Joins whose pending rows are in a queue that fills the memory, while pages come and go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from adjoin.arguments import whole_number
from adjoin.keys.predicate import Distance
from adjoin.master.device import Device
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock
from adjoin.operators.on import On
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.join import Algorithm, JoinParts, SemiStreamJoin, make_parts, require_master
from adjoin.semistream.base.queue import QueueRoom, RowQueue
from adjoin.semistream.base.spec import make_spec
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.setting import CostConstants, Setting
from adjoin.semistream.pages.split import Landing, LandingRoom

_MOST_DISK_SHARE = 0.5
_DECAY = 0.9


class QueueAlgorithm(Protocol):
    """Makes the algorithm of a join."""

    def __call__(self, parts: JoinParts, intake: Intake, room: QueueRoom) -> Algorithm:
        """The algorithm, of these parts."""


@dataclass(frozen=True)
class DiskBuffer:
    """How many pages one load reads: as asked for, or where reading and memory are in balance.

    A larger load answers more rows for one positioning of the disk, but takes memory from the rows.

    Attributes:
        pages: Pages of a load; None chooses.
    """

    pages: int | None

    def __call__(self, room: LandingRoom) -> Landing:
        """The landing for this much memory."""
        if self.pages is not None:
            return Landing(min(self.pages, max(room.pages, 1)))
        constants = CostConstants(room.cost.positioning_seconds, room.cost.block_seconds / BLOCK_BYTES)
        best_bytes = best_buffer_bytes(Setting(room.bytes, 1, 1, 1), constants)
        most = min(int(_MOST_DISK_SHARE * room.bytes / room.slot_cost) - 8, room.pages)
        return Landing(max(1, min(round(best_bytes / room.slot_cost), most)))


class QueuedJoin(SemiStreamJoin):
    """The options of a join whose rows fill the memory while loads of pages answer some of them.

    Args:
        disk_pages: Pages that one load reads; by default where reading and memory are in balance.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`.

    Attributes:
        algorithm: What the join does with rows.
        needs_index: Whether it looks rows up in the index; if not, the index is never part of `memory`.
    """

    algorithm: ClassVar[QueueAlgorithm]
    needs_index: ClassVar[bool] = True

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
        require_master(master)
        check_pages("disk_pages", disk_pages)
        parts = make_parts(
            master,
            make_spec(master, on, how, columns, within, between, suffix),
            memory,
            decay=_DECAY,
            device=device,
            clock=clock,
            pages=pages,
            shared_index=shared_index if self.needs_index else True,
            kind=type(self).__name__,
            landing=DiskBuffer(disk_pages),
        )
        room = QueueRoom(parts.pages, parts.budget, RowQueue())
        intake = Intake(parts.pages, parts.budget, parts.clock, room)
        super().__init__(parts, intake, type(self).algorithm(parts, intake, room))

    @classmethod
    def least_memory(
        cls, master: Master, *, pages: type[PageMemory] = PageMemory, shared_index: bool = False
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        is_shared = shared_index if cls.needs_index else True
        return super().least_memory(master, pages=pages, shared_index=is_shared)


def check_pages(name: str, pages: int | None) -> None:
    """Raise an OptionError unless this is a number of pages, or None."""
    if pages is not None:
        whole_number(name, pages, 1)
