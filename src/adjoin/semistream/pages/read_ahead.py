"""Pages brought into memory wave by wave, the next wave being read while one is joined."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from adjoin.errors import AdjoinError
from adjoin.kernels.types import Array
from adjoin.master.index import PageIndex
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.semistream.pages.cache import ABSENT
from adjoin.semistream.pages.reader import ReadPlan, cut_scans, make_plan
from adjoin.semistream.pages.resident import ResidentPages

_MOST_FILES = 100
"""A process may have only so many files open; two waves and what is kept open stay well below."""


@dataclass(frozen=True)
class Wave:
    """Pages that are in memory now.

    Attributes:
        chosen: Which of the wanted pages.
        slots: Where they are.
    """

    chosen: Array
    slots: Array


@dataclass(frozen=True)
class _Reading:
    wave: Wave
    wait: Callable[[], None]


def read_in_waves(pages: ResidentPages, wanted: Array, max_scan: int) -> Iterator[Wave]:
    """Read pages that are not cached, along the cheapest plan.

    A wave's pages stay on the landing until the next wave is asked for; then the most useful of them
    go into the cache, in place of less useful ones.

    Args:
        pages: What is in memory; its utilities say which pages to keep.
        wanted: Numbers of the pages to read.
        max_scan: Most pages that one scan covers.
    """
    entries = pages.index.take(wanted)
    order = np.argsort(pages.reader.position(entries))
    oversize = pages.is_oversize(entries)[order]
    keep = _Keep(pages, wanted)
    under_way: list[_Reading] = []
    try:
        for reading in _readings(pages, wanted, entries, order[~oversize], max_scan):
            under_way.append(reading)
            if len(under_way) == pages.split.waves:
                yield from _arrive(under_way, keep)
        while under_way:
            yield from _arrive(under_way, keep)
    finally:
        for reading in under_way:  # the landing must not be touched before the last read is over
            with suppress(AdjoinError):
                reading.wait()
    for chosen in order[oversize]:
        yield from _read_oversize(pages, wanted, entries, chosen)


def read_each(pages: ResidentPages, wanted: Array) -> Iterator[Wave]:
    """Read a page for every entry, whether or not it was read before, each on its own."""
    entries = pages.index.take(wanted)
    order = np.argsort(pages.reader.position(entries), kind="stable")
    oversize = pages.is_oversize(entries)[order]
    for chosen in order[oversize]:
        yield from _read_oversize(pages, wanted, entries, chosen)
    order = order[~oversize]
    every = np.arange(len(order), dtype=np.int32)
    blocks = entries.blocks[order].astype(np.int64)
    plan = ReadPlan(every, every, blocks, np.zeros(len(order), bool))
    for begin, end in _cut_waves(plan, entries.file[order], pages.split.wave_pages):
        slots, chosen = every[: end - begin], order[begin:end]
        pages.start_reading(wanted[chosen], entries.take(chosen), slots, plan, begin, end)()
        yield Wave(chosen, slots)


def _readings(
    pages: ResidentPages, wanted: Array, entries: PageIndex, order: Array, max_scan: int
) -> Iterator[_Reading]:
    """Begins to read a wave each time it is asked, in turn to each part of the landing."""
    if len(order) == 0:
        return
    cost = pages.reader.cost
    position = pages.reader.position(entries)[order]
    wave_pages = pages.split.wave_pages
    page_blocks = pages.split.slot_bytes // BLOCK_BYTES
    blocks = entries.blocks[order].astype(np.int64)
    plan = make_plan(
        position,
        blocks,
        cost.positioning_seconds,
        cost.block_seconds,
        max_scan * page_blocks,
        len(order),
    )
    plan = cut_scans(plan, position, blocks, wave_pages)
    file = entries.file[order[plan.first]]
    for number, (begin, end) in enumerate(_cut_waves(plan, file, wave_pages)):
        chosen = order[plan.first[begin] : plan.last[end - 1] + 1]
        first = number % pages.split.waves * wave_pages
        slots = np.arange(first, first + len(chosen), dtype=np.int32)
        wait = pages.start_reading(wanted[chosen], entries.take(chosen), slots, plan, begin, end)
        yield _Reading(Wave(chosen, slots), wait)


def _cut_waves(plan: ReadPlan, file: Array, wave_pages: int) -> Iterator[tuple[int, int]]:
    """Ranges of scans with at most so many wanted pages, and files, each; `file` is that of each scan."""
    files = np.cumsum(np.diff(file, prepend=file[:1]) != 0)
    begin = 0
    while begin < len(plan):
        by_pages = np.searchsorted(plan.last, plan.first[begin] + wave_pages)
        by_files = np.searchsorted(files, files[begin] + _MOST_FILES)
        end = max(int(min(by_pages, by_files)), begin + 1)
        yield begin, end
        begin = end


def _arrive(under_way: list[_Reading], keep: "_Keep") -> Iterator[Wave]:
    reading = under_way.pop(0)
    reading.wait()
    yield reading.wave
    keep.settle(reading.wave)


def _read_oversize(pages: ResidentPages, wanted: Array, entries: PageIndex, chosen: int) -> Iterator[Wave]:
    """A page larger than a slot has one place, is joined there, and is not cached."""
    page, entry = wanted[chosen : chosen + 1], entries.take(np.array([chosen]))
    slot = np.array([pages.arena.oversize_slot], np.int32)
    plan = make_plan(pages.reader.position(entry), entry.blocks.astype(np.int64), 0.0, 0.0, 1, 1)
    pages.start_reading(page, entry, slot, plan, 0, 1)()
    yield Wave(np.array([chosen]), slot)


class _Keep:
    """Decides, before anything is read, which pages will be cached at the end and which go for them."""

    def __init__(self, pages: ResidentPages, wanted: Array) -> None:
        self._pages = pages
        self._wanted = wanted
        self._keep, self._remove = pages.cache.rank(wanted, pages.arena.capacity)

    def settle(self, wave: Wave) -> None:
        """Cache the wave's pages that are to stay, as far as there is room by now."""
        arena, cache = self._pages.arena, self._pages.cache
        stay = wave.chosen[self._keep[wave.chosen]]
        landed = wave.slots[self._keep[wave.chosen]]
        short = len(stay) - arena.free_slots
        if short > 0:
            self._remove = self._remove[cache.slot_of(self._remove) != ABSENT]
            cache.drop(self._remove[:short])
            self._remove = self._remove[short:]
        room = min(len(stay), arena.free_slots)
        if room < len(stay):  # rows that arrived meanwhile took it
            best = np.argsort(cache.utility(self._wanted[stay]), kind="stable")[len(stay) - room :]
            stay, landed = stay[best], landed[best]
        cache.keep(self._wanted[stay], landed)
