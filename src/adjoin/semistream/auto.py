"""The join that the cost models expect to be fastest, given what the stream asks for."""

import datetime
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import plain_columns, take_rows
from adjoin.errors import BudgetError, OptionError
from adjoin.kernels.search import count_pages
from adjoin.kernels.types import Array
from adjoin.keys.predicate import Distance
from adjoin.master.device import Device, Disk
from adjoin.master.master import Master
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.memory.budget import parse_bytes
from adjoin.memory.page_memory import PageMemory
from adjoin.operators.clock import Clock, SystemClock, clock_of
from adjoin.operators.on import On
from adjoin.semistream.base.contract import SemiStreamOperator
from adjoin.semistream.base.join import require_master
from adjoin.semistream.base.spec import make_spec
from adjoin.semistream.frontstage.stage import FrontStage, FrontStaged
from adjoin.semistream.hybridjoin.xhybridjoin import XHybridJoin, without_chance
from adjoin.semistream.meshjoin.meshjoin import MeshJoin
from adjoin.semistream.models import meshjoin, ssij, xhybridjoin
from adjoin.semistream.models.iteration import best_buffer_bytes
from adjoin.semistream.models.popularity import coarser
from adjoin.semistream.models.setting import CostConstants, Setting
from adjoin.semistream.ssij import SSIJ

_PROCESSOR_SECONDS = {"xhybridjoin+front": 8e-6, "ssij+front": 1.3e-6, "cmeshjoin": 7e-6, "ssij": 0.9e-6}
"""Of a row, roughly, measured where reading is almost free; a simulated clock does not count it."""
_WORTH_A_CHANGE = 1.15
_ROWS_PER_PAGE, _MOST_ROWS_PER_PAGE = 4, 64
"""Stream rows between two choices, for every page of the master: at least, and at most."""
_COUNT_BYTES = 4
_FIRST_WORK_SHARE = 1 / 16
"""Of the memory, what the models may use before there is a join."""
_SAMPLE_ROWS, _MOST_STEP = 2048, 8
"""The sample: every eighth row of large batches, every eighth of small batches."""
_SCAN_BYTES = 58
"""Of a pending row of a scan, in addition to its values, including what even admission leaves unused."""
_LOAD_BYTES, _LOAD_PAIR_BYTES = 21, 24
_PHASE_BYTES, _PHASE_PAIR_BYTES = 25, 8
"""Of a row that waits for pages, in addition to its values: for itself, and for every page."""
_ADDED = (
    "rows_in",
    "cache_hits",
    "rows_unmatched",
    "pages_read",
    "seeks",
    "bytes_read",
    "front_hits",
    "iterations",
)
_GREATEST = ("peak_bytes", "seconds_waiting_max")
_ACCOUNT = "watch"
"""Of the budget, for the counts of pages."""


@dataclass(frozen=True)
class Choice:
    """A choice of a join, and the reason for it.

    Attributes:
        algorithm: The name of the join.
        reason: What the models expect of it and of the others.
        rates: The rows per second that they expect of each.
    """

    algorithm: str
    reason: str
    rates: dict[str, float]


