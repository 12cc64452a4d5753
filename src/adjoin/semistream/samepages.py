"""What two versions of a master have in common: pages, and keys whose rows are the same."""

import numpy as np

from adjoin.kernels.types import Array
from adjoin.master.index import PageIndex
from adjoin.parts.pagecache import ABSENT

_PAGES_AT_A_TIME = 1 << 16


def find_pages(index: PageIndex, first: Array, checksum: Array) -> Array:
    """Numbers of the pages with these first keys and checksums, ABSENT for those the index does not have.

    Several pages can begin with the same key, so the search goes on from page to page while they do. Of
    pages that are alike in every byte, each is found once.
    """
    found = np.full(len(first), ABSENT, np.int32)
    candidate = np.searchsorted(index.first, first)
    sought = np.flatnonzero(candidate < len(index))
    while len(sought):
        page = candidate[sought]
        same_key = index.first[page] == first[sought]
        hit = np.flatnonzero(same_key & (index.checksum[page] == checksum[sought]))
        _, once = np.unique(page[hit], return_index=True)
        hit = hit[once]
        found[sought[hit]] = page[hit]
        same_key[hit] = False
        sought = sought[same_key]
        candidate[sought] += 1
        sought = sought[candidate[sought] < len(index)]
    return found


def is_changed(keys: Array, before: PageIndex, after: PageIndex) -> Array:
    """Whether each key lies on a page that only one of the two versions has."""
    changed = np.zeros(len(keys), bool)
    for one, other in ((before, after), (after, before)):
        for begin in range(0, len(one), _PAGES_AT_A_TIME):
            first, last, checksum = (
                array[begin : begin + _PAGES_AT_A_TIME] for array in (one.first, one.last, one.checksum)
            )
            gone = find_pages(other, first, checksum) == ABSENT
            first, last = first[gone], last[gone]
            page = np.searchsorted(first, keys, "right") - 1
            inside = np.flatnonzero(page >= 0)
            changed[inside] |= keys[inside] <= last[page[inside]]
    return changed
