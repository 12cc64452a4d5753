"""A master with several rows per key, and a stream of its keys, both uniform."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.databases.database import MASTER_SCHEMA

Array: TypeAlias = np.ndarray[Any, Any]

ROW_BYTES = 128
ROWS_PER_KEY = 320
_TEXT_BYTES = ROW_BYTES - 8
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", np.uint8)


def master_batches(
    rows: int, seed: int, batch_rows: int = 50_000, rows_per_key: int = ROWS_PER_KEY
) -> Iterator[pa.RecordBatch]:
    """A master in key order: keys from 0 on, `rows_per_key` rows each, random letters as payload."""
    random = np.random.default_rng([seed, 1])
    for start in range(0, rows, batch_rows):
        keys = np.arange(start, min(start + batch_rows, rows), dtype=np.int64) // rows_per_key
        letters = _LETTERS[random.integers(0, len(_LETTERS), (len(keys), _TEXT_BYTES), dtype=np.uint8)]
        strings = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_TEXT_BYTES), len(keys), [None, pa.py_buffer(letters)]
        )
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys), strings.cast(pa.binary()).cast(pa.string())], schema=MASTER_SCHEMA
        )


def stream_keys(rows: int, master_rows: int, seed: int, rows_per_key: int = ROWS_PER_KEY) -> Array:
    """Keys of a stream, uniform over the master's keys."""
    keys: Array = np.random.default_rng([seed, 2]).integers(0, -(-master_rows // rows_per_key), rows)
    return keys