class AutoJoin(SemiStreamOperator):
    """Joins a stream with the operator that suits master, memory, device and stream best.

    How it works: the first rows tell which pages the stream wants. From that, the sizes, and the cost of
    reading, the models predict the rate of every candidate: X-HYBRIDJOIN, SSIJ and MESHJOIN, each behind a
    cache of rows, and SSIJ alone, which takes the least processor time. The choice is made again when more of
    the stream has been seen, and a join that promises clearly more takes over once the previous one has
    answered its rows.

    Args:
        is_paced: The stream pauses before the memory is full, and everything is answered at each pause, as in
            micro-batches: SSIJ then reads every page once, in the order of the disk.
        deadline: Refused: only `SSIJ` keeps deadlines.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`.

    Example:
        >>> import adjoin, pyarrow as pa, tempfile
        >>> products = pa.table({"id": [1, 2, 3], "name": ["pen", "ink", "pad"]})
        >>> sales = pa.record_batch({"id": [3, 1, 9], "amount": [5, 7, 1]})
        >>> with tempfile.TemporaryDirectory() as path:
        ...     master = adjoin.Master.build(products, key="id", path=path + "/products")
        ...     with adjoin.AutoJoin(master, on="id", memory="4MB") as join:
        ...         result = pa.Table.from_batches(join.run([sales]))
        ...         reason = join.metrics()["reason"]
        >>> sorted(zip(*result.to_pydict().values())), "rows a second" in reason
        ([(1, 7, 'pen'), (3, 5, 'pad')], True)

    Cost:
        That of the chosen join; four bytes for every page of the master, and an index lookup for a sample of
        the rows.
    """

    candidates: ClassVar[dict[str, type[FrontStaged] | type[SSIJ]]] = {
        "xhybridjoin+front": FrontStage(XHybridJoin),
        "ssij+front": FrontStage(SSIJ),
        "cmeshjoin": FrontStage(MeshJoin),
        "ssij": SSIJ,
    }

    def __init__(
        self,
        master: Master,
        on: On,
        how: str = "inner",
        memory: int | str = "64MB",
        *,
        is_paced: bool = False,
        columns: Sequence[str] | None = None,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_master",
        deadline: float | datetime.timedelta | str | None = None,
        device: Device | None = None,
        clock: Clock | None = None,
        pages: PageMemory | None = None,
        shared_index: bool = False,
    ) -> None:
        super().__init__()
        require_master(master)
        if deadline is not None:
            raise OptionError('algorithm="auto" keeps no deadlines; "ssij" and "ssij+front" do')
        self._total_bytes = parse_bytes(memory)
        arguments.flag("shared_index", shared_index)
        self._is_paced = arguments.flag("is_paced", is_paced)
        self._spec = make_spec(master, on, how, columns, within, between, suffix)
        given = arguments.kind("pages", pages, PageMemory)
        _check_memory(
            self._total_bytes,
            self.least_memory(
                master, pages=type(PageMemory() if given is None else given), shared_index=shared_index
            ),
        )
        self._shared_index = shared_index
        self._owns_device = arguments.kind("device", device, Device) is None
        self._device: Device = Disk() if device is None else device
        self._clock = clock_of(clock)
        self._make = partial(
            _make,
            on=on,
            how=how,
            memory=self._total_bytes,
            columns=columns,
            within=within,
            between=between,
            suffix=suffix,
            device=self._device,
            clock=self._clock,
            pages=pages,
            shared_index=shared_index,
        )
        self._before: dict[str, Any] = dict.fromkeys((*_ADDED, *_GREATEST), 0)
        self._choices = 0
        self._row_bytes = 40.0
        self._watch(master)
        self._choice = self._choose()
        self._join = self._start(master)

    @classmethod
    def least_memory(
        cls, master: Master, *, pages: type[PageMemory] = PageMemory, shared_index: bool = False
    ) -> int:
        """The least budget with which a join with this master works, whatever its columns."""
        least = SSIJ.least_memory(master, pages=pages, shared_index=shared_index)
        return least + _COUNT_BYTES * master.pages

    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""
        return self._join.schema_of(stream)

    def metrics(self) -> dict[str, Any]:
        """The metrics of all joins so far, added up; also `algorithm`, `reason` and `choices`."""
        now = self._join.metrics()
        return {
            **now,
            **{name: self._before[name] + now.get(name, 0) for name in _ADDED},
            **{name: max(self._before[name], now[name]) for name in _GREATEST},
            "rows_out": self._rows_out,
            "memory_bytes": self._total_bytes,
            "algorithm": self._choice.algorithm,
            "reason": self._choice.reason,
            "choices": self._choices,
        }

    def _close(self) -> None:
        self._join.close()
        if self._owns_device:
            self._device.close()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""
        self._join.check_invariants()

    def offer(self, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer of the current join; False if there is no room."""
        self._check_open()
        self._check_batch(batch)
        return self._join.offer(batch)

    # The contract.

    def check_master(self, master: Master) -> None:
        """Raise an error unless `refresh` can continue with this master."""
        self._join.check_master(master)

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""
        self._join.check_rows(batch)

    def _begin(self, stream: pa.Schema) -> None:
        self._join.expect(stream)

    def _push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._look(batch)
        if self._seen_rows >= self._rows_to_choose:
            yield from self._choose_again()
        yield from self._join.push(batch)

    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        yield from self._join.idle(seconds)

    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        self._join.reserve(_ACCOUNT, 0)
        yield from self._join.refresh(master)
        self._watch(master.seen_as(self._master.view()))
        self._take_room_to_watch(self._join)

    def _finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._join.finish()
        self._ended = True

    # What the stream asks for.

    def _watch(self, master: Master) -> None:
        """Start counting which pages of this version the stream wants."""
        self._master = master
        self._counts: Array = np.zeros(master.pages, np.float32)
        self._seen_rows = 0
        self._batches = 0
        self._rows_to_choose: float = inf if self._is_paced else 1
        self._pages_per_row = 1.0

    def _look(self, batch: pa.RecordBatch) -> None:
        """Count the pages that a sample of the rows wants."""
        if batch.num_rows == 0 or self._rows_to_choose == inf:
            return
        self._batches += 1
        if self._seen_rows and batch.num_rows < _SAMPLE_ROWS and self._batches % _MOST_STEP:
            return
        step = min(_MOST_STEP, max(1, batch.num_rows // _SAMPLE_ROWS))
        keys = plain_columns(batch.select(self._spec.predicate.columns))
        sample = take_rows(keys, np.arange(0, batch.num_rows, step))
        self._seen_rows += sample.num_rows
        self._row_bytes = batch.nbytes / batch.num_rows
        low, high, valid = self._spec.predicate.bounds(sample)
        rows = slice(None) if valid is None else valid
        low, high = low[rows], high[rows]
        start, stop = np.empty(len(low), np.int32), np.empty(len(low), np.int32)
        order = np.argsort(low, kind="stable")
        start[order], stop[order] = self._master.checked_index.locate(low[order], high[order])
        if len(start):
            self._pages_per_row = max(1.0, float(np.maximum(stop - start, 0).mean()))
            count_pages(start, stop, self._counts)

    # The choice.

    def _start(self, master: Master) -> FrontStaged | SSIJ:
        self._choices += 1
        join = self._make(self.candidates[self._choice.algorithm], master)
        self._take_room_to_watch(join)
        return join

    def _take_room_to_watch(self, join: FrontStaged | SSIJ) -> None:
        """Account for the counts; if rows leave no room for them, do without."""
        if not join.reserve(_ACCOUNT, self._counts.nbytes):
            self._counts = self._counts[:0].copy()

    def _choose(self) -> Choice:
        if self._is_paced or self._master.pages == 0:
            why = "everything is answered at each pause: every page is read once, in the order of the disk"
            return Choice("ssij+front", why, {})
        rates = self._with_processor(self._rates())
        best = max(rates, key=lambda name: rates[name])
        expected = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        share = self._total_bytes / (self._master.pages * self._master.page_bytes)
        return Choice(
            best,
            f"memory {share:.1%} of the master, {self._seen_rows:,} rows seen; rows a second: {expected}",
            rates,
        )

    def _rates(self) -> dict[str, float]:
        """The rows per second that the models expect of the candidates, leaving the cache of rows aside."""
        master = self._master
        cost = self._device.cost([file.path for file in master.files])
        constants = CostConstants(cost.positioning_seconds, cost.block_seconds / BLOCK_BYTES)
        counts, _ = coarser(self._counts, self._work_bytes)
        weights = without_chance(counts) if counts.any() else np.ones(len(counts))
        index_bytes = 0 if self._shared_index else master.checked_index.nbytes
        scanned = self._setting(_SCAN_BYTES, 0)
        loaded = self._setting(_LOAD_BYTES + _LOAD_PAIR_BYTES * self._pages_per_row, index_bytes)
        phased = self._setting(_PHASE_BYTES + _PHASE_PAIR_BYTES * self._pages_per_row, index_bytes)
        return {
            "xhybridjoin+front": self._tuned_rate(loaded, constants, weights),
            "ssij+front": ssij.service_rate(phased, constants, weights),
            "cmeshjoin": meshjoin.service_rate(scanned, constants, best_buffer_bytes(scanned, constants)),
        }

    @staticmethod
    def _tuned_rate(setting: Setting, constants: CostConstants, weights: Array) -> float:
        try:
            return xhybridjoin.tune(setting, constants, weights, pinned_rows_wait=False).rows_per_second
        except BudgetError:  # there is no memory for pages that are seen so coarsely
            return 0.0

    @property
    def _work_bytes(self) -> int:
        """Memory for the models: that of a step of the current join, which is idle while they run."""
        if self._choices == 0:
            return int(_FIRST_WORK_SHARE * self._total_bytes)
        return self._join.work_bytes

    def _with_processor(self, rates: dict[str, float]) -> dict[str, float]:
        """The rates on a real clock: where reading is cheap, processor time decides."""
        if not isinstance(self._clock, SystemClock):
            return rates
        rates["ssij"] = rates["ssij+front"]
        return {name: rate / (1 + rate * _PROCESSOR_SECONDS[name]) for name, rate in rates.items()}

    def _setting(self, state_bytes: float, index_bytes: int) -> Setting:
        master = self._master
        spare_bytes = self._total_bytes - self.least_memory(master, shared_index=True) // 2 - index_bytes
        spare_bytes = max(spare_bytes, 4 * master.page_bytes)
        row_bytes = min(self._row_bytes + state_bytes, spare_bytes / 4)
        return Setting(spare_bytes, master.pages, master.page_bytes, row_bytes)

    def _choose_again(self) -> Generator[pa.RecordBatch, None, None]:
        """Choose again by what was seen; the current join answers its rows before another one takes over."""
        pages = self._master.pages
        if len(self._counts) == 0:
            self._rows_to_choose = inf
            return
        rows_between = min(max(self._seen_rows, _ROWS_PER_PAGE * pages), _MOST_ROWS_PER_PAGE * pages)
        self._rows_to_choose = self._seen_rows + rows_between
        choice = self._choose()
        self._counts /= 2  # the past counts less
        if not self._is_worth_it(choice):
            self._choice = replace(choice, algorithm=self._choice.algorithm)
            return
        yield from self._join.finish()
        past = self._join.metrics()
        for name in _ADDED:
            self._before[name] += past.get(name, 0)
        for name in _GREATEST:
            self._before[name] = max(self._before[name], past[name])
        self._join.close()
        self._choice = choice
        self._join = self._start(self._master)
        if self._stream_schema is not None:
            self._begin(self._stream_schema)

    def _is_worth_it(self, choice: Choice) -> bool:
        return choice.rates[choice.algorithm] > _WORTH_A_CHANGE * choice.rates[self._choice.algorithm]


def _make(kind: type[FrontStaged] | type[SSIJ], master: Master, **options: Any) -> FrontStaged | SSIJ:
    """One of the candidates, with options that all of them have."""
    return kind(master, **options)


def _check_memory(memory_bytes: int, least_bytes: int) -> None:
    if memory_bytes < least_bytes:
        raise BudgetError(
            f"memory={memory_bytes} is too small for this master; give memory={least_bytes} or more"
        )
