"""Split-block Bloom filter: each key sets one bit in each of the eight words of one block."""

from typing import Any

import numpy as np

from adjoin.kernels.compiling import inline_kernel, kernel
from adjoin.kernels.hashing import hash_word
from adjoin.kernels.types import Array

WORDS_PER_BLOCK = 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)
_LOW = np.uint64(0xFFFFFFFF)


@inline_kernel
def first_word(hashed: Any, block_count: Any) -> Any:
    """The first word of the block that belongs to a hash."""
    # Multiplying by the high half picks a block without a division, for any number of blocks.
    return np.int64(((hashed >> np.uint64(32)) * block_count) >> np.uint64(32)) * 8


@inline_kernel
def _bit(hashed: Any, lane: int) -> Any:
    low = hashed & _LOW
    return np.uint32(1) << np.uint32(((low * np.uint64(_SALTS[lane])) & _LOW) >> np.uint64(27))


@kernel
def has_bits(words: Array, first: int, hashed: Any) -> bool:
    """Whether all bits of a hash are set in the block that starts at word `first`."""
    present = True
    for lane in range(8):
        if words[first + lane] & _bit(hashed, lane) == 0:
            present = False
            break
    return present


@kernel
def add_keys(words: Array, keys: Array) -> None:
    """Add all keys (int64) to the filter."""
    block_count = np.uint64(len(words) // 8)
    for row in range(len(keys)):
        hashed = hash_word(np.uint64(keys[row]))
        first = first_word(hashed, block_count)
        for lane in range(8):
            words[first + lane] |= _bit(hashed, lane)


@kernel
def has_keys(words: Array, keys: Array, found: Array) -> None:
    """Set ``found[i]`` to False if key i was never added; True may, rarely, be a false positive."""
    block_count = np.uint64(len(words) // 8)
    for row in range(len(keys)):
        hashed = hash_word(np.uint64(keys[row]))
        found[row] = has_bits(words, first_word(hashed, block_count), hashed)
