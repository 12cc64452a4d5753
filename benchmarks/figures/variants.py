"""The operators by name, and variants of them that only figures need."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import SSIJ, AutoJoin
from adjoin.kernels.types import Array
from adjoin.semistream.algorithms import algorithm_named
from adjoin.semistream.base.answers import Matcher, Output
from adjoin.semistream.base.buffers import Rows
from adjoin.semistream.base.join import SemiStreamJoin
from adjoin.semistream.frontstage.stage import FrontStaged
from adjoin.semistream.pages.cache import PageCache


class FixedShares(SSIJ):
    """SSIJ in which cached pages get a fixed share of the memory and rows the rest.

    Args:
        *arguments: Those of `SSIJ`.
        cached_share: The pages' share of the memory that rows and pages otherwise share; 0 caches none.
        **options: Those of `SSIJ`.
    """

    def __init__(self, *arguments: Any, cached_share: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        pages = self.parts.pages
        slots = int(cached_share * pages.split.slots)
        rest_bytes = pages.split.stream_bytes - slots * pages.split.slot_cost
        pages.split = replace(pages.split, stream_bytes=rest_bytes)
        pages.pinned_slots = slots
        pages.grow(slots)
        pages.spread = lambda: None  # type: ignore[method-assign]


class LeastRecentlyUsed(SSIJ):
    """SSIJ whose cache evicts the least recently used page."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parts.pages.cache.__class__ = _RecentPages


class _RecentPages(PageCache):
    """The utility of a page is the time of its last use; pages just read count as the most recent."""

    def credit(self, pages: Array) -> None:
        self.unit += 1
        self._utility[pages] = self.unit

    def fade(self) -> None:
        return

    def rank(self, unread: Array, room: int) -> tuple[Array, Array]:
        self._utility[unread] = self.unit + 1 + np.arange(len(unread))
        self.unit += 1 + len(unread)
        return super().rank(unread, room)


class _QuietMatcher(Matcher):
    """Emits an empty batch where there may be matches, so that the consumer of results gets a turn."""

    def join(self, rows: Rows, *_: Array) -> Iterator[pa.RecordBatch]:
        yield rows.batch.slice(0, 0)


@cache
def quiet(kind: type[SemiStreamJoin]) -> type[SemiStreamJoin]:
    """The operator, which reads all pages that its results need but does not search them."""

    class Quiet(kind):  # type: ignore[misc, valid-type]
        def _begin(self, stream: pa.Schema) -> None:
            super()._begin(stream)
            self.parts.answerer.matcher.__class__ = _QuietMatcher

    return Quiet


class _QuietOutput(Output):
    """Emits an empty batch instead of results, so that their consumer gets a turn."""

    def matched(self, rows: Rows, *_: Any) -> Iterator[pa.RecordBatch]:
        yield rows.batch.slice(0, 0)


@cache
def without_results(kind: Any) -> Any:
    """The operator, which finds all results, so that a front stage learns, but does not build them."""
    if issubclass(kind, AutoJoin):
        candidates = {name: without_results(each) for name, each in kind.candidates.items()}
        return type(kind.__name__, (kind,), {"candidates": candidates})
    if issubclass(kind, FrontStaged):

        class Front(kind):  # type: ignore[misc]
            behind = without_results(kind.behind)

            def _prepare(self, stream: pa.Schema) -> None:
                super()._prepare(stream)
                if self._cache.rows is not None:
                    self._output.__class__ = _QuietOutput

        return Front

    class Alone(kind):  # type: ignore[misc]
        def _begin(self, stream: pa.Schema) -> None:
            super()._begin(stream)
            self.parts.answerer.matcher.output.__class__ = _QuietOutput

    return Alone


VARIANTS: dict[str, type[SemiStreamJoin]] = {
    "ssij, fixed shares": FixedShares,
    "ssij, least recently used": LeastRecentlyUsed,
}


def contender_named(name: str, *, finds_results: bool = False) -> Callable[..., Any]:
    """A function that makes the operator or variant with this name.

    Args:
        name: The name.
        finds_results: Whether rows are looked up on their pages, which is what a front stage learns from.
    """
    kind: Any = VARIANTS.get(name) or algorithm_named(name)
    if finds_results:
        return without_results(kind)
    make: Callable[..., Any] = quiet(kind)
    return partial(make, columns=())
