"""Tuples in memory, in the order of their keys."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adjoin.kernels.intervals import JOIN_BIT, do_overlap, greatest_reach, key_ranges, merge_runs, sweep_clock
from adjoin.kernels.search import are_among, entries_in_slot
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.streamjoin.memory.overlaps import overlaps, reach_of

_RECENT_SHARE = 8
"""New entries are kept in a short run of their own until they are an eighth of the long one."""
_LEAST_RECENT = 256
POINT_BYTES, INTERVAL_BYTES = (17, 25), (33, 33)
"""Of an entry for a key, and for an interval: in the index, and in addition while runs are merged."""
_MOST_GONE = 4
"""A run is compacted once a quarter of it is gone."""


@dataclass
class Run:
    """Entries sorted by the lower ends of their intervals.

    Attributes:
        low: Lower ends.
        high: Upper ends; the same array where intervals are points.
        reach: How far segments of entries reach; the same array as `low` where they are points.
        place: Where the tuple of each entry is; negative once it is gone.
        joined: The join bit: whether it had a match since the clock last passed; and marks of the caller.
        gone: How many entries are gone.
    """

    low: Array
    high: Array
    reach: Array
    place: Array
    joined: Array
    gone: int = 0

    def __len__(self) -> int:
        return len(self.low)

    @property
    def greatest(self) -> int:
        """The greatest upper end."""
        return int(self.low[-1] if self.reach is self.low else greatest_reach(self.reach))

    def may_overlap(self, low: Array, high: Array) -> Array:
        """Whether each of these intervals, whose lower ends ascend, may overlap an entry."""
        if self.reach is self.low:
            return key_ranges(self.low, low, high)[1] > 0
        found: Array = do_overlap(self.low, self.reach, low, high)
        return found

    def remove(self, at: Array) -> None:
        """Mark these entries as gone."""
        self.place[at] = -1
        self.gone += len(at)
        self.reach = reach_of(self.low, self.high, self.place)


class OrderedIndex:
    """Index_i: the places of tuples by key; the key of a tuple is an interval.

    It consists of a long run of sorted entries and a short run of the latest ones. A removed entry is only
    marked, and disappears when runs are merged.

    Args:
        are_points: Whether all intervals are points.

    Attributes:
        entry_bytes: What an entry takes: interval, reach, place and join bit.
        merge_bytes: What it takes in addition while runs are merged.
        hand: The key at which the clock continues; None before it was started.
    """

    def __init__(self, *, are_points: bool) -> None:
        self._are_points = are_points
        self.entry_bytes, self.merge_bytes = POINT_BYTES if are_points else INTERVAL_BYTES
        self.hand: int | None = None
        self._runs = [self._no_run(), self._no_run()]

    def emptied(self) -> "OrderedIndex":
        """A new index of the same kind."""
        return OrderedIndex(are_points=self._are_points)

    def _no_run(self) -> Run:
        nothing = np.empty(0, np.int64)
        return self._run(nothing, nothing, nothing, np.empty(0, np.uint8))

    def _run(self, low: Array, high: Array, place: Array, joined: Array) -> Run:
        high = low if self._are_points else high
        return Run(low, high, reach_of(low, high, place), place, joined)

    def __len__(self) -> int:
        return sum(len(run) - run.gone for run in self._runs)

    @property
    def all_entries(self) -> int:
        """The number of entries, including those that are gone but still take memory."""
        return sum(len(run) for run in self._runs)

    def add(self, low: Array, high: Array, place: Array, joined: Array | None = None) -> None:
        """Add tuples in the order of their lower ends; join bits and marks are 0 unless given."""
        joined = np.zeros(len(low), np.uint8) if joined is None else joined
        self._runs[1] = self._merged(self._runs[1], self._run(low, high, place, joined))
        if len(self._runs[1]) > max(_LEAST_RECENT, len(self._runs[0]) // _RECENT_SHARE):
            self._make_one_run()

    def _make_one_run(self) -> None:
        self._runs = [self._merged(*self._runs), self._no_run()]

    def _merged(self, run: Run, more: Run) -> Run:
        left = len(run) - run.gone + len(more) - more.gone
        nothing = run.low[:0]
        high, more_high = (nothing, nothing) if self._are_points else (run.high, more.high)
        entries = merge_runs(
            run.low, high, run.place, run.joined, more.low, more_high, more.place, more.joined, left
        )
        return self._run(*entries)

    def matches(self, low: Array, high: Array, limit: int) -> Iterator["Matches"]:
        """Entries that overlap these intervals, at most `limit` at a time; their join bits are set.

        Args:
            low: Lower ends, ascending.
            high: Upper ends.
            limit: How many pairs of an interval and an entry to return at a time.
        """
        for run in self._runs if len(low) else ():
            for owner, at in overlaps(run, low, high, limit):
                run.joined[at] |= JOIN_BIT
                yield Matches(owner, run.place[at], run.low[at], run.joined, at)

    @property
    def span(self) -> tuple[int, int]:
        """The least lower end and the greatest upper end; the index must not be empty."""
        runs = [run for run in self._runs if len(run)]
        return min(int(run.low[0]) for run in runs), max(run.greatest for run in runs)

    def may_match(self, low: Array, high: Array) -> Array:
        """Whether each of these intervals may overlap an entry; there are no false negatives."""
        order = argsort_keys(low)
        found = np.zeros(len(low), bool)
        for run in self._runs:
            found[order] |= run.may_overlap(low[order], high[order])
        return found

    # Which tuples leave.

    def lowest(self, count: int) -> "Entries":
        """The at most `count` tuples with the lowest keys."""
        return self._extreme(count, is_low=True)

    def highest(self, count: int) -> "Entries":
        """The at most `count` tuples with the highest keys."""
        return self._extreme(count, is_low=False)

    def _extreme(self, count: int, *, is_low: bool) -> "Entries":
        return self._chosen(
            [_ends(run.place, count, is_low=is_low) for run in self._runs], count, is_low=is_low
        )

    def between(self, first: int, last: int, count: int) -> "Entries":
        """The at most `count` lowest tuples with lower ends from `first` to `last`."""
        found = []
        for run in self._runs:
            begin, end = np.searchsorted(run.low, first, "left"), np.searchsorted(run.low, last, "right")
            found.append(_ends(run.place[begin:end], count, is_low=True) + begin)
        return self._chosen(found, count, is_low=True)

    def _chosen(self, at: list[Array], count: int, *, is_low: bool) -> "Entries":
        """Of these positions in each run, those with the lowest or the highest keys."""
        keys = np.concatenate([run.low[some] for run, some in zip(self._runs, at, strict=True)])
        order = np.argsort(keys, kind="stable")
        chosen = order[:count] if is_low else order[max(len(order) - count, 0) :]
        in_first = chosen < len(at[0])
        return Entries(np.sort(at[0][chosen[in_first]]), np.sort(at[1][chosen[~in_first] - len(at[0])]))

    def coldest(self, count: int, first: int, last: int) -> "Entries":
        """Tuples with keys from `first` to `last` whose join bit is not set, found by the clock.

        The hand continues where it stopped; tuples that it passes lose their join bits.
        """
        run, recent = self._runs
        hand = first if self.hand is None else self.hand
        *chosen, self.hand = sweep_clock(
            run.low,
            run.place,
            run.joined,
            recent.low,
            recent.place,
            recent.joined,
            first,
            last,
            hand,
            count,
        )
        return Entries(*map(np.sort, chosen))

    def start_clock(self, share: float) -> None:
        """Put the hand after this share of the tuples."""
        run = max(self._runs, key=len)
        self.hand = int(run.low[int(share * len(run))])

    def places(self, entries: "Entries") -> tuple[Array, Array, Array]:
        """Places, lower and upper ends of these entries, ordered by lower ends."""
        return self.states(entries)[:3]

    def states(self, entries: "Entries") -> tuple[Array, Array, Array, Array]:
        """Places, lower and upper ends, join bits and marks of these entries, ordered by lower ends."""
        parts = [
            (run.place[at], run.low[at], run.high[at], run.joined[at])
            for run, at in zip(self._runs, entries, strict=True)
        ]
        place, low, high, joined = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = argsort_keys(low)
        return place[order], low[order], high[order], joined[order]

    def marked(self, mark: int) -> "Entries":
        """Every tuple with this mark."""
        first, second = (np.flatnonzero((run.place >= 0) & (run.joined & mark > 0)) for run in self._runs)
        return Entries(first, second)

    def remove(self, entries: "Entries") -> None:
        """Remove these tuples."""
        for number, at in enumerate(entries):
            run = self._runs[number]
            run.remove(at)
            if run.gone * _MOST_GONE > len(run):
                self._runs[number] = self._merged(run, self._no_run())

    def places_in_order(self, entries: "Entries") -> Array:
        """The places of these entries, in the order of the entries."""
        return np.concatenate([run.place[at] for run, at in zip(self._runs, entries, strict=True)])

    def in_slot(self, slot: int) -> Array:
        """The places in this slot, ascending."""
        return np.sort(np.concatenate([run.place[entries_in_slot(run.place, slot)] for run in self._runs]))

    def move(self, before: Array, after: Array) -> None:
        """Tuples have moved: `before` are places in one slot, ascending, and `after` the new ones."""
        for run in self._runs:
            at = entries_in_slot(run.place, before[0] >> 32)
            run.place[at] = after[np.searchsorted(before, run.place[at])]

    def keys(self, entries: "Entries") -> Array:
        """The lower ends of these tuples, in the order of the entries."""
        return np.concatenate([run.low[at] for run, at in zip(self._runs, entries, strict=True)])

    def count(self, first: int, last: int) -> int:
        """How many tuples have lower ends from `first` to `last`."""
        total = 0
        for run in self._runs:
            begin, end = np.searchsorted(run.low, first, "left"), np.searchsorted(run.low, last, "right")
            total += int(np.count_nonzero(run.place[begin:end] >= 0))
        return total

    def at(self, place: Array) -> "Entries":
        """The tuples at these places, which must ascend."""
        first, second = (np.flatnonzero(are_among(run.place, place)) for run in self._runs)
        return Entries(first, second)

    def by_place(self) -> tuple[Array, Array, Array, Array]:
        """Places, which ascend, lower and upper ends and join bits of all tuples."""
        parts = [(run.place, run.low, run.high, run.joined) for run in self._runs]
        place, low, high, joined = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        there = np.flatnonzero(place >= 0)
        order = there[np.argsort(place[there])]
        return place[order], low[order], high[order], joined[order]

    def all(self) -> "Entries":
        """Every tuple."""
        first, second = (np.flatnonzero(run.place >= 0) for run in self._runs)
        return Entries(first, second)

    def filtered(self, is_wanted: Callable[[Array], Array], limit: int) -> "Entries":
        """Every tuple whose place is wanted; the function gets at most `limit` places at a time."""
        found = []
        for run in self._runs:
            there = [np.empty(0, np.int64)]
            for begin in range(0, len(run), limit):
                at = np.flatnonzero(run.place[begin : begin + limit] >= 0) + begin
                there.append(at[is_wanted(run.place[at])])
            found.append(np.concatenate(there))
        return Entries(*found)

    def check_invariants(self) -> None:
        """Raise AssertionError if the index contradicts itself."""
        for run in self._runs:
            assert (run.low[1:] >= run.low[:-1]).all()
            assert run.gone == np.count_nonzero(run.place < 0)
            assert (run.reach == reach_of(run.low, run.high, run.place)).all()
            assert (run.reach is run.low) == self._are_points or not len(run)
        places = np.concatenate([run.place[run.place >= 0] for run in self._runs])
        assert len(np.unique(places)) == len(places) == len(self)


def _ends(place: Array, count: int, *, is_low: bool) -> Array:
    """Positions of the first or the last `count` places that are not gone."""
    window = 2 * count
    while True:
        begin = 0 if is_low else max(len(place) - window, 0)
        there = np.flatnonzero(place[begin : begin + window] >= 0) + begin
        if len(there) >= count or window >= len(place):
            return there[:count] if is_low else there[max(len(there) - count, 0) :]
        window *= 4


@dataclass(frozen=True)
class Matches:
    """Entries that overlap intervals of a list.

    Attributes:
        owner: The interval of each pair.
        place: The place of its entry.
        low: The lower end of its entry.
        joined: Join bits and marks of all entries in its run.
        at: Which of them is that of its entry.
    """

    owner: Array
    place: Array
    low: Array
    joined: Array
    at: Array


class Entries(NamedTuple):
    """Entries of an index: positions in the long run and in the short run."""

    first: Array
    second: Array

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.first) + len(self.second)
