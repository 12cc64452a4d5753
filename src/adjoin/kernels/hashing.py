"""XXH64: checksums of pages (seed 0), and hashes of keys, each column seeded with the previous hash."""

from typing import Any

import numpy as np

from adjoin.kernels.compiling import inline_kernel, kernel
from adjoin.kernels.types import Array

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LANE_1 = np.uint64(0x60EA27EEADC0B5D6)  # PRIME_1 + PRIME_2, modulo 2**64
_LANE_4 = np.uint64(0x61C8864E7A143579)  # -PRIME_1, modulo 2**64
_BITS = np.uint64(64)


@inline_kernel
def _rotate(value: Any, bits: int) -> Any:
    return (value << np.uint64(bits)) | (value >> (_BITS - np.uint64(bits)))


@inline_kernel
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1


@inline_kernel
def _merge(total: Any, lane: Any) -> Any:
    return (total ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@inline_kernel
def _avalanche(total: Any) -> Any:
    total = (total ^ (total >> np.uint64(33))) * _PRIME_2
    total = (total ^ (total >> np.uint64(29))) * _PRIME_3
    return total ^ (total >> np.uint64(32))


@kernel
def _stripes(words: Array, count: int, seed: Any) -> Any:
    lane_1, lane_2, lane_3, lane_4 = seed + _LANE_1, seed + _PRIME_2, seed, seed + _LANE_4
    for at in range(0, count * 4, 4):
        lane_1 = _round(lane_1, words[at])
        lane_2 = _round(lane_2, words[at + 1])
        lane_3 = _round(lane_3, words[at + 2])
        lane_4 = _round(lane_4, words[at + 3])
    total = _rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18)
    return _merge(_merge(_merge(_merge(total, lane_1), lane_2), lane_3), lane_4)


@kernel
def hash_bytes(data: Array, start: int, stop: int) -> Any:
    """XXH64 of ``data[start:stop]`` (uint8)."""
    return _hash_bytes(data, start, stop, np.uint64(0))


@kernel
def _hash_bytes(data: Array, start: int, stop: int, seed: Any) -> Any:
    length = stop - start
    word_count = length // 8
    words = data[start : start + word_count * 8].view(np.uint64)
    stripe_count = length // 32
    total = _stripes(words, stripe_count, seed) if stripe_count > 0 else seed + _PRIME_5
    total += np.uint64(length)
    for at in range(stripe_count * 4, word_count):
        total = _rotate(total ^ _round(np.uint64(0), words[at]), 27) * _PRIME_1 + _PRIME_4
    at = start + word_count * 8
    if at + 4 <= stop:
        half = np.uint64(data[at : at + 4].view(np.uint32)[0])
        total = _rotate(total ^ (half * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        at += 4
    while at < stop:
        total = _rotate(total ^ (np.uint64(data[at]) * _PRIME_5), 11) * _PRIME_1
        at += 1
    return _avalanche(total)


@inline_kernel
def hash_word(word: Any) -> Any:
    """XXH64 of the eight bytes of one uint64."""
    return _hash_word(word, np.uint64(0))


@inline_kernel
def _hash_word(word: Any, seed: Any) -> Any:
    total = seed + _PRIME_5 + np.uint64(8)
    total = _rotate(total ^ _round(np.uint64(0), word), 27) * _PRIME_1 + _PRIME_4
    return _avalanche(total)


@kernel
def chain_words(hashes: Array, words: Array) -> None:
    """Replace each hash with the XXH64 of the row's value in a uint64 column, seeded with that hash."""
    for row in range(len(hashes)):
        hashes[row] = _hash_word(words[row], hashes[row])


@kernel
def chain_slices(hashes: Array, data: Array, offsets: Array) -> None:
    """The same for values of varying length, ``data[offsets[i]:offsets[i + 1]]``."""
    for row in range(len(hashes)):
        hashes[row] = _hash_bytes(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), hashes[row])


@kernel
def hash_ranges(data: Array, starts: Array, stops: Array) -> Array:
    """XXH64 of each ``data[starts[i]:stops[i]]``, for example of the pages in a buffer."""
    hashes = np.empty(len(starts), np.uint64)
    for at in range(len(starts)):
        hashes[at] = hash_bytes(data, starts[at], stops[at])
    return hashes


@kernel
def scatter(keys: Array) -> Array:
    """Map keys to other keys one to one, in a pseudo-random but fixed way; the high bits serve as a hash."""
    scattered = np.empty(len(keys), np.int64)
    for row in range(len(keys)):
        scattered[row] = np.int64(_avalanche(np.uint64(keys[row])))
    return scattered
