"""Who is compared: the operators by name, and variants of them that only figures need."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from adjoin import SSIJ
from adjoin.kernels.types import Array
from adjoin.parts.pagecache import PageCache
from adjoin.semistream.algorithms import algorithm_named


class FixedShares(SSIJ):
    """SSIJ in which cached pages have a share of the memory, and rows the rest, for ever.

    Args:
        *arguments: Those of `SSIJ`.
        cached_share: The share of pages, of what rows and pages otherwise share; 0 caches none.
        **options: Those of `SSIJ`.
    """

    def __init__(self, *arguments: Any, cached_share: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        pages = self._pages
        slots = int(cached_share * pages.split.slots)
        rest_bytes = pages.split.stream_bytes - slots * pages.split.slot_cost
        pages.split = replace(pages.split, stream_bytes=rest_bytes)
        pages.pinned_slots = slots
        pages.grow(slots)
        pages.spread = lambda: None  # type: ignore[method-assign]


class LeastRecentlyUsed(SSIJ):
    """SSIJ whose cache evicts the page that was used least recently."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pages.cache.__class__ = _RecentPages


class _RecentPages(PageCache):
    """The utility of a page is when it was used last; pages that are read are used last of all."""

    def credit(self, pages: Array) -> None:
        self.unit += 1
        self._utility[pages] = self.unit

    def fade(self) -> None:
        return

    def rank(self, unread: Array, room: int) -> tuple[Array, Array]:
        self._utility[unread] = self.unit + 1 + np.arange(len(unread))
        self.unit += 1 + len(unread)
        return super().rank(unread, room)


VARIANTS: dict[str, Callable[..., Any]] = {
    "ssij, fixed shares": FixedShares,
    "ssij, least recently used": LeastRecentlyUsed,
}


def contender_named(name: str) -> Callable[..., Any]:
    """Makes the operator or variant of this name."""
    return VARIANTS.get(name) or algorithm_named(name)
