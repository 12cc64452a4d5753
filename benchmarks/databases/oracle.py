"""How many rows a join must return, and with which checksum."""

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Array: TypeAlias = np.ndarray[Any, Any]


class Oracle:
    """Rows and checksum per key of a master, computed without a database.

    The checksum of a row is the first byte of its payload, which is `ascii` in every dialect of SQL.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the master."""
        rows = np.stack([np.ones(batch.num_rows, np.int64), _first_bytes(batch["payload"])], axis=1)
        self._parts.append(_per_key(batch["key"].to_numpy(), rows))

    def expected(self, keys: Array) -> tuple[int, int]:
        """Rows and checksum of the join with these keys."""
        if not self._parts:
            return 0, 0
        known, totals = _per_key(*map(np.concatenate, zip(*self._parts, strict=True)))
        self._parts = [(known, totals)]
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        rows, checksum = totals[places[known[places] == keys]].sum(axis=0)
        return int(rows), int(checksum)


def _per_key(keys: Array, rows: Array) -> tuple[Array, Array]:
    """Every key once, with the sum of its rows."""
    known, place_of = np.unique(keys, return_inverse=True)
    totals = np.zeros((len(known), rows.shape[1]), np.int64)
    np.add.at(totals, place_of, rows)
    return known, totals


def _first_bytes(strings: pa.Array) -> Array:
    """The first byte of every string, 0 for an empty one."""
    strings = strings.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    bounds = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    content = np.append(np.frombuffer(data or b"", np.uint8), 0)
    first: Array = np.where(np.diff(bounds) > 0, content[bounds[:-1]], 0)
    return first.astype(np.int64)
