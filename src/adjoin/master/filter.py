"""Membership filter: a key that is not in the master costs no read."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.kernels.blocks import FILTER_WORDS, SOUND, has_keys_in_blocks, sum_filter
from adjoin.kernels.bloom import WORDS_PER_BLOCK, add_keys, has_keys
from adjoin.master.index import VerifiedFile, file_of_lists, in_place, read_lists

_BITS_PER_BLOCK = 32 * WORDS_PER_BLOCK


@dataclass(frozen=True)
class KeyFilter:
    """Split-block Bloom filter over encoded keys.

    Attributes:
        words: The bits, in blocks of eight words.
        capacity: The number of keys it was sized for.
    """

    words: NDArray[np.uint32]
    capacity: int

    @classmethod
    def for_keys(cls, keys: int, bits: int) -> "KeyFilter":
        """An empty filter with `bits` bits per key for this number of keys."""
        blocks = max(1, -(-keys * bits // _BITS_PER_BLOCK))
        return cls(np.zeros(blocks * WORDS_PER_BLOCK, np.uint32), max(1, keys))

    @property
    def nbytes(self) -> int:
        return int(self.words.nbytes)

    def add(self, encoded: NDArray[np.int64]) -> None:
        add_keys(self.words, encoded)

    def contains(self, encoded: NDArray[np.int64]) -> NDArray[np.bool_]:
        """False if a key was never added; True if it was, or, rarely, as a false positive."""
        found = np.empty(len(encoded), np.bool_)
        has_keys(self.words, encoded, found)
        return found

    @property
    def is_crowded(self) -> bool:
        """Whether it holds more than twice the keys it was sized for, estimated from its bits."""
        zeros = 1.0 - int(np.bitwise_count(self.words).sum()) / (32 * len(self.words))
        keys_per_block = -math.log(max(zeros, 1e-9)) * 32
        return keys_per_block * len(self.words) / WORDS_PER_BLOCK > 2 * max(self.capacity, _BITS_PER_BLOCK)

    def copy(self) -> "KeyFilter":
        return KeyFilter(self.words.copy(), self.capacity)

    def to_bytes(self) -> pa.Buffer:
        """A plain Arrow IPC file with a single row: a list of words, and one of the sums of blocks."""
        sums = np.empty(-(-len(self.words) // FILTER_WORDS), np.uint32)
        sum_filter(self.words, sums)
        return file_of_lists({"words": self.words, "sums": sums})

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, capacity: int) -> "KeyFilter":
        """Read a filter from a file that has been verified as a whole."""
        return cls(read_lists(data)["words"].astype(np.uint32), capacity)

    @classmethod
    def from_first_format(cls, data: bytes | bytearray, capacity: int) -> "KeyFilter":
        """Read a filter from a file of format 1, which has no sums."""
        words = pa.ipc.open_file(pa.py_buffer(data)).read_all()["words"]
        return cls(np.concatenate([chunk.to_numpy() for chunk in words.chunks]), capacity)


class CheckedFilter:
    """A filter in a mapped file that may change at any time: only verified words can report a key absent.

    Args:
        file: The file.
    """

    def __init__(self, file: VerifiedFile) -> None:
        self._file = file
        found = read_lists(file.bytes)
        self._words = in_place(file.bytes, found["words"])
        self._sums = found["sums"].copy()
        blocks = -(-len(self._words) // FILTER_WORDS)
        is_filter = self._words.dtype == self._sums.dtype == np.dtype(np.uint32)
        if not is_filter or len(self._sums) != blocks or not blocks:
            raise pa.ArrowInvalid("its columns are not those of a filter")

    @property
    def nbytes(self) -> int:
        """Size of the whole filter."""
        return int(self._words.nbytes)

    def contains(self, encoded: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See `KeyFilter.contains`.

        Raises:
            CorruptionError: A block that reports a key absent is damaged.
        """
        self._file.check()
        found = np.empty(len(encoded), np.bool_)
        block = has_keys_in_blocks(self._words, self._sums, encoded, found)
        if block != SOUND:
            raise self._file.damage(f"block {block} of {4 * FILTER_WORDS} bytes")
        return found
