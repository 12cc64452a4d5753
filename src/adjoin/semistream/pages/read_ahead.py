"""Pages read in waves: while one wave is joined, the next one is being read."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from adjoin.errors import AdjoinError
from adjoin.kernels.types import Array
from adjoin.master.index import PageIndex
from adjoin.memory.arena import BLOCK_BYTES
from adjoin.operators.read_plan import ReadPlan, cut_scans, make_plan
from adjoin.semistream.pages.cache import ABSENT
from adjoin.semistream.pages.resident import ResidentPages

_MOST_FILES = 100
"""Of a wave. The limit of open files must be enough for two waves and the files that are kept open."""


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
class _WaveRead:
    wave: Wave
    wait: Callable[[], None]


def read_in_waves(pages: ResidentPages, wanted: Array, max_scan: int) -> Iterator[Wave]:
    """Read pages that are not cached, along the cheapest plan.

    The pages of a wave stay in the landing until the next wave is requested; then the most useful of them
    move into the cache, replacing less useful ones.

    Args:
        pages: The resident pages, whose utilities decide which pages to keep.
        wanted: Numbers of the pages to read.
        max_scan: The most pages that one scan covers.
    """
    entries = pages.index.take(wanted)
    order = np.argsort(pages.reader.position(entries))
    oversize = pages.is_oversize(entries)[order]
    keep = _Keep(pages, wanted)
    in_flight: list[_WaveRead] = []
    try:
        for reading in _readings(pages, wanted, entries, order[~oversize], max_scan):
            in_flight.append(reading)
            if len(in_flight) == pages.split.waves:
                yield from _arrive(in_flight, keep)
        while in_flight:
            yield from _arrive(in_flight, keep)
    finally:
        for reading in in_flight:  # the landing must not be reused before the last read has ended
            with suppress(AdjoinError):
                reading.wait()
    for chosen in order[oversize]:
        yield from _read_oversize(pages, wanted, entries, chosen)


def read_each(pages: ResidentPages, wanted: Array) -> Iterator[Wave]:
    """Read one page for every entry, each on its own, even if it was read before."""
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
) -> Iterator[_WaveRead]:
    """Starts to read a wave each time the next one is requested, into the parts of the landing in turn."""
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
        yield _WaveRead(Wave(chosen, slots), wait)


def _cut_waves(plan: ReadPlan, file: Array, wave_pages: int) -> Iterator[tuple[int, int]]:
    """Ranges of scans with a limited number of wanted pages and of files; `file` is that of each scan."""
    files = np.cumsum(np.diff(file, prepend=file[:1]) != 0)
    begin = 0
    while begin < len(plan):
        by_pages = np.searchsorted(plan.last, plan.first[begin] + wave_pages)
        by_files = np.searchsorted(files, files[begin] + _MOST_FILES)
        end = max(int(min(by_pages, by_files)), begin + 1)
        yield begin, end
        begin = end


def _arrive(in_flight: list[_WaveRead], keep: "_Keep") -> Iterator[Wave]:
    reading = in_flight.pop(0)
    reading.wait()
    yield reading.wave
    keep.settle(reading.wave)


def _read_oversize(pages: ResidentPages, wanted: Array, entries: PageIndex, chosen: int) -> Iterator[Wave]:
    """Read a page larger than a slot to the one place for such pages; it is joined there and not cached."""
    page, entry = wanted[chosen : chosen + 1], entries.take(np.array([chosen]))
    slot = np.array([pages.arena.oversize_slot], np.int32)
    plan = make_plan(pages.reader.position(entry), entry.blocks.astype(np.int64), 0.0, 0.0, 1, 1)
    pages.start_reading(page, entry, slot, plan, 0, 1)()
    yield Wave(np.array([chosen]), slot)


class _Keep:
    """Decides before the first read which pages to cache (ToKeep) and which to evict for them (ToRemove)."""

    def __init__(self, pages: ResidentPages, wanted: Array) -> None:
        self._pages = pages
        self._wanted = wanted
        self._keep, self._remove = pages.cache.rank(wanted, pages.arena.capacity)

    def settle(self, wave: Wave) -> None:
        """Cache those pages of the wave that should be kept, as far as there still is room."""
        arena, cache = self._pages.arena, self._pages.cache
        stay = wave.chosen[self._keep[wave.chosen]]
        landed = wave.slots[self._keep[wave.chosen]]
        short = len(stay) - arena.free_slots
        if short > 0:
            self._remove = self._remove[cache.slot_of(self._remove) != ABSENT]
            cache.drop(self._remove[:short])
            self._remove = self._remove[short:]
        room = min(len(stay), arena.free_slots)
        if room < len(stay):  # rows that arrived in the meantime took it
            best = np.argsort(cache.utility(self._wanted[stay]), kind="stable")[len(stay) - room :]
            stay, landed = stay[best], landed[best]
        cache.keep(self._wanted[stay], landed)
