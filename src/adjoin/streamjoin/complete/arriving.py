"""Rows that arrive: joined with the tuples in memory and with the pages of the other input, then kept."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.kernels.hashing import scatter
from adjoin.kernels.intervals import length_classes
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.spilled import are_in_window, mark_first
from adjoin.kernels.types import Array
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.phases import Placement
from adjoin.streamjoin.base.result_builder import InSlots, Others, sizes_of
from adjoin.streamjoin.base.spec import LEFT
from adjoin.streamjoin.complete.page_probe import PageProbe
from adjoin.streamjoin.complete.pages import KEYLESS, MATCHED
from adjoin.streamjoin.complete.setting import Setting, alone, skipped_marks
from adjoin.streamjoin.complete.time_bound import LEAST
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.memory.tuples import ARRIVED

_NO_TIMES: Array = np.empty(0, np.int64)
_NO_WINDOW: Array = np.zeros(6, np.int64)
MEMORY, DISK, KEEP = range(3)
"""What is done with rows that arrive, in this order."""


class Arriving:
    """Rows of a side on their way through the join; after a `StorageError`, `results` can be called again.

    They are joined in the order of their keys, all with memory first, then all with the pages; pages that
    cannot hold one of their keys, or a time that may match, are not read.

    Args:
        setting: What they are joined with.
        side: Their side.
        batch: The rows, in plain types.
        numbers: The number of each.
        keep_from: Rows with a smaller time are not kept; None: all are.

    Attributes:
        side: Their side.
        rows: How many there are.
        setting: What they are joined with.
        low, high: The key intervals of those that can match, as they are sorted.
        time: Their times.
        window: The window of their partners' times.
    """

    def __init__(
        self, setting: Setting, side: int, batch: pa.RecordBatch, numbers: Array, keep_from: int | None
    ) -> None:
        self.setting, self.side, self._batch = setting, side, batch
        self._spec, self._storage = setting.spec, setting.storage
        self._numbers, self._keep_from = numbers, keep_from
        self._sizes = sizes_of(batch)
        self.rows = batch.num_rows
        self._stage = MEMORY
        self._sort(batch)
        self._matched = np.zeros(len(self._order), np.uint8)
        self._pages = PageProbe(setting, side)
        self._parts: Iterator[Placement] | None = None

    def _sort(self, batch: pa.RecordBatch) -> None:
        """Put the rows that can match in the order of their keys, those with longer intervals last."""
        low, high, valid = self._spec.condition.bounds(self.side, batch)
        self._time = _NO_TIMES
        bound = self._spec.bound
        if bound is not None:
            self._time, timed = bound.times(self.side, batch)
            if timed is not None:
                valid = timed if valid is None else valid & timed
                self._time = np.where(timed, self._time, LEAST)
        self._loose = np.empty(0, np.int64)
        if valid is None or valid.all():
            self._order = argsort_keys(low)
        else:
            rows, self._loose = np.flatnonzero(valid), np.flatnonzero(~valid)
            self._order = rows[argsort_keys(low[rows])]
        self.low = low[self._order]
        self.high = self.low if high is low else high[self._order]
        self._sections = [(0, len(self.low))]
        if high is not low:
            self._sort_by_length()
        self.time = self._time[self._order] if bound is not None else _NO_TIMES
        self.window = _NO_WINDOW if bound is None else bound.windows[self.side]

    def _sort_by_length(self) -> None:
        classes = length_classes(self.low, self.high)
        order = np.argsort(classes, kind="stable")
        self._order, self.low, self.high = self._order[order], self.low[order], self.high[order]
        ends = np.cumsum(np.bincount(classes, minlength=1))
        begins = np.append(0, ends[:-1])
        self._sections = [
            pair for pair in zip(begins.tolist(), ends.tolist(), strict=True) if pair[0] < pair[1]
        ]

    @property
    def sections(self) -> list[tuple[int, int]]:
        """The ranges of rows that are in the order of their lower ends."""
        return self._sections

    # Results.

    def skip(self, matched: Array) -> None:
        """Keep the rows without joining them; some have been matched before."""
        self._matched[matched[self._order]] = MATCHED
        self._stage = KEEP

    def results(self) -> Iterator[pa.RecordBatch]:
        """All results with the tuples of the other input that there are.

        Raises:
            StorageError: Pages could not be read, or marks not be written.
        """
        if self._stage == MEMORY:
            yield from self._probe_memory()
            self._stage = DISK
        if self._stage == DISK:
            yield from self._pages.run(self)
            if self._spec.marked[self.side]:
                self._storage.matches[self.side].add(self._numbers[self._order[self._matched > 0]])
            self._stage = KEEP

    @property
    def are_all_matched(self) -> bool:
        """Whether nothing can come of joining the rows further."""
        return self._spec.leaves[self.side] and bool(self._matched.all())

    def _probe_memory(self) -> Iterator[pa.RecordBatch]:
        storage, other = self._storage, 1 - self.side
        tuples, limit = storage.inputs[other], storage.sizes.piece_rows
        if not len(tuples):
            return
        skips = skipped_marks(self._spec, other)
        for begin, end in self._sections:
            for some in tuples.index.matches(self.low[begin:end], self.high[begin:end], limit):
                owner, place, at = some.owner + np.int32(begin), some.place, some.at
                stays = (some.joined[at] & skips) == 0
                if self._spec.bound is not None:
                    times = tuples.slots.columns.take(tuples.slots.layout[1], places_of(place)).to_numpy()
                    stays &= are_in_window(self.time, owner, times, self.window)
                if not stays.all():
                    owner, place, at = owner[stays], place[stays], at[stays]
                if not len(owner):
                    continue
                others = InSlots(tuples.slots, places_of(place))
                chosen, found = self.joined(owner, others, some.joined, at)
                self.setting.policy.joined(self.side, self.low[owner[chosen]])
                self.setting.policy.joined(other, some.low[stays][chosen])
                yield from found
        if self._spec.leaves[other]:
            gone = tuples.index.marked(int(MATCHED))
            if gone.size:
                low = tuples.index.keys(gone)
                tuples.remove([gone])
                storage.account()
                self.setting.policy.flushed(other, [low], tuples)

    def joined(
        self, owner: Array, others: Others, marks: Array, at: Array
    ) -> tuple[Array, Iterator[pa.RecordBatch]]:
        """Pairs of rows and others whose encoded keys match: which of them do, and their results.

        Matches are marked at once.

        Args:
            owner: The row of each pair.
            others: The other tuple of each.
            marks: Marks of the other tuples.
            at: Where that of each pair is.
        """
        spec, side, other = self._spec, self.side, 1 - self.side
        rows = self._order[owner]
        arguments = side, self._batch, self._sizes, rows, others
        chosen = self.setting.results.chosen(*arguments)
        if len(chosen) < len(owner):
            owner, at, rows, others = owner[chosen], at[chosen], rows[chosen], others.chosen(chosen)
        mine = first = np.empty(0, np.int64)
        if spec.marked[side]:
            mine = np.flatnonzero(mark_first(self._matched, owner, MATCHED))
        if spec.marked[other]:
            first = np.flatnonzero(mark_first(marks, at, MATCHED))
            taken = others.chosen(first).take([ARRIVED], 0, len(first))
            self._storage.matches[other].add(taken[0].to_numpy())
        if spec.emits_pairs:
            return chosen, self.setting.results.joined(side, self._batch, self._sizes, rows, others)
        if spec.how == "semi" and side == LEFT:
            assert mine is not None
            return chosen, self._alone(rows[mine])
        if spec.how == "semi" and len(first):
            limit_bytes = self._storage.sizes.work_bytes // 2
            return chosen, alone(spec, other, others.chosen(first), len(first), limit_bytes)
        return chosen, iter(())

    def _alone(self, rows: Array) -> Iterator[pa.RecordBatch]:
        """Rows as results of their own."""
        batch = self._batch.select(self._spec.alone(self.side))
        for begin, end in portions(self._sizes_at(rows), self._storage.sizes.work_bytes // 2):
            yield self._spec.unpaired(self.side, take_rows(batch, rows[begin:end]).columns, end - begin)

    def _sizes_at(self, rows: Array) -> Array:
        if isinstance(self._sizes, int):
            return np.full(len(rows), self._sizes)
        return self._sizes[rows]

    # What is kept.

    def next_part(self) -> Placement | None:
        """The next tuples to keep; None once there are no more."""
        if self._parts is None:
            self._parts = self._to_keep()
        return next(self._parts, None)

    def _to_keep(self) -> Iterator[Placement]:
        spec, side = self._spec, self.side
        stays = np.ones(len(self._order), bool)
        if spec.leaves[side]:
            stays &= self._matched == 0
        if self._keep_from is not None:
            is_kept = self.time >= self._keep_from
            if spec.preserved[side]:
                yield from self._unmatchable(self._order[~is_kept & (self._matched == 0)], is_due=True)
            stays &= is_kept
        if spec.preserved[side]:
            is_due = np.zeros(len(self._loose), bool)
            if self._keep_from is not None:
                is_due = self._time[self._loose] < self._keep_from
            yield from self._unmatchable(self._loose[~is_due], is_due=False)
            yield from self._unmatchable(self._loose[is_due], is_due=True)
        for begin, end in self._sections:
            kept = np.flatnonzero(stays[begin:end]) + begin
            rows = self._order[kept]
            keys = self.low[kept], self.high[kept]
            yield from self._placements(rows, *keys, self._matched[kept], self._time)

    def _unmatchable(self, rows: Array, *, is_due: bool) -> Iterator[Placement]:
        """Rows that match nothing from now on, kept until they are returned; if due, by the next expiry."""
        times = self._time
        if is_due:
            times = np.full(len(times), LEAST)
        low = scatter(self._numbers[rows])
        order = argsort_keys(low)
        low = low[order]
        yield from self._placements(rows[order], low, low, np.full(len(rows), KEYLESS, np.uint8), times)

    def _placements(
        self, rows: Array, low: Array, high: Array, marks: Array, times: Array
    ) -> Iterator[Placement]:
        sizes = self._storage.sizes
        for begin, end in portions(self._sizes_at(rows), sizes.work_bytes // 4):
            for first in range(begin, end, sizes.piece_rows):
                part = slice(first, min(first + sizes.piece_rows, end))
                some = rows[part]
                columns = take_rows(self._batch, some).columns
                if self._spec.bound is not None:
                    columns = [pa.array(times[some]), *columns]
                stored = pa.RecordBatch.from_arrays(
                    [pa.array(self._numbers[some]), *columns], schema=self._storage.inputs[self.side].schema
                )
                self._storage.note_times(self.side, stored)
                yield Placement(self.side, stored, [(low[part], high[part])], marks[part])
