"""Blocks of a memory-mapped index or filter, each verified by its sum after it was used.

Mapped memory can change at any time, because the file can. So kernels stay within their arrays whatever they
read, and a result counts only if the blocks it came from still have, afterwards, the sums that were recorded
when the file was opened.
"""

from typing import Any, NamedTuple

import numpy as np

from adjoin.kernels.bloom import WORDS_PER_BLOCK, first_word, has_bits
from adjoin.kernels.compiling import kernel
from adjoin.kernels.hashing import hash_word
from adjoin.kernels.search import first_above, first_not_below, first_not_below_from
from adjoin.kernels.types import Array

ENTRIES = 32
"""Entries of the index that share a block."""
FILTER_WORDS = 32
"""Words of the filter that share a block: whole blocks of the Bloom filter."""
SOUND = -1

_MIX = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_PADS = np.random.Generator(np.random.PCG64(0x61646A6F696E)).integers(0, 1 << 64, 3 * ENTRIES, np.uint64)


class Entries(NamedTuple):
    """The arrays of an index; see `PageIndex`."""

    first: Array
    last: Array
    file: Array
    block: Array
    blocks: Array
    rows: Array
    checksum: Array


# Such a sum is much faster than XXH64, and strong enough for blocks so small that each word has a pad of its
# own. The products of the halves of each padded word depend on the position of the words; the plain sum
# detects every change of a single word for certain.


@kernel
def _sum_keys(first: Array, last: Array, block: int) -> Any:
    begin, end = block * ENTRIES, min((block + 1) * ENTRIES, len(first))
    # Slices show the compiler that no index is negative, so that it vectorizes the loop.
    firsts, lasts, pads = first[begin:end], last[begin:end], _PADS[ENTRIES:]
    products, total = np.uint64(0), np.uint64(0)
    for i in range(len(firsts)):
        one, other = np.uint64(firsts[i]), np.uint64(lasts[i])
        padded, padded_other = one + _PADS[i], other + pads[i]
        products += (padded & _LOW) * (padded >> _HALF) + (padded_other & _LOW) * (padded_other >> _HALF)
        total += one + other
    return hash_word(products ^ (total * _MIX))


@kernel
def _sum_places(entries: Entries, block: int) -> Any:
    begin, end = block * ENTRIES, min((block + 1) * ENTRIES, len(entries.first))
    file, start = entries.file[begin:end], entries.block[begin:end]
    blocks, rows, checksums = entries.blocks[begin:end], entries.rows[begin:end], entries.checksum[begin:end]
    size_pads, checksum_pads = _PADS[ENTRIES:], _PADS[2 * ENTRIES :]
    products, total = np.uint64(0), np.uint64(0)
    for i in range(len(file)):
        place = np.uint64(np.uint32(file[i])) | np.uint64(np.uint32(start[i])) << _HALF
        size = np.uint64(np.uint32(blocks[i])) | np.uint64(np.uint32(rows[i])) << _HALF
        one, two, three = place + _PADS[i], size + size_pads[i], checksums[i] + checksum_pads[i]
        products += (one & _LOW) * (one >> _HALF) + (two & _LOW) * (two >> _HALF)
        products += (three & _LOW) * (three >> _HALF)
        total += place + size + checksums[i]
    return hash_word(products ^ (total * _MIX))


@kernel
def _sum_words(words: Array, block: int) -> Any:
    begin = block * FILTER_WORDS
    products, total = np.uint64(0), np.uint64(0)
    for i in range(min(FILTER_WORDS, len(words) - begin) // 2):
        at = begin + 2 * i
        word = np.uint64(words[at]) | np.uint64(words[at + 1]) << _HALF
        padded = word + _PADS[i]
        products += (padded & _LOW) * (padded >> _HALF)
        total += word
    return np.uint32(hash_word(products ^ (total * _MIX)) & _LOW)


@kernel
def sum_entries(entries: Entries, key_sums: Array, place_sums: Array) -> None:
    """Compute both sums of every block of an index."""
    for block in range(len(key_sums)):
        key_sums[block] = _sum_keys(entries.first, entries.last, block)
        place_sums[block] = _sum_places(entries, block)


@kernel
def take_entries(entries: Entries, key_sums: Array, place_sums: Array, pages: Array, taken: Entries) -> int:
    """Copy the entries of these pages; returns SOUND, or the block that is damaged."""
    first, last = entries.first, entries.last
    held = np.int64(-1)
    for i in range(len(pages) + 1):
        block = np.int64(pages[i]) // ENTRIES if i < len(pages) else np.int64(-1)
        if block != held:
            if held >= 0 and _sum_keys(first, last, held) != key_sums[held]:
                return held
            if held >= 0 and _sum_places(entries, held) != place_sums[held]:
                return held
            held = block
        if i < len(pages):
            page = pages[i]
            taken.first[i] = entries.first[page]
            taken.last[i] = entries.last[page]
            taken.file[i] = entries.file[page]
            taken.block[i] = entries.block[page]
            taken.blocks[i] = entries.blocks[page]
            taken.rows[i] = entries.rows[page]
            taken.checksum[i] = entries.checksum[page]
    return SOUND


@kernel
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
    """Like `locate_pages`; the fences are the first and last key of each block.

    Returns:
        SOUND, or the block that is damaged.
    """
    first, last = entries.first, entries.last
    pages, blocks = len(first), len(key_sums)
    held, far = -1, -1
    block, page, end = 0, 0, 0
    for row in range(len(low)):
        if held < 0 or fence_last[held] < low[row]:
            block = first_not_below_from(fence_last, low[row], block)
            if held >= 0 and _sum_keys(first, last, held) != key_sums[held]:
                return held
            held = block if block < blocks else -1
            page = block * ENTRIES
            end = min(page + ENTRIES, pages)
        if block == blocks:
            start[row] = pages
            stop[row] = pages
            continue
        if last[page] < low[row]:
            page = min(first_not_below(last, low[row], page + 1, end), end - 1)
        start[row] = page
        if high[row] < low[row] or first[page] > high[row]:
            stop[row] = page
        elif (page + 1 < end and first[page + 1] > high[row]) or (
            page + 1 == end and (end == pages or fence_first[block + 1] > high[row])
        ):
            stop[row] = page + 1
        else:
            farthest = max(first_above(fence_first, high[row], block, blocks) - 1, block)
            if farthest != far:
                if far >= 0 and _sum_keys(first, last, far) != key_sums[far]:
                    return far
                far = farthest
            far_end = min((far + 1) * ENTRIES, pages)
            stop[row] = first_above(first, high[row], far * ENTRIES, far_end)
    if held >= 0 and _sum_keys(first, last, held) != key_sums[held]:
        return held
    if far >= 0 and _sum_keys(first, last, far) != key_sums[far]:
        return far
    return SOUND


@kernel
def has_keys_in_blocks(words: Array, sums: Array, keys: Array, found: Array) -> int:
    """Like `has_keys`, but blocks that report a key absent are verified: a false one would lose rows.

    Returns:
        SOUND, or the block that is damaged.
    """
    block_count = np.uint64(len(words) // WORDS_PER_BLOCK)
    for row in range(len(keys)):
        hashed = hash_word(np.uint64(keys[row]))
        first = first_word(hashed, block_count)
        found[row] = has_bits(words, first, hashed)
        if not found[row]:
            block = first // FILTER_WORDS
            if _sum_words(words, block) != sums[block]:
                return block
    return SOUND


@kernel
def sum_filter(words: Array, sums: Array) -> None:
    """Compute the sum of every block of a filter."""
    for block in range(len(sums)):
        sums[block] = _sum_words(words, block)
