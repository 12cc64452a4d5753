"""Which stream rows were joined with which master rows, key by key."""

from dataclasses import dataclass

import numpy as np

from adjoin.kernels.types import Array


@dataclass(frozen=True)
class PairsByKey:
    """Pairs of stream and master rows by key.

    Attributes:
        keys: The encoded keys, ascending.
        times: How many stream rows each has.
        rows: How many master rows the first stream row of each was joined with.
        pairs: The pairs of these first stream rows, in the order of the keys.
    """

    keys: Array
    times: Array
    rows: Array
    pairs: Array


def pairs_by_key(keys: Array, stream_row: Array) -> PairsByKey:
    """Put pairs in order; those of one stream row are side by side."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    pairs = np.diff(np.concatenate([starts, [len(order)]]))
    rows_of = stream_row[order]
    is_first = rows_of == np.repeat(rows_of[starts], pairs)
    rows = np.add.reduceat(is_first, starts, dtype=np.int32)
    return PairsByKey(ordered[starts], pairs // rows, rows, order[is_first])


class TurnCounts:
    """How many stream rows each key has in one turn of pages, which can come in several portions.

    Of more keys than there is room for, those with the fewest rows are forgotten.
    """

    _BYTES = 48
    """Of a key: it and its rows, and both twice more while others come."""

    def __init__(self) -> None:
        self._turn = -1
        self._keys: Array = np.empty(0, np.int64)
        self._times: Array = np.empty(0, np.int64)

    def count(self, turn: int, joined: PairsByKey, room_bytes: int) -> Array:
        """The rows of these keys so far in this turn, the new ones included."""
        if turn != self._turn:
            self._turn = turn
            self._keep(joined.keys, joined.times, room_bytes)
            return joined.times
        keys, place = np.unique(np.concatenate([self._keys, joined.keys]), return_inverse=True)
        times = np.bincount(place, np.concatenate([self._times, joined.times]), len(keys)).astype(np.int64)
        self._keep(keys, times, room_bytes)
        return times[np.searchsorted(keys, joined.keys)]

    def _keep(self, keys: Array, times: Array, room_bytes: int) -> None:
        most = max(1, room_bytes // self._BYTES)
        if len(keys) > most:
            stay = np.sort(np.argpartition(times, len(keys) - most)[len(keys) - most :])
            keys, times = keys[stay], times[stay]
        self._keys, self._times = keys, times
