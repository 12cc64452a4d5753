"""A join that reads a master page by page: an algorithm behind an input buffer, within a budget."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import plain_columns
from adjoin.errors import OptionError
from adjoin.master.device import Device, Disk
from adjoin.master.master import Master
from adjoin.memory.budget import MemoryBudget, parse_bytes
from adjoin.memory.page_memory import PageFile, PageMemory
from adjoin.operators.clock import Clock, clock_of
from adjoin.semistream.base.answers import Answerer
from adjoin.semistream.base.contract import SemiStreamOperator
from adjoin.semistream.base.intake import Intake
from adjoin.semistream.base.queue import QueueRoom
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.resident import ResidentPages
from adjoin.semistream.pages.split import LandingRule, least_memory, two_waves


@dataclass(frozen=True)
class JoinParts:
    """What a join is made of, handed to its algorithm and shared with a front stage.

    Attributes:
        spec: The join specification.
        budget: The memory of the whole operator.
        clock: Tells the time.
        device: What the master is stored on.
        owns_device: Whether the join closes it.
        pages: The pages of the master in memory.
        answerer: Answers stream rows.
    """

    spec: JoinSpec
    budget: MemoryBudget
    clock: Clock
    device: Device
    owns_device: bool
    pages: ResidentPages
    answerer: Answerer


def make_parts(
    master: Master,
    spec: JoinSpec,
    memory: int | str,
    *,
    decay: float,
    device: Device | None,
    clock: Clock | None,
    pages: PageMemory | None,
    shared_index: bool,
    kind: str,
    landing: LandingRule = two_waves,
) -> JoinParts:
    """The parts of a join with these options.

    Args:
        master: See `SSIJ`.
        spec: The join specification.
        memory: See `SSIJ`.
        decay: What remains of a page's utility after a join phase.
        device: See `SSIJ`.
        clock: See `SSIJ`.
        pages: See `SSIJ`.
        shared_index: See `SSIJ`.
        kind: The kind of operator; only operators of the same kind use each other's pages.
        landing: Chooses how many pages are read at a time.
    """
    arguments.flag("shared_index", shared_index)
    budget = MemoryBudget(parse_bytes(memory))
    _check_page_file(arguments.kind("pages", pages, PageMemory), budget.total_bytes)
    clock = clock_of(clock)
    owns_device = arguments.kind("device", device, Device) is None
    device = Disk() if device is None else device
    names: Collection[str] = {*spec.columns, *spec.verified}
    resident = ResidentPages(
        master, names, budget, device, decay, pages, shared_index=shared_index, landing=landing, kind=kind
    )
    return JoinParts(spec, budget, clock, device, owns_device, resident, Answerer(spec, resident, clock))


def require_master(master: object) -> None:
    """Raise an OptionError unless this is a master."""
    if not isinstance(master, Master):
        raise OptionError(f"master={master!r} is not a Master; open it with adjoin.Master.open")


def _check_page_file(pages: PageMemory | None, memory_bytes: int) -> None:
    if isinstance(pages, PageFile) and pages.most_bytes < memory_bytes:
        raise OptionError(
            f"pages={pages.path} may occupy {pages.most_bytes} bytes, less than memory={memory_bytes}; "
            "give the file at least as much"
        )


class Algorithm(Protocol):
    """What a join does with the rows in its input buffer."""

    @property
    def room(self) -> QueueRoom | None:
        """The memory of the queue in which rows wait for their turn; None if there is no queue."""

    @property
    def rows_pending(self) -> int:
        """Rows that have been looked up and not answered yet."""

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, against the master version that is in memory."""

    def pending(self) -> Iterator[pa.RecordBatch]:
        """Rows have arrived: run the phases whose time has come."""

    def online_phase(self) -> Iterator[pa.RecordBatch]:
        """Answer rows of the input buffer that can be answered now; the others become pending."""

    def join_phase(self) -> Iterator[pa.RecordBatch]:
        """Read pages, and answer the pending rows that need them."""

    def metrics(self) -> dict[str, Any]:
        """The counters that only this algorithm has."""

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""


