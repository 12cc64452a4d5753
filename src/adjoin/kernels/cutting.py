"""Where pages begin and end, and how their messages are completed."""

from typing import Any

import numpy as np

from adjoin.kernels.compiling import inline_kernel, kernel
from adjoin.kernels.hashing import hash_bytes
from adjoin.kernels.types import Array


@kernel
def cut_rows(row_bytes: Array, limit_bytes: int, starts: Array) -> int:
    """Fill pages greedily: write the first row of each page to `starts`, return the number of pages.

    A page holds as many rows as `limit_bytes` has room for, and always at least one.
    """
    pages = 0
    used = 0
    for row in range(len(row_bytes)):
        if row == 0 or used + row_bytes[row] > limit_bytes:
            starts[pages] = row
            pages += 1
            used = 0
        used += row_bytes[row]
    return pages


@kernel
def cut_groups(row_bytes: Array, groups: Array, keep_bytes: int, limit_bytes: int, starts: Array) -> int:
    """Like `cut_rows`, for rows of pages that are rewritten (`groups`: the old page of each, ascending).

    The rows of a group stay one page as long as they take no more than `keep_bytes`; a group that has
    outgrown this is cut at `limit_bytes`. No page holds rows of two groups.
    """
    pages = 0
    first = 0
    while first < len(groups):
        end = first
        total = 0
        while end < len(groups) and groups[end] == groups[first]:
            total += row_bytes[end]
            end += 1
        limit = keep_bytes if total <= keep_bytes else limit_bytes
        used = 0
        for row in range(first, end):
            if row == first or used + row_bytes[row] > limit:
                starts[pages] = row
                pages += 1
                used = 0
            used += row_bytes[row]
        first = end
    return pages


@inline_kernel
def _int32_at(data: Array, at: int) -> Any:
    return np.int64(data[at : at + 4].view(np.int32)[0])


@inline_kernel
def _uint16_at(data: Array, at: int) -> Any:
    return np.int64(data[at]) | (np.int64(data[at + 1]) << np.int64(8))


@kernel
def _body_length_at(data: Array, message: int) -> Any:
    """Position of `bodyLength` (field 3 of the Message table) in the message that starts at `message`."""
    table = message + 8 + _int32_at(data, message + 8)
    vtable = table - _int32_at(data, table)
    return table + _uint16_at(data, vtable + 4 + 2 * 3)


@kernel
def seal_messages(data: Array, starts: Array, stops: Array, metadata_bytes: Array, checksums: Array) -> None:
    """Extend the body of each message ``data[start:stop]`` over its padding, and compute its checksum.

    `metadata_bytes` receives the length of each message's prefix and metadata.
    """
    for page in range(len(starts)):
        start, stop = starts[page], stops[page]
        metadata = np.int64(8) + _int32_at(data, start + 4)
        at = _body_length_at(data, start)
        data[at : at + 8].view(np.int64)[0] = stop - start - metadata
        metadata_bytes[page] = metadata
        checksums[page] = hash_bytes(data, start, stop)
