"""Rows that are larger than an operator can take."""

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import plain_columns
from adjoin.arrow.encodings import is_plain
from adjoin.arrow.row_sizes import row_bytes

_ROWS_AT_A_TIME = 1 << 16


def row_larger_than(limit_bytes: int, batch: pa.RecordBatch) -> tuple[int, int] | None:
    """The first row found that takes more than so many bytes, and how many; None if all take less.

    A row takes the bytes of its values, those of the offset of each string, binary or list (4, or 8 if they
    are large) and a bit for each value that may be null; encodings such as dictionaries are undone.
    """
    has_plain_columns = all(is_plain(field.type) for field in batch.schema)
    if has_plain_columns and batch.nbytes + len(batch.schema) < limit_bytes:
        return None
    for begin in range(0, batch.num_rows, _ROWS_AT_A_TIME):
        some = plain_columns(batch.slice(begin, _ROWS_AT_A_TIME))
        schema = pa.schema([field.with_nullable(True) for field in some.schema])
        sizes = row_bytes(pa.RecordBatch.from_arrays(some.columns, schema=schema))
        row = int(np.argmax(sizes))
        if sizes[row] > limit_bytes:
            return begin + row, int(sizes[row])
    return None
