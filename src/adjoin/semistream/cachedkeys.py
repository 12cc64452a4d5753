"""Keys of cached rows: whether the stream means the same, and whether the master has changed their rows."""

import numpy as np
import pyarrow as pa

from adjoin.kernels.types import Array
from adjoin.master.index import PageIndex
from adjoin.master.keys import KeyCodec
from adjoin.parts.columns import Places
from adjoin.parts.copying import take_rows
from adjoin.parts.pagecache import ABSENT
from adjoin.parts.tuplecache import TupleCache
from adjoin.semistream.predicate import Equality
from adjoin.semistream.residence import find_pages
from adjoin.semistream.spec import JoinSpec

_PAGES_AT_A_TIME = 1 << 16


class CachedKeys:
    """Compares the keys of stream rows with those of cached rows, where the encoded ones do not say all.

    Attributes:
        are_exact: Whether equal codes are equal keys.
    """

    def __init__(self, codec: KeyCodec, spec: JoinSpec, cache: TupleCache) -> None:
        self._codec = codec
        self._spec = spec
        self._cache = cache
        self.are_exact = codec.ordered
        self._columns = [cache.layout[cache.schema.names.index(name)] for name in spec.verified]

    def same(self, batch: pa.RecordBatch, stream_row: Array, places: Places) -> Array:
        """Whether each of these stream rows has the key of the cached row beside it."""
        assert isinstance(self._spec.predicate, Equality)
        keys = self._spec.predicate.keys(take_rows(batch.select(self._spec.predicate.columns), stream_row))
        return self._codec.same(keys, [self._cache.columns.take(column, places) for column in self._columns])


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