class SemiStreamJoin(SemiStreamOperator):
    """Joins a stream with a master by an algorithm that is handed in.

    What fits: a memory that the constructor accepts is enough for streams of any length, skew and order, as
    long as every stream row fits. A row takes the bytes of its values, 4 more for each string, binary or list
    (8 for large ones) and a bit for each nullable value; `metrics()["largest_row_bytes"]` says how many it
    may take: an eighth of the memory that rows can have, or 2 % of the whole memory at least. A batch with
    a larger row is refused as a whole with a `BudgetError` that names the memory that is enough; the join
    continues without it. Master rows of any size fit once the constructor has accepted the memory.

    Args:
        parts: What the join is made of.
        intake: The input buffer.
        algorithm: What happens to rows in it.

    Attributes:
        parts: What the join is made of.
    """

    def __init__(self, parts: JoinParts, intake: Intake, algorithm: Algorithm) -> None:
        super().__init__()
        self.parts = parts
        self._intake = intake
        self._algorithm = algorithm
        self._is_finishing = False

    @classmethod
    def least_memory(
        cls, master: Master, *, pages: type[PageMemory] = PageMemory, shared_index: bool = False
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        return least_memory(master, pages=pages, shared_index=shared_index)

    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""
        return self.parts.spec.output_schema(stream, self.parts.pages.master.schema)

    def metrics(self) -> dict[str, Any]:
        """Counters since the start.

        Rows: `rows_in`, `rows_out`, `rows_unmatched` (stream rows without a match), `cache_hits` (rows
        answered without a read), `rows_waiting` now. Reads: `pages_read`, `seeks` (scans),
        `bytes_read`. Time: `seconds_waiting_max`. Memory: `memory_bytes` (the budget), `peak_bytes` (the
        most ever accounted), `used_bytes` now and its parts, such as `index_bytes`, `pages_bytes`,
        `work_bytes`, `input_bytes` and `stream_bytes`; `largest_row_bytes`, the largest stream row that fits;
        `pages_cached`. Also `master_version`, and the counters of the algorithm.
        """
        pages, budget = self.parts.pages, self.parts.budget
        return {
            "rows_in": self._intake.rows_in,
            **vars(self.parts.answerer.counts),
            **self._algorithm.metrics(),
            "rows_out": self._rows_out,
            "memory_bytes": budget.total_bytes,
            "peak_bytes": budget.peak_bytes,
            **vars(pages.counts),
            "rows_waiting": self._intake.rows + self._algorithm.rows_pending,
            "pages_cached": len(pages.cache),
            "master_version": pages.master.version,
            "used_bytes": budget.used_bytes,
            "largest_row_bytes": self._intake.largest_row_bytes(len(self._stream_schema or ())),
            **{f"{name}_bytes": held for name, held in budget.accounts().items()},
        }

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self.parts.pages.check_invariants()
        self._intake.check_invariants()
        self._algorithm.check_invariants()

    def close(self) -> None:
        """Free files, threads and memory.

        Pages in a `PageFile` are left for the next operator, unless this one failed or results of its last
        call were not consumed to the end. In a fork of the process, everything is left to the parent.
        """
        super().close()

    def _close(self) -> None:
        self.parts.pages.close(is_sound=not self._failed and not self._busy)
        if self.parts.owns_device:
            self.parts.device.close()

    def offer(self, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer, evicting pages for them; False if there is no room.

        Unlike `push`, this can be called while results are being consumed. Rows in the input buffer take at
        most half of the memory that rows can have; the other half is for pending rows. Nothing is taken once
        `finish` has been called.
        """
        self._check_open()
        self._check_batch(batch)
        self._intake.is_offered = True
        return not self._is_finishing and self._intake.put(plain_columns(batch))

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""
        self._intake.check_rows(batch)

    def check_master(self, master: Master) -> None:
        """Raise an error unless `refresh` can continue with this master."""
        if not isinstance(master, Master):
            raise OptionError(f"refresh takes a Master, got {type(master).__name__}")
        master.seen_as(self.parts.pages.master.view()).close()

    # For an operator in front, which shares the memory of this one.

    @property
    def room(self) -> QueueRoom | None:
        """The memory of the queue in which rows wait for their turn; None if there is no queue."""
        return self._algorithm.room

    def reserve(self, account: str, wanted_bytes: int) -> bool:
        """Set memory of the budget aside, evicting pages for it; False if there is no room."""
        if not self.parts.pages.make_room(wanted_bytes):
            return False
        self.parts.budget.set(account, wanted_bytes)
        return True

    @property
    def work_bytes(self) -> int:
        """What one step may use for sorting, probing and building results."""
        return self.parts.pages.split.work_bytes

    def abandon(self) -> None:
        """Leave no pages for the next operator: the one in front has failed."""
        self._failed = True

    # The contract.

    def _check_mapped(self) -> None:
        self.parts.pages.check_memory()

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        super()._check_batch(batch)
        self.parts.spec.orders.note_columns(batch)

    def _begin(self, stream: pa.Schema) -> None:
        self._algorithm.begin(stream)

    def _push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for piece in self._intake.pieces(batch):
            while not self._intake.put(piece):
                yield from self._make_room(piece.nbytes)
            yield from self._algorithm.pending()

    def _make_room(self, row_bytes: int) -> Iterator[pa.RecordBatch]:
        """Answer rows, so that there is room for others."""
        if self._algorithm.rows_pending:
            yield from self._algorithm.join_phase()
        elif self._intake.rows:
            yield from self._algorithm.online_phase()
        else:
            raise self._intake.no_room(row_bytes)

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        end = self.parts.clock.now() + seconds
        yield from self._answer_all()
        self.parts.clock.sleep(max(0.0, end - self.parts.clock.now()))

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        pages = self.parts.pages
        while self._intake.rows and not pages.has_room_for(master):
            yield from self._algorithm.online_phase()
        yield from self._answer_pending()
        with master.seen_as(pages.master.view()) as same_columns:
            pages.replace(same_columns)
        if self._stream_schema is not None:
            self._begin(self._stream_schema)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        self._is_finishing = True
        yield from self._answer_all()
        self._ended = True

    def _answer_all(self) -> Iterator[pa.RecordBatch]:
        yield from self._intake.emptied(self._algorithm.online_phase)
        yield from self._answer_pending()

    def _answer_pending(self) -> Iterator[pa.RecordBatch]:
        while self._algorithm.rows_pending:
            yield from self._algorithm.join_phase()
