"""Membership filter: a key that is not in the master costs no read."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.kernels.bloom import WORDS_PER_BLOCK, add_keys, has_keys
from adjoin.master.index import in_place

_BITS_PER_BLOCK = 32 * WORDS_PER_BLOCK


@dataclass(frozen=True)
class KeyFilter:
    """Split-block Bloom filter over encoded keys.

    Attributes:
        words: The bits, in blocks of eight words.
        capacity: For how many keys it was made.
    """

    words: NDArray[np.uint32]
    capacity: int

    @classmethod
    def for_keys(cls, keys: int, bits: int) -> "KeyFilter":
        """An empty filter with `bits` bits for each of so many keys."""
        blocks = max(1, -(-keys * bits // _BITS_PER_BLOCK))
        return cls(np.zeros(blocks * WORDS_PER_BLOCK, np.uint32), max(1, keys))

    @property
    def nbytes(self) -> int:
        return int(self.words.nbytes)

    def add(self, encoded: NDArray[np.int64]) -> None:
        add_keys(self.words, encoded)

    def contains(self, encoded: NDArray[np.int64]) -> NDArray[np.bool_]:
        """False: the key was never added. True: it was, or (rarely) the bits of others cover it."""
        found = np.empty(len(encoded), np.bool_)
        has_keys(self.words, encoded, found)
        return found

    @property
    def is_crowded(self) -> bool:
        """True if it holds more than twice the keys it was made for, judged by its bits."""
        zeros = 1.0 - int(np.bitwise_count(self.words).sum()) / (32 * len(self.words))
        keys_per_block = -math.log(max(zeros, 1e-9)) * 32
        return keys_per_block * len(self.words) / WORDS_PER_BLOCK > 2 * max(self.capacity, _BITS_PER_BLOCK)

    def copy(self) -> "KeyFilter":
        return KeyFilter(self.words.copy(), self.capacity)

    def to_bytes(self) -> pa.Buffer:
        """A plain Arrow IPC file with one column of words."""
        batch = pa.record_batch([pa.array(self.words)], names=["words"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, capacity: int) -> "KeyFilter":
        words = pa.ipc.open_file(pa.py_buffer(data)).read_all()["words"]
        return cls(np.concatenate([chunk.to_numpy() for chunk in words.chunks]), capacity)

    @classmethod
    def over(cls, data: NDArray[np.uint8], capacity: int) -> "KeyFilter":
        """The filter whose file lies in this memory, in place."""
        words = pa.ipc.open_file(pa.py_buffer(data)).read_all()["words"]
        return cls(in_place(data, words, np.uint32), capacity)
