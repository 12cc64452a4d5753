"""Tuples that can have no partner any more leave memory and disk; those without a match are results."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from adjoin.kernels.spilled import leaving_tuples
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import Places
from adjoin.streamjoin.base.result_builder import InSlots
from adjoin.streamjoin.complete.pages import MATCHED, NO_MARK, Pages
from adjoin.streamjoin.complete.setting import Setting, alone
from adjoin.streamjoin.complete.time_bound import GREATEST, LEAST
from adjoin.streamjoin.memory.ordered_index import Entries
from adjoin.streamjoin.memory.row_store import places_of
from adjoin.streamjoin.memory.tuples import ARRIVED, MemoryTuples


class Expiry:
    """Removes tuples by their times. After a `StorageError`, a call with the same bounds continues.

    Args:
        setting: The join and its tuples.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._spec, self._storage = setting.spec, setting.storage
        self._limit_bytes = setting.storage.sizes.work_bytes // 2

    def run(self, before: tuple[int | None, int | None]) -> Iterator[pa.RecordBatch]:
        """Remove tuples of each side with a smaller time; without a bound, only those that are due."""
        for side, bound in enumerate(before):
            due = LEAST + 1 if bound is None else max(bound, LEAST + 1)
            yield from self._in_memory(side, due)
            yield from self._on_disk(side, due)

    def all_that_is_left(self) -> Iterator[pa.RecordBatch]:
        """Remove all tuples of sides of which those without a match are results."""
        for side in (0, 1):
            if self._spec.preserved[side]:
                yield from self._in_memory(side, None)
                yield from self._on_disk(side, None)

    # Memory.

    def _in_memory(self, side: int, before: int | None) -> Iterator[pa.RecordBatch]:
        tuples, storage = self._storage.inputs[side], self._storage
        if not len(tuples) or (before is not None and storage.least_times[side] >= before):
            return
        entries = self._leaving(tuples, side, before)
        if entries.size:
            place, low, _, marks = tuples.index.states(entries)
            if self._spec.preserved[side]:
                unmatched = place[(marks & MATCHED) == 0]
                others = InSlots(tuples.slots, places_of(unmatched))
                yield from alone(self._spec, side, others, len(unmatched), self._limit_bytes)
            tuples.remove([entries])
            storage.account()
            storage.counters.rows_expired += len(place)
            self._setting.policy.flushed(side, [low], tuples)

    def _leaving(self, tuples: MemoryTuples, side: int, before: int | None) -> Entries:
        """The tuples with a smaller time; notes the least time of the others."""
        if before is None:
            return tuples.index.all()
        least = [GREATEST]

        def expired(place: Array) -> Array:
            times = tuples.slots.columns.take(tuples.slots.layout[1], places_of(place)).to_numpy()
            gone: Array = times < before
            left = times[~gone]
            if len(left):
                least.append(int(left.min()))
            return gone

        entries = tuples.index.filtered(expired, self._storage.sizes.piece_rows * 8)
        self._storage.least_times[side] = min(least)
        return entries

    # Disk.

    def _on_disk(self, side: int, before: int | None) -> Iterator[pa.RecordBatch]:
        pages = self._storage.pages[side]
        if not pages.rows or (before is not None and pages.least_time >= before):
            return
        least = GREATEST
        for chunk, entries in pages.directory.scan():
            there = entries["rows"] > 0
            if before is not None:
                there &= entries["least"] < before
            touched = np.flatnonzero(there)
            if self._spec.preserved[side]:
                unread = touched[entries["unmatched"][touched] > 0]
                for wave in pages.waves(entries, unread):
                    yield from self._returned(pages, chunk, entries, wave, before)
            self._settle(pages, entries, touched[entries["rows"][touched] > 0], before)
            if len(touched):
                pages.directory.changed(chunk, entries)
            least = min(least, int(entries["least"][entries["rows"] > 0].min(initial=GREATEST)))
        pages.least_time = least
        pages.directory.tidy()
        pages.cut()
        self._storage.account()

    def _returned(
        self, pages: Pages, chunk: int, entries: Array, wave: Array, before: int | None
    ) -> Iterator[pa.RecordBatch]:
        """The tuples without a match that leave these pages."""
        some = entries[wave]
        loaded = pages.read(some)
        slots, places = leaving_tuples(
            len(wave), loaded, self._storage.has_time, before is not None, before or 0, MATCHED
        )
        pages.note_matches(entries, wave, np.bincount(slots, minlength=len(wave)))
        self._settle(pages, entries, wave, before)
        pages.directory.changed(chunk, entries)
        others = InSlots(pages.landing.sides[pages.side], Places(slots, places))
        yield from alone(self._spec, pages.side, others, len(slots), self._limit_bytes)

    def _settle(self, pages: Pages, entries: Array, some: Array, before: int | None) -> None:
        """Pages whose tuples have all expired are gone; of the others, the least time is noted."""
        if before is None:
            gone = some
        else:
            gone = some[entries["most"][some] < before]
            entries["least"][some] = np.maximum(entries["least"][some], before)
        self._storage.counters.rows_expired += int(entries["rows"][gone].sum())
        pages.drop(entries, gone)

    # Rows that had a match.

    def matched(self, side: int) -> Iterator[Array]:
        """The numbers of all tuples of a side that had a match and are kept."""
        if self._spec.leaves[side] or not self._spec.marked[side]:
            return
        tuples, pages = self._storage.inputs[side], self._storage.pages[side]
        yield tuples.arrived_at(np.sort(tuples.index.places_in_order(tuples.index.marked(int(MATCHED)))))
        for _, entries in pages.directory.scan():
            some = np.flatnonzero((entries["rows"] > 0) & (entries["unmatched"] < entries["rows"]))
            for wave in pages.waves(entries, some):
                loaded = pages.read(entries[wave])
                slots, places = leaving_tuples(len(wave), loaded, self._storage.has_time, False, 0, NO_MARK)
                had = np.flatnonzero(loaded.arena[loaded.marks[slots] + places] & MATCHED)
                others = InSlots(pages.landing.sides[side], Places(slots[had], places[had]))
                yield others.take([ARRIVED], 0, len(had))[0].to_numpy()
