"""Tables cut into batches."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa


def chopped(stream: pa.Table, batch_rows: int) -> list[pa.RecordBatch]:
    """The stream in batches of `batch_rows` rows; at least one batch, so that its schema is seen."""
    starts = range(0, max(len(stream), 1), batch_rows)
    return [as_batch(stream.slice(start, batch_rows)) for start in starts]


def cut_at(stream: pa.Table, cuts: Iterable[int]) -> list[pa.RecordBatch]:
    """The stream cut before the given rows; equal cuts give empty batches."""
    ends = [0, *sorted(cuts), len(stream)]
    return [as_batch(stream.slice(start, stop - start)) for start, stop in pairwise(ends)]


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of the table as one batch; a slice of a table of one chunk keeps its offset."""
    arrays = [_as_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _as_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def numbered(stream: pa.Table) -> pa.Table:
    """The stream with a column `rid` in front that tells its rows apart."""
    return stream.add_column(0, "rid", pa.array(np.arange(len(stream))))
