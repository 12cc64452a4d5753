"""Segments of a spill file that are mostly garbage are emptied, so that the file stays small."""

from contextlib import suppress

import numpy as np
import pyarrow as pa

from adjoin.errors import StorageError
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.spilled import leaving_tuples
from adjoin.kernels.types import Array
from adjoin.memory.page_columns import Places
from adjoin.streamjoin.base.result_builder import InSlots
from adjoin.streamjoin.complete.landing import LOW
from adjoin.streamjoin.complete.pages import MATCHED, NO_MARK, Pages
from adjoin.streamjoin.complete.spec import CompleteInputs
from adjoin.streamjoin.complete.storage import PagedStorage

_MOST_GARBAGE = 2
"""Segments in use are at most this many times as large as what is estimated to be alive in them."""
_SPARE_SEGMENTS = 3
_SHARE_AT_A_TIME = 8
_HALF_EXPIRED = 1 / 4
"""What is estimated to be alive in a page of which more than half has expired."""


class Cleaning:
    """Moves the tuples that are alive out of segments that are mostly garbage.

    What is alive is estimated from the median time of a page, and from the number of its tuples without a
    match where a match makes them leave.

    Args:
        spec: The join.
        storage: Its tuples.
    """

    def __init__(self, spec: CompleteInputs, storage: PagedStorage) -> None:
        self._spec, self._storage = spec, storage

    @property
    def is_due(self) -> bool:
        """Whether so many tuples have left with their first match that it is worthwhile."""
        return any(
            leaves and 2 * pages.unmatched < pages.rows
            for leaves, pages in zip(self._spec.leaves, self._storage.pages, strict=True)
        )

    def run(self) -> None:
        """Empty the worst segments of both sides, a limited number of them; if the disk is full, none."""
        for side, pages in enumerate(self._storage.pages):
            segments = self._worst(pages)
            with suppress(StorageError):
                if len(segments):
                    self._empty(side, pages, segments)
            pages.cut()
        self._storage.account()

    def _worst(self, pages: Pages) -> Array:
        """The segments with the least that is alive, if there is too much garbage."""
        size, live = pages.segments.segment_bytes, pages.segments.live
        nothing = np.empty(0, np.int64)
        if np.count_nonzero(live) <= _SPARE_SEGMENTS:
            return nothing
        alive = np.zeros(len(live))
        for _, entries in pages.directory.scan():
            there = entries[entries["rows"] > 0]
            alive += np.bincount(there["place"] // size, self._alive_bytes(pages.side, there), len(live))
        used = np.flatnonzero(live)
        if len(used) * size <= _MOST_GARBAGE * alive.sum() + _SPARE_SEGMENTS * size:
            return nothing
        worst = used[np.argsort(alive[used], kind="stable")][: 1 + len(used) // _SHARE_AT_A_TIME]
        return worst[alive[worst] < size / _MOST_GARBAGE]

    def _alive_bytes(self, side: int, entries: Array) -> Array:
        share = np.ones(len(entries))
        if self._storage.has_time:
            share[entries["median"] < entries["least"]] = _HALF_EXPIRED
        if self._spec.leaves[side]:
            share *= entries["unmatched"] / entries["rows"]
        alive: Array = share * entries["length"]
        return alive

    def _empty(self, side: int, pages: Pages, segments: Array) -> None:
        size = pages.segments.segment_bytes
        pages.segments.leave(segments)
        for chunk, entries in pages.directory.scan():
            there = (entries["rows"] > 0) & np.isin(entries["place"] // size, segments)
            for wave in pages.waves(entries, np.flatnonzero(there)):
                rows, low, high, marks = self._alive(side, pages, entries[wave])
                before = pages.mark()
                try:
                    for begin, end in self._storage.page_portions(side, rows):
                        part = slice(begin, end)
                        pages.append(rows.slice(begin, end - begin), low[part], high[part], marks[part])
                except StorageError:
                    pages.undo(before)
                    raise
                # Appending may have replaced the chunk.
                current = pages.directory.entries(chunk)
                self._storage.counters.rows_expired += int(current["rows"][wave].sum()) - len(low)
                pages.drop(current, wave)
                pages.directory.changed(chunk, current)
        pages.directory.tidy()

    def _alive(self, side: int, pages: Pages, entries: Array) -> tuple[pa.RecordBatch, Array, Array, Array]:
        """The tuples of pages that are alive, in the order of their lower ends; their keys and marks."""
        loaded = pages.read(entries)
        skips = MATCHED if self._spec.leaves[side] else NO_MARK
        slots, places = leaving_tuples(len(entries), loaded, self._storage.has_time, False, 0, skips)
        view = pages.landing.sides[side]
        low = InSlots(view, Places(slots, places)).take([LOW], 0, len(slots))[0].to_numpy()
        order = argsort_keys(low)
        slots, places = slots[order], places[order]
        marks = loaded.arena[loaded.marks[slots] + places]
        others = InSlots(view, Places(slots, places))
        keys = [
            array.to_numpy() for array in others.take(view.schema.names[: pages.key_columns], 0, len(slots))
        ]
        names = self._storage.inputs[side].schema.names
        rows = pa.RecordBatch.from_arrays(
            others.take(names, 0, len(slots)), schema=self._storage.inputs[side].schema
        )
        return rows, keys[0], keys[-1], marks
