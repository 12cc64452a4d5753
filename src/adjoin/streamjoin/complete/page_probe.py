"""Arriving rows are joined with the pages of the other input."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from adjoin.kernels.spilled import Loaded, Rows, Tasks, join_pages, may_have_any
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import Places
from adjoin.streamjoin.base.result_builder import InSlots, Others
from adjoin.streamjoin.complete.pages import MATCHED
from adjoin.streamjoin.complete.setting import Setting, skipped_marks
from adjoin.streamjoin.complete.time_bound import LEAST


class ProbingRows(Protocol):
    """Rows that arrive, sorted.

    Attributes:
        low, high: Their key intervals.
        time: Their times; empty if there is no bound on time.
        window: The window of their partners' times.
    """

    low: Array
    high: Array
    time: Array
    window: Array

    @property
    def sections(self) -> list[tuple[int, int]]:
        """The ranges of rows that are in the order of their lower ends."""

    @property
    def are_all_matched(self) -> bool:
        """Whether nothing can come of joining the rows further."""

    def joined(
        self, owner: Array, others: Others, marks: Array, at: Array
    ) -> tuple[Array, Iterator[pa.RecordBatch]]:
        """Mark the pairs that match; returns which ones do, and their results."""


class PageProbe:
    """Joins arriving rows with the pages of the other input, a wave of pages at a time.

    Args:
        setting: What they are joined with.
        side: Their side.
    """

    def __init__(self, setting: Setting, side: int) -> None:
        self._spec, self._storage = setting.spec, setting.storage
        self._pages = setting.storage.pages[1 - side]
        self._chunk = 0
        self._waves: list[Array] | None = None
        self._unwritten: tuple[Array, Loaded, Array] | None = None

    def run(self, rows: ProbingRows) -> Iterator[pa.RecordBatch]:
        """All results; after an error, the next call continues."""
        self._write_marks()
        if not self._pages.rows or not len(rows.low):
            return
        for chunk, entries in self._pages.directory.scan():
            if chunk < self._chunk:
                continue
            tasks = self._tasks(rows, entries)
            if self._waves is None:
                self._waves = list(self._pages.waves(entries, np.unique(tasks[0])))
            while self._waves:
                if not rows.are_all_matched:
                    yield from self._join(rows, chunk, entries, tasks)
                self._waves.pop(0)
                self._write_marks()
            self._waves, self._chunk = None, chunk + 1

    def _tasks(self, rows: ProbingRows, entries: Array) -> tuple[Array, Array, Array]:
        """Entries of pages that may have tuples that match, each with a range of rows."""
        spec = self._spec
        is_there = (entries["rows"] > 0) & (entries["low"] <= entries["reach"])
        if spec.leaves[self._pages.side]:
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
        if not self._pages.has_filters:
            return entry, first_rows, last_rows
        filters = np.ascontiguousarray(entries["filter"][entry])
        chosen = may_have_any(first_rows, last_rows, rows.low, filters)
        return entry[chosen], first_rows[chosen], last_rows[chosen]

    def _join(
        self, rows: ProbingRows, chunk: int, entries: Array, tasks: tuple[Array, Array, Array]
    ) -> Iterator[pa.RecordBatch]:
        """Read the next wave of pages and join them."""
        assert self._waves
        pages, wave = self._pages, self._waves[0]
        some = entries[wave]
        loaded = pages.read(some)
        slot_of = np.full(len(entries), -1, np.int32)
        slot_of[wave] = np.arange(len(wave), dtype=np.int32)
        slots = slot_of[tasks[0]]
        wanted = np.flatnonzero(slots >= 0)
        wanted = wanted[np.argsort(slots[wanted], kind="stable")]
        skips = skipped_marks(self._spec, pages.side) & MATCHED
        some_tasks = Tasks(tasks[1][wanted], tasks[2][wanted], slots[wanted], skips)
        probes = Rows(rows.low, rows.high, rows.time, rows.window)
        state, limit = np.array([0, -1, -1], np.int64), self._storage.sizes.piece_rows
        side = pages.landing.sides[pages.side]
        has_new = np.zeros(len(wave), np.int64)
        while state[0] < len(wanted):
            owner, slot, place = join_pages(probes, some_tasks, loaded, state, limit)
            if not len(owner):
                continue
            at = loaded.marks[slot] + place
            were = (loaded.arena[at] & MATCHED) > 0
            _, found = rows.joined(owner, InSlots(side, Places(slot, place)), loaded.arena, at)
            self._count(slot, at, were, loaded, has_new)
            for batch in found:
                self._storage.counters.results_from_disk += batch.num_rows
                yield batch
        self._settle(chunk, entries, wave, loaded, has_new)

    def _count(self, slot: Array, at: Array, were: Array, loaded: Loaded, has_new: Array) -> None:
        """Count the tuples of each slot that had their first match."""
        if self._spec.marked[self._pages.side]:
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
        if self._spec.leaves[self._pages.side]:
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


def _reach_of_times(time: Array, window: Array) -> tuple[int, int]:
    """The least and the greatest time that a partner of any of these rows may have."""
    least, most = int(time.min()), int(time.max())
    first = least + int(window[1]) + int(window[2]) if window[0] else LEAST
    last = most + int(window[4]) + int(window[5]) if window[3] else -LEAST - 1
    return max(LEAST, min(first, -LEAST - 1)), max(LEAST, min(last, -LEAST - 1))
