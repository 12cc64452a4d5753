"""Blocks of a mapped index or filter: copied, verified by their sums, and only then believed.

What is mapped can change at any time, as the file does. So nothing is decided by what lies there: a
block is copied, the copy must have the sum that was noted when the file was opened, and the copy is used.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from adjoin.kernels.bloom import WORDS_PER_BLOCK, first_word, has_bits
from adjoin.kernels.hashing import hash_word
from adjoin.kernels.search import first_above, first_not_below, first_not_below_from
from adjoin.kernels.types import Array

ENTRIES = 32
"""Entries of the index that share a block."""
FILTER_WORDS = 64
"""Words of the filter that share a block: whole blocks of the Bloom filter."""
_KEY_WORDS = 2 * ENTRIES
_PLACE_WORDS = 3 * ENTRIES
SOUND = -1

_MIX = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_PADS = np.random.Generator(np.random.PCG64(0x61646A6F696E)).integers(0, 1 << 64, 2 * _PLACE_WORDS, np.uint64)


class Entries(NamedTuple):
    """The arrays of an index; see `PageIndex`."""

    first: Array
    last: Array
    file: Array
    block: Array
    blocks: Array
    rows: Array
    checksum: Array


@njit(cache=True, nogil=True)
def sum_words(words: Array) -> int:
    """A checksum of so few words (uint64) that each has a pad of its own; much faster than XXH64.

    The sum of products of the halves of each padded word tells what stands where; the plain sum of the
    words shows every single change for certain.
    """
    products = np.uint64(0)
    total = np.uint64(0)
    for i in range(len(words)):
        padded = words[i] + _PADS[i]
        products += (padded & _LOW) * (padded >> _HALF)
        total += words[i]
    return hash_word(products ^ (total * _MIX))


@njit(cache=True, nogil=True)
def _copy_keys(entries: Entries, block: int, own: Array) -> int:
    """Copy the keys of a block, the first ones before the last ones; returns their sum."""
    begin = block * ENTRIES
    count = min(ENTRIES, len(entries.first) - begin)
    for i in range(count):
        own[i] = entries.first[begin + i]
        own[ENTRIES + i] = entries.last[begin + i]
    for i in range(count, ENTRIES):
        own[i] = 0
        own[ENTRIES + i] = 0
    return sum_words(own.view(np.uint64))


@njit(cache=True, nogil=True)
def _copy_places(entries: Entries, block: int, own: Array) -> int:
    """Copy the places of a block: checksums, then file, block, blocks and rows; returns their sum."""
    begin = block * ENTRIES
    count = min(ENTRIES, len(entries.first) - begin)
    words = own.view(np.uint64)
    halves = own[ENTRIES:].view(np.int32)
    for i in range(count):
        words[i] = entries.checksum[begin + i]
        halves[i] = entries.file[begin + i]
        halves[ENTRIES + i] = entries.block[begin + i]
        halves[2 * ENTRIES + i] = entries.blocks[begin + i]
        halves[3 * ENTRIES + i] = entries.rows[begin + i]
    for i in range(count, ENTRIES):
        words[i] = 0
        for k in range(4):
            halves[k * ENTRIES + i] = 0
    return sum_words(words)


@njit(cache=True, nogil=True)
def sum_entries(entries: Entries, key_sums: Array, place_sums: Array) -> None:
    """The sums of every block."""
    keys = np.empty(_KEY_WORDS, np.int64)
    places = np.empty(_PLACE_WORDS, np.int64)
    for block in range(len(key_sums)):
        key_sums[block] = _copy_keys(entries, block, keys)
        place_sums[block] = _copy_places(entries, block, places)


@njit(cache=True, nogil=True)
def take_entries(entries: Entries, key_sums: Array, place_sums: Array, pages: Array, taken: Entries) -> int:
    """Copy the entries of these pages; returns SOUND, or the block that is damaged."""
    keys = np.empty(_KEY_WORDS, np.int64)
    places = np.empty(_PLACE_WORDS, np.int64)
    checksums = places.view(np.uint64)
    halves = places[ENTRIES:].view(np.int32)
    held = -1
    for i in range(len(pages)):
        block = np.int64(pages[i]) // ENTRIES
        at = np.int64(pages[i]) - block * ENTRIES
        if block != held:
            if _copy_keys(entries, block, keys) != key_sums[block]:
                return block
            if _copy_places(entries, block, places) != place_sums[block]:
                return block
            held = block
        taken.first[i] = keys[at]
        taken.last[i] = keys[ENTRIES + at]
        taken.checksum[i] = checksums[at]
        taken.file[i] = halves[at]
        taken.block[i] = halves[ENTRIES + at]
        taken.blocks[i] = halves[2 * ENTRIES + at]
        taken.rows[i] = halves[3 * ENTRIES + at]
    return SOUND


@njit(cache=True, nogil=True)
def locate_in_blocks(
    entries: Entries,
    key_sums: Array,
    fence_first: Array,
    fence_last: Array,
    low: Array,
    high: Array,
    start: Array,
    stop: Array,
) -> int:
    """As `locate_pages`; the fences are the first and last key of each block.

    Returns:
        SOUND, or the block that is damaged.
    """
    pages, blocks = len(entries.first), len(key_sums)
    own = np.empty((2, _KEY_WORDS), np.int64)
    held, held_far = -1, -1
    block = 0
    for row in range(len(low)):
        block = first_not_below_from(fence_last, low[row], block)
        if block == blocks:
            start[row] = pages
            stop[row] = pages
            continue
        if block != held:
            if _copy_keys(entries, block, own[0]) != key_sums[block]:
                return block
            held = block
        begin = block * ENTRIES
        count = min(ENTRIES, pages - begin)
        at = first_not_below(own[0], low[row], ENTRIES, ENTRIES + count) - ENTRIES
        start[row] = begin + at
        following = fence_first[block + 1] if block + 1 < blocks else low[row]
        if at + 1 < count:
            following = own[0, at + 1]
        if high[row] < low[row] or own[0, at] > high[row]:
            stop[row] = begin + at
        elif begin + at + 1 == pages or following > high[row]:
            stop[row] = begin + at + 1
        else:
            far = first_above(fence_first, high[row], block, blocks) - 1
            if far != held_far:
                if _copy_keys(entries, far, own[1]) != key_sums[far]:
                    return far
                held_far = far
            far_count = min(ENTRIES, pages - far * ENTRIES)
            stop[row] = far * ENTRIES + first_above(own[1], high[row], 0, far_count)
    return SOUND


@njit(cache=True, nogil=True)
def has_keys_in_blocks(words: Array, sums: Array, keys: Array, found: Array) -> int:
    """As `has_keys`; what says that a key is absent is verified, for it would lose rows.

    Returns:
        SOUND, or the block that is damaged.
    """
    block_count = np.uint64(len(words) // WORDS_PER_BLOCK)
    own = np.zeros(FILTER_WORDS, np.uint32)
    held = -1
    for row in range(len(keys)):
        hashed = hash_word(np.uint64(keys[row]))
        first = first_word(hashed, block_count)
        found[row] = True
        if has_bits(words, first, hashed):
            continue
        block = first // FILTER_WORDS
        if block != held:
            if _copy_words(words, block, own) != sums[block]:
                return block
            held = block
        found[row] = has_bits(own, first - block * FILTER_WORDS, hashed)
    return SOUND


@njit(cache=True, nogil=True)
def _copy_words(words: Array, block: int, own: Array) -> int:
    begin = block * FILTER_WORDS
    count = min(FILTER_WORDS, len(words) - begin)
    for i in range(count):
        own[i] = words[begin + i]
    for i in range(count, FILTER_WORDS):
        own[i] = 0
    return sum_words(own.view(np.uint64))


@njit(cache=True, nogil=True)
def sum_filter(words: Array, sums: Array) -> int:
    """The sums of every block of a filter."""
    own = np.empty(FILTER_WORDS, np.uint32)
    for block in range(len(sums)):
        sums[block] = _copy_words(words, block, own)
    return len(sums)
