"""Compares every row that a contender returns with the master's row for its key."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.engine import workload

_CHUNK_ROWS = 50_000  # the check runs inside the capped process and must not evict what is cached there


class RowsDifferError(AssertionError):
    """A contender's answer differs from the oracle's."""


@dataclass
class Tally:
    """The number of rows, and a checksum of their keys that does not depend on their order."""

    rows: int = 0
    key_sum: int = 0

    def add(self, keys: np.ndarray) -> None:
        """Count rows with these keys."""
        self.rows += len(keys)
        self.key_sum = (self.key_sum + int(workload.mix(keys).sum(dtype=np.uint64))) % 2**64


def expect(tally: Tally, keys: np.ndarray) -> None:
    """Add to the tally what an inner join with these stream keys must return."""
    tally.add(keys[workload.exists(keys)])


def collect(tally: Tally, answer: pa.RecordBatch | pa.Table) -> None:
    """Check every value of an answer and add its rows to the tally."""
    table = pa.Table.from_batches([answer]) if isinstance(answer, pa.RecordBatch) else answer
    if set(table.column_names) != set(workload.SCHEMA.names):
        raise RowsDifferError(f"columns are {table.column_names}, expected {workload.SCHEMA.names}")
    for start in range(0, table.num_rows, _CHUNK_ROWS):
        _check_chunk(table.slice(start, _CHUNK_ROWS), tally)


def _check_chunk(table: pa.Table, tally: Tally) -> None:
    keys = table["key"].to_numpy()
    _same("key", workload.exists(keys))
    _same("surrogate", table["surrogate"].to_numpy() == workload.surrogate_of(keys))
    _same("price", table["price"].to_numpy() == workload.price_of(keys))
    _same("text", (_words(table["text"]) == workload.text_of(keys)).all(axis=1))
    tally.add(keys)


def _words(column: pa.ChunkedArray) -> np.ndarray:
    strings = column.cast(pa.string()).combine_chunks()
    if isinstance(strings, pa.ChunkedArray):
        strings = pa.concat_arrays(strings.chunks)
    offsets = np.frombuffer(strings.buffers()[1], np.int32)[
        strings.offset : strings.offset + len(strings) + 1
    ]
    if (np.diff(offsets) != workload.TEXT_BYTES).any():
        raise RowsDifferError("column text has values of the wrong length")
    data = strings.buffers()[2].slice(int(offsets[0]), len(strings) * workload.TEXT_BYTES)
    return np.frombuffer(data, np.uint64).reshape(len(strings), -1)


def _same(name: str, equal: np.ndarray) -> None:
    if not equal.all():
        raise RowsDifferError(f"column {name} is wrong in {int((~equal).sum())} of {len(equal)} rows")


def settle(expected: Tally, actual: Tally) -> None:
    """Compare the multisets of rows."""
    if expected != actual:
        raise RowsDifferError(f"expected {expected}, got {actual}")
