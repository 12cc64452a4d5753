"""Rows that arrive: joined with the tuples in memory and with the pages of the other input, then kept."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.kernels.hashing import scatter
from adjoin.kernels.intervals import length_classes
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.spilled import Loaded, Rows, Tasks, are_in_window, join_pages, mark_first
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import Places
from adjoin.operators.portions import portions
from adjoin.streamjoin.base.parts import FlushPolicy
from adjoin.streamjoin.base.phases import Placement
from adjoin.streamjoin.base.result_builder import InSlots, Others, ResultBuilder, sizes_of
from adjoin.streamjoin.base.spec import LEFT
from adjoin.streamjoin.complete.pages import KEYLESS, MATCHED, NO_MARK
from adjoin.streamjoin.complete.spec import CompleteInputs
from adjoin.streamjoin.complete.storage import PagedStorage
from adjoin.streamjoin.complete.time_bound import LEAST
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.memory.tuples import ARRIVED

_NO_TIMES: Array = np.empty(0, np.int64)
_NO_WINDOW: Array = np.zeros(6, np.int64)
MEMORY, DISK, KEEP = range(3)
"""What is done with rows that arrive, in this order."""


class Setting(NamedTuple):
    """What rows are joined with.

    Attributes:
        spec: The join.
        storage: The tuples.
        results: Builds results.
        policy: Matches in memory are credited to it.
    """

    spec: CompleteInputs
    storage: PagedStorage
    results: ResultBuilder
    policy: FlushPolicy


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
        self._pages = _PageProbe(self)
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
            yield from self._pages.run()
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


class _PageProbe:
    """Rows that arrive, joined with the pages of the other input, a wave of pages at a time."""

    def __init__(self, rows: Arriving) -> None:
        self._rows = rows
        self._pages = rows.setting.storage.pages[1 - rows.side]
        self._chunk = 0
        self._waves: list[Array] | None = None
        self._unwritten: tuple[Array, Loaded, Array] | None = None

    def run(self) -> Iterator[pa.RecordBatch]:
        """All results; after an error, the next call continues."""
        self._write_marks()
        if not self._pages.rows or not len(self._rows.low):
            return
        for chunk, entries in self._pages.directory.scan():
            if chunk < self._chunk:
                continue
            tasks = self._tasks(entries)
            if self._waves is None:
                self._waves = list(self._pages.waves(entries, np.unique(tasks[0])))
            while self._waves:
                if not self._rows.are_all_matched:
                    yield from self._join(chunk, entries, tasks, self._waves[0])
                self._waves.pop(0)
                self._write_marks()
            self._waves, self._chunk = None, chunk + 1

    def _tasks(self, entries: Array) -> tuple[Array, Array, Array]:
        """Entries of pages that may have tuples that match, each with a range of rows."""
        rows, spec = self._rows, self._rows.setting.spec
        is_there = (entries["rows"] > 0) & (entries["low"] <= entries["reach"])
        if spec.leaves[1 - rows.side]:
            is_there &= entries["unmatched"] > 0
        if spec.bound is not None:
            first, last = _reach_of_times(rows.time, rows.window)
            is_there &= (entries["least"] <= last) & (entries["most"] >= first)
        there = np.flatnonzero(is_there)
        low, reach = entries["low"][there], entries["reach"][there]
        found = []
        for begin, end in rows.sections:
            lows, highs = rows.low[begin:end], rows.high[begin:end]
            reaches = highs if rows.high is rows.low else np.maximum.accumulate(highs)
            first_row = np.searchsorted(reaches, low, "left") + begin
            last_row = np.searchsorted(lows, reach, "right") + begin
            has = last_row > first_row
            found.append((there[has], first_row[has], last_row[has]))
        entry, first_rows, last_rows = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return entry, first_rows, last_rows

    def _join(
        self, chunk: int, entries: Array, tasks: tuple[Array, Array, Array], wave: Array
    ) -> Iterator[pa.RecordBatch]:
        """Read a wave of pages and join them."""
        rows, pages = self._rows, self._pages
        some = entries[wave]
        loaded = pages.read(some)
        slot_of = np.full(len(entries), -1, np.int32)
        slot_of[wave] = np.arange(len(wave), dtype=np.int32)
        slots = slot_of[tasks[0]]
        wanted = np.flatnonzero(slots >= 0)
        wanted = wanted[np.argsort(slots[wanted], kind="stable")]
        skips = skipped_marks(rows.setting.spec, pages.side) & MATCHED
        some_tasks = Tasks(tasks[1][wanted], tasks[2][wanted], slots[wanted], skips)
        probes = Rows(rows.low, rows.high, rows.time, rows.window)
        state, limit = np.array([0, -1, -1], np.int64), rows.setting.storage.sizes.piece_rows
        side = pages.landing.sides[pages.side]
        has_new = np.zeros(len(wave), np.int64)
        while state[0] < len(wanted):
            owner, slot, place = join_pages(probes, some_tasks, loaded, state, limit)
            if not len(owner):
                continue
            at = loaded.marks[slot] + place
            were = (loaded.arena[at] & MATCHED) > 0
            chosen, found = rows.joined(owner, InSlots(side, Places(slot, place)), loaded.arena, at)
            self._count(slot, at, were, loaded, has_new)
            del chosen
            for batch in found:
                rows.setting.storage.counters.results_from_disk += batch.num_rows
                yield batch
        self._settle(chunk, entries, wave, loaded, has_new)

    def _count(self, slot: Array, at: Array, were: Array, loaded: Loaded, has_new: Array) -> None:
        """Count the tuples of each slot that had their first match."""
        if self._rows.setting.spec.marked[self._pages.side]:
            new = np.flatnonzero(~were & ((loaded.arena[at] & MATCHED) > 0))
            if len(new):
                _, first = np.unique(at[new], return_index=True)
                np.add.at(has_new, slot[new[first]], 1)

    def _settle(self, chunk: int, entries: Array, wave: Array, loaded: Loaded, has_new: Array) -> None:
        """Note how many tuples of each page had their first match; a page of which all leave is gone."""
        new = np.flatnonzero(has_new)
        if not len(new):
            return
        self._pages.note_matches(entries, wave[new], has_new[new])
        written = entries[wave]
        if self._rows.setting.spec.leaves[self._pages.side]:
            is_gone = entries["unmatched"][wave[new]] == 0
            self._pages.drop(entries, wave[new[is_gone]])
            new = new[~is_gone]
        self._pages.directory.changed(chunk, entries)
        self._unwritten = written, loaded, new

    def _write_marks(self) -> None:
        """Write the marks of the last wave."""
        if self._unwritten is not None:
            self._pages.write_marks(*self._unwritten)
            self._unwritten = None


def skipped_marks(spec: CompleteInputs, side: int) -> np.uint8:
    """Tuples of a side with one of these marks match nothing."""
    return (KEYLESS if spec.preserved[side] else NO_MARK) | (MATCHED if spec.leaves[side] else NO_MARK)


def _reach_of_times(time: Array, window: Array) -> tuple[int, int]:
    """The least and the greatest time that a partner of any of these rows may have."""
    least, most = int(time.min()), int(time.max())
    first = least + int(window[1]) + int(window[2]) if window[0] else LEAST
    last = most + int(window[4]) + int(window[5]) if window[3] else -LEAST - 1
    return max(LEAST, min(first, -LEAST - 1)), max(LEAST, min(last, -LEAST - 1))


def alone(
    spec: CompleteInputs, side: int, others: Others, count: int, limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Tuples of a side as results of their own."""
    names = spec.alone(side)
    sizes = np.broadcast_to(others.sizes(names), count)
    for begin, end in portions(sizes, limit_bytes):
        yield spec.unpaired(side, others.take(names, begin, end), end - begin)
