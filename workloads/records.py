"""Turns keys into rows of a given size."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.sampling import fill_words
from workloads.seeds import state_of

_NUMBERS_BYTES = 16  # the key and the row number
_WORD_BYTES = 8

BATCH_ROWS = 65_536


class Records:
    """Rows of a fixed number of bytes around the keys of a generator.

    How it works:
        A row has the key, a sequence number, and a payload of random bytes that fills it up. The number
        distinguishes rows with the same key, so that any join result can be checked.

    Args:
        row_bytes: The size of a row: 8 for the key, 8 for the number, the rest payload; at least 17.
        key: The name of the key column; the others are `row` and `payload`.
        seed: The same seed gives the same payloads, whatever the batch sizes.

    Example:
        >>> records = Records(row_bytes=20)
        >>> records.batch(np.array([7, 7, 3])).select(["key", "row"]).to_pydict()
        {'key': [7, 7, 3], 'row': [0, 1, 2]}
        >>> records.schema.field("payload").type
        FixedSizeBinaryType(fixed_size_binary[4])

    Cost:
        Time and memory O(bytes of the batch).
    """

    def __init__(self, row_bytes: int, *, key: str = "key", seed: int = 0) -> None:
        self._payload_bytes = row_bytes - _NUMBERS_BYTES
        if self._payload_bytes < 1:
            raise OptionError(f"row_bytes={row_bytes}: key and number alone take {_NUMBERS_BYTES}; give more")
        self.schema = pa.schema(
            [
                pa.field(key, pa.int64(), nullable=False),
                pa.field("row", pa.int64(), nullable=False),
                pa.field("payload", pa.binary(self._payload_bytes), nullable=False),
            ]
        )
        self._state = state_of(seed, "payload")
        self._made_rows = 0

    def batch(self, keys: NDArray[np.int64]) -> pa.RecordBatch:
        """The next rows, with these keys."""
        numbers = np.arange(self._made_rows, self._made_rows + len(keys), dtype=np.int64)
        self._made_rows += len(keys)
        columns = [pa.array(keys), pa.array(numbers), self._payload(len(keys))]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def reader(
        self, draw: Callable[[int], NDArray[np.int64]], rows: int, batch_rows: int = BATCH_ROWS
    ) -> pa.RecordBatchReader:
        """The next `rows` rows in batches, with keys from `draw`.

        >>> from workloads import Zipf
        >>> Records(row_bytes=20).reader(Zipf(9).draw, rows=5, batch_rows=2).read_all().num_rows
        5
        """
        if rows < 0:
            raise OptionError(f"rows={rows}: it must be at least 0")
        if batch_rows < 1:
            raise OptionError(f"batch_rows={batch_rows}: it must be at least 1")

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, rows, batch_rows):
                yield self.batch(draw(min(batch_rows, rows - first)))

        return pa.RecordBatchReader.from_batches(self.schema, batches())

    def _payload(self, rows: int) -> pa.FixedSizeBinaryArray:
        words = np.empty((rows, -(-self._payload_bytes // _WORD_BYTES)), np.uint64)
        fill_words(self._state, words.reshape(-1))
        used = np.ascontiguousarray(words.view(np.uint8)[:, : self._payload_bytes])
        type_ = pa.binary(self._payload_bytes)
        return pa.FixedSizeBinaryArray.from_buffers(type_, rows, [None, pa.py_buffer(used)])
