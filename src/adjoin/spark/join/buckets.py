"""Buckets: which rows meet in which operator, and where Spark runs it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from adjoin.kernels.hashing import scatter
from adjoin.kernels.types import Array
from adjoin.spark.join.options import JoinOptions
from adjoin.streamjoin.base.spec import LEFT, Condition

_CELL_DISTANCES = 16
"""Keys of a band join fall into cells this many times as wide as the distance: few rows belong to two."""
_MOST = np.iinfo(np.int64).max
_SEED = 42
"""Of the hash by which Spark chooses the partition of a key."""
_PARTITIONS = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 100, 128, 200, 256, 400, 512, 1000)
"""Usual numbers of shuffle partitions: buckets should fall into different ones."""
_CANDIDATES = 1 << 16


@dataclass(frozen=True)
class Routing:
    """Sends rows that may match to a common bucket.

    *Equality*: by a hash of the key. *Band*: keys are divided into cells, and cells are hashed; a left row
    goes to the buckets of the one or two cells that it overlaps, so that it meets every partner once.
    *Range*: left rows go to all buckets, right rows to one. What happens to a left row as a whole (it is
    returned without a partner, or only once) takes a single bucket, so such band and range joins have one.

    Attributes:
        options: The join.
        count: The number of buckets.
    """

    options: JoinOptions
    count: int

    @cached_property
    def _condition(self) -> Condition:
        options = self.options
        pairs = list(options.on.items())
        return Condition(options.right, pairs, options.within, options.between)

    def buckets(self, side: int, plain: pa.RecordBatch) -> tuple[Array, Array]:
        """Rows and the bucket of each; a row that goes to several buckets is there several times.

        Rows without a key are left out unless they are returned without a partner.

        Args:
            side: The side of the rows.
            plain: The rows, in plain types.
        """
        low, high, valid = self._condition.bounds(side, plain)
        rows = np.arange(plain.num_rows)
        if self.count == 1:
            bucket = np.zeros(len(rows), np.int64)
        elif self._condition.is_equality:
            bucket = _hashed(low, self.count)
        elif self.options.within is not None:
            rows, bucket = self._cells(low, high)
        elif side == LEFT:
            rows, bucket = np.repeat(rows, self.count), np.tile(np.arange(self.count), len(rows))
        else:
            bucket = _hashed(low, self.count)
        if valid is None:
            return rows, bucket
        if side in self.options.preserved:
            return rows, np.where(valid[rows], bucket, rows % self.count)
        return rows[valid[rows]], bucket[valid[rows]]

    def _cells(self, low: Array, high: Array) -> tuple[Array, Array]:
        first, last = (_hashed(self._cell(end), self.count) for end in (low, high))
        rows = np.arange(len(low))
        twice = np.flatnonzero(first != last)
        return np.concatenate([rows, twice]), np.concatenate([first, last[twice]])

    def _cell(self, key: Array) -> Array:
        """The cell of encoded keys; that of a greater key is never an earlier one."""
        width = self._cell_width
        if not width:
            return key
        if isinstance(width, int):
            return key // width
        with np.errstate(over="ignore", invalid="ignore"):
            return (np.floor(_as_floats(key) / width) + 0.0).view(np.int64)

    @cached_property
    def _cell_width(self) -> float | int:
        """The width of a cell in encoded keys, or for floats in keys; 0 if the distance is 0."""
        ((column, key),) = self.options.on.items()
        left = self.options.left.field(column)
        zero = pa.array([0], pa.int32()).cast(pa.int64() if pa.types.is_temporal(left.type) else left.type)
        plain = pa.record_batch([zero.cast(left.type)], schema=pa.schema([left]))
        low, high, _ = self._condition.bounds(LEFT, plain)
        if pa.types.is_floating(self.options.right.field(key).type):
            return float(_as_floats(high)[0]) * _CELL_DISTANCES
        return min((int(high[0]) - int(low[0])) * _CELL_DISTANCES, _MOST)


def _as_floats(key: Array) -> Array:
    """The floats that these keys encode."""
    floats: Array = (key ^ ((key >> np.int64(63)) & np.int64(_MOST))).view(np.float64)
    return floats


def _hashed(keys: Array, count: int) -> Array:
    """A bucket for each key, the same for equal keys."""
    buckets: Array = (scatter(keys).view(np.uint64) % np.uint64(count)).astype(np.int64)
    return buckets


def bucket_keys(count: int) -> tuple[int, ...]:
    """The key by which Spark groups the rows of each bucket.

    Spark hashes keys to partitions, and small numbers collide. These fall into different partitions for as
    many usual numbers of partitions as possible, and depend on nothing but `count`, as a checkpoint requires.
    """
    keys = np.arange(_CANDIDATES, dtype=np.uint32)
    hashes = _murmur3(keys).astype(np.int64)
    usual = [number for number in _PARTITIONS if number > count]
    taken: list[set[int]] = [set() for _ in usual]
    chosen = []
    for bucket in range(count):
        fitting = np.flatnonzero(hashes % count == bucket)
        clashes = np.zeros(len(fitting), np.int64)
        for number, used in zip(usual, taken, strict=True):
            clashes += np.isin(hashes[fitting] % number, list(used))
        best = int(fitting[np.argmin(clashes)])
        for number, used in zip(usual, taken, strict=True):
            used.add(int(hashes[best] % number))
        chosen.append(best)
    return tuple(chosen)


def _murmur3(keys: Array) -> Array:
    """Spark's hash of each 32-bit integer."""
    with np.errstate(over="ignore"):
        mixed = _rotated(keys * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashes = _rotated(mixed ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashes ^= np.uint32(4)  # the length of an integer in bytes
        hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (hashes ^ (hashes >> np.uint32(16))).view(np.int32)


def _rotated(words: Array, bits: int) -> Array:
    rotated: Array = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated
