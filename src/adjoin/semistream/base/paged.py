"""What joins that read a master page by page have in common: budget, clock, device, pages in memory."""

from abc import abstractmethod
from collections.abc import Collection, Iterator
from math import inf

import pyarrow as pa

from adjoin import arguments
from adjoin.errors import OptionError
from adjoin.master.device import Device, Disk
from adjoin.master.master import Master
from adjoin.memory.budget import MemoryBudget, parse_bytes
from adjoin.memory.page_memory import PageFile, PageMemory
from adjoin.operators.clock import Clock, SystemClock
from adjoin.semistream.base.contract import SemiStreamJoin
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.resident import Observer, Residence, least_memory
from adjoin.semistream.pages.split import LandingRule, two_waves


class PagedJoin(SemiStreamJoin):
    """A join that holds some pages of the master in memory and reads others.

    Args:
        master: The master; `vacuum` leaves its version alone until `refresh` or `close`.
        spec: The join.
        memory: Budget of the whole operator.
        decay: What remains of a page's utility after a join phase.
        device: What the master lies on; the file system by default.
        clock: Tells the time; the system's by default.
        pages: Where cached pages lie; memory of this operator by default.
        shared_index: Use the index of `master`, which then is not part of `memory`.
        landing: Chooses how many pages are read at a time.
    """

    def __init__(
        self,
        master: Master,
        spec: JoinSpec,
        memory: int | str,
        *,
        decay: float,
        device: Device | None,
        clock: Clock | None,
        pages: PageMemory | None,
        shared_index: bool,
        landing: LandingRule = two_waves,
    ) -> None:
        super().__init__()
        arguments.flag("shared_index", shared_index)
        self._spec = spec
        self._budget = MemoryBudget(parse_bytes(memory))
        _check_room(pages, self._budget.total_bytes)
        self._clock = clock or SystemClock()
        self._owns_device = device is None
        self._device: Device = Disk() if device is None else device
        names: Collection[str] = {*spec.columns, *spec.verified}
        self._pages = Residence(
            master,
            names,
            self._budget,
            self._device,
            decay,
            pages,
            shared_index=shared_index,
            landing=landing,
            kind=type(self).__name__,
        )

    @classmethod
    def least_memory(
        cls, master: Master, *, pages: type[PageMemory] = PageMemory, shared_index: bool = False
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        return least_memory(master, pages=pages, shared_index=shared_index)

    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""
        return self._spec.output_schema(stream, self._pages.master.schema)

    def observe(self, observer: Observer | None) -> None:
        """From now on, tell this function which rows were joined with which, while the pages are there."""
        self._pages.observer = observer

    def offer(self, batch: pa.RecordBatch) -> bool:  # noqa: ARG002
        """Put rows into the input buffer, if there is one; False if there is no room."""
        return False

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""

    def cede(self, wanted_bytes: int) -> None:
        """Do with so many bytes less, as soon as that is possible; pages are given away on request anyway."""

    @property
    def waiting_row_bytes(self) -> float:
        """Bytes that other rows could have if a row need not wait; 0 if rows do not wait for memory."""
        return 0.0

    @property
    def turn(self) -> int:
        """A number that changes when other pages have their turn to answer the rows that wait."""
        return 0

    @property
    def rows_of_a_round(self) -> float:
        """Rows that have to pass before a page is read again for rows that came after its last time."""
        return inf

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._pages.check_invariants()

    def close(self) -> None:
        """Give files, threads and memory back.

        Pages in a `PageFile` are left for the next operator, unless this one failed or results of its last
        call were not consumed to the end. In a fork of the process all is left to that one.
        """
        super().close()

    def _close(self) -> None:
        self._pages.close(is_sound=not self._failed and not self._busy)
        if self._owns_device:
            self._device.close()

    def _check_mapped(self) -> None:
        self._pages.check_memory()

    def _check_master(self, master: Master) -> None:
        if not isinstance(master, Master):
            raise OptionError(f"refresh takes a Master, got {type(master).__name__}")
        master.seen_as(self._pages.master.view()).close()

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        yield from self._join_all()
        with master.seen_as(self._pages.master.view()) as same_columns:
            self._pages.replace(same_columns)
        if self._stream_schema is not None:
            self._begin(self._stream_schema)

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        super()._check_batch(batch)
        self.check_rows(batch)
        self._spec.orders.note_columns(batch)

    @abstractmethod
    def _join_all(self) -> Iterator[pa.RecordBatch]:
        """Answer the rows that have been looked up on this version of the master."""


def check_master(master: object) -> None:
    """Raise an OptionError unless this is a master."""
    if not isinstance(master, Master):
        raise OptionError(f"master={master!r} is not a Master; open it with adjoin.Master.open")


def _check_room(pages: PageMemory | None, memory_bytes: int) -> None:
    if isinstance(pages, PageFile) and pages.most_bytes < memory_bytes:
        raise OptionError(
            f"pages={pages.path} may occupy {pages.most_bytes} bytes, less than memory={memory_bytes}; "
            "give the file as much"
        )
