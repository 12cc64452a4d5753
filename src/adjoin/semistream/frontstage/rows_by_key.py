"""Master rows by key, on their way into or out of a cache of rows."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import join_batches, no_rows, take_rows
from adjoin.arrow.row_sizes import row_bytes
from adjoin.kernels.search import expand
from adjoin.kernels.types import Array


@dataclass(frozen=True)
class RowsByKey:
    """Master rows by key, with all rows of a key together.

    Attributes:
        keys: The encoded keys, each once.
        rows: The number of rows of each.
        batch: The rows, in key order.
        heat: How often the rows of each key were used recently.
    """

    keys: Array
    rows: Array
    batch: pa.RecordBatch
    heat: Array

    @classmethod
    def none(cls, schema: pa.Schema) -> "RowsByKey":
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), no_rows(schema), np.empty(0, np.uint8))

    @classmethod
    def joined(cls, parts: list["RowsByKey"]) -> "RowsByKey":
        return cls(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.rows for part in parts]).astype(np.int32),
            join_batches([part.batch for part in parts]),
            np.concatenate([part.heat for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def sizes(self) -> Array:
        """Bytes of the rows of each key."""
        ends = np.concatenate([[0], np.cumsum(row_bytes(self.batch))])
        return np.diff(ends[self._bounds])

    @property
    def bytes(self) -> int:
        return int(self.sizes.sum())

    def part(self, begin: int, end: int) -> "RowsByKey":
        first, last = self._bounds[begin], self._bounds[end]
        batch = self.batch.slice(first, last - first)
        return RowsByKey(self.keys[begin:end], self.rows[begin:end], batch, self.heat[begin:end])

    def chosen(self, chosen: Array) -> "RowsByKey":
        rows = self.rows[chosen]
        _, row = expand(self._bounds[chosen].astype(np.int32), rows, int(rows.sum()))
        return RowsByKey(self.keys[chosen], rows, take_rows(self.batch, row), self.heat[chosen])

    @cached_property
    def _bounds(self) -> Array:
        return np.concatenate([[0], np.cumsum(self.rows)])
