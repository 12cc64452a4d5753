"""What two versions of a master have in common: pages, and keys with the same rows."""

import numpy as np

from adjoin.kernels.types import Array
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.semistream.pages.cache import ABSENT


def find_pages(index: PageIndex | CheckedIndex, first: Array, checksum: Array) -> Array:
    """Numbers of the pages with these first keys and checksums; ABSENT for those the index does not have.

    Several pages can begin with the same key, so the search continues from page to page as long as they do.
    Of pages that are identical in every byte, each is found once.
    """
    found = np.full(len(first), ABSENT, np.int32)
    order = np.argsort(first, kind="stable")
    candidate = np.empty(len(first), np.int64)
    candidate[order] = index.locate(first[order], first[order])[0]
    sought = np.flatnonzero(candidate < len(index))
    # The first page with the key may begin with a lesser key, the pages behind it do not.
    candidate[sought] += index.take(candidate[sought]).first < first[sought]
    sought = sought[candidate[sought] < len(index)]
    while len(sought):
        page = candidate[sought]
        entries = index.take(page)
        same_key = entries.first == first[sought]
        hit = np.flatnonzero(same_key & (entries.checksum == checksum[sought]))
        _, once = np.unique(page[hit], return_index=True)
        hit = hit[once]
        found[sought[hit]] = page[hit]
        same_key[hit] = False
        sought = sought[same_key]
        candidate[sought] += 1
        sought = sought[candidate[sought] < len(index)]
    return found


def is_changed(keys: Array, before: CheckedIndex, after: CheckedIndex) -> Array:
    """Whether each key is on a page that only one of the two versions has."""
    changed = np.zeros(len(keys), bool)
    for one, other in ((before, after), (after, before)):
        for part in one.parts():
            gone = find_pages(other, part.first, part.checksum) == ABSENT
            first, last = part.first[gone], part.last[gone]
            page = np.searchsorted(first, keys, "right") - 1
            inside = np.flatnonzero(page >= 0)
            changed[inside] |= keys[inside] <= last[page[inside]]
    return changed
