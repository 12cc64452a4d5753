"""The space of a file of pages: segments of equal size, used again once all their pages are gone."""

import numpy as np

from adjoin.kernels.types import Array

_NONE = -1


class Segments:
    """Which parts of a file are in use.

    Args:
        segment_bytes: Size of a segment; no page is larger.

    Attributes:
        live: The bytes in use in each segment.
    """

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.live: Array = np.zeros(0, np.int64)
        self._open = _NONE
        self._filled = 0

    def mark(self) -> tuple[Array, int, int]:
        """The state to which `undo` returns."""
        return self.live.copy(), self._open, self._filled

    def undo(self, mark: tuple[Array, int, int]) -> None:
        """Release what was taken since."""
        self.live, self._open, self._filled = mark

    def take(self, lengths: Array) -> Array:
        """Places for pages of these lengths; neighbors are adjacent as far as possible."""
        places = np.empty(len(lengths), np.int64)
        ends = np.cumsum(lengths, dtype=np.int64)
        at = 0
        while at < len(lengths):
            before = int(ends[at - 1]) if at else 0
            room = 0 if self._open == _NONE else self.segment_bytes - self._filled
            end = int(np.searchsorted(ends, before + room, "right"))
            if end == at:
                self._open_next()
                continue
            begin = self._open * self.segment_bytes + self._filled
            places[at:end] = begin + ends[at:end] - lengths[at:end] - before
            taken = int(ends[end - 1]) - before
            self._filled += taken
            self.live[self._open] += taken
            at = end
        return places

    def _open_next(self) -> None:
        """Continue in a segment that is free, or behind all others."""
        free = np.flatnonzero(self.live == 0)
        free = free[free != self._open]
        if len(free) == 0:
            self.live = np.append(self.live, np.int64(0))
            free = np.array([len(self.live) - 1])
        self._open = int(free[0])
        self._filled = 0

    def leave(self, segments: Array) -> None:
        """If one of these segments is being filled, continue in another one."""
        if self._open in segments:
            self._open = _NONE

    def release(self, places: Array, lengths: Array) -> None:
        """Pages at these places are gone."""
        np.subtract.at(self.live, places // self.segment_bytes, lengths.astype(np.int64))
        if self._open != _NONE and self.live[self._open] == 0:
            self._filled = 0
        used = np.flatnonzero(self.live)
        self.live = self.live[: used[-1] + 1] if len(used) else self.live[:0]
        if self._open >= len(self.live):
            self._open = _NONE

    @property
    def end(self) -> int:
        """Where the last segment in use ends."""
        return len(self.live) * self.segment_bytes

    @property
    def held_bytes(self) -> int:
        """The memory that this takes."""
        return 2 * self.live.nbytes

    def check_invariants(self, places: Array, lengths: Array) -> None:
        """Raise AssertionError unless exactly these pages are in use, and none overlap."""
        order = np.argsort(places)
        assert (places[order][1:] >= (places + lengths)[order][:-1]).all()
        assert (places // self.segment_bytes == (places + lengths - 1) // self.segment_bytes).all()
        live = np.bincount(places // self.segment_bytes, lengths, len(self.live))
        assert (live == self.live).all()
        if self._open != _NONE:
            assert self._filled >= self.live[self._open]
