"""Keys of cached rows, compared with those of the stream."""

import pyarrow as pa

from adjoin.arrow.copying import take_rows
from adjoin.kernels.types import Array
from adjoin.keys.codec import KeyCodec
from adjoin.keys.predicate import Equality
from adjoin.memory.page_columns import Places
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.frontstage.tuple_cache import TupleCache


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
