"""Rows of masters of any size and width."""

from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.records import BATCH_ROWS, Records
from workloads.sampling import fill_sorted
from workloads.seeds import state_of

Spread = Literal["equal", "random"]


class MasterRows:
    """The rows of a master in key order, generated as they are read.

    How it works:
        Keys are 0..keys-1 with `per_key` rows each: exactly, or on average if the key of every row is
        drawn. Drawn keys are generated in ascending order, each from the one before, so nothing is sorted
        or stored.

    Args:
        rows: Rows of the master, a multiple of `per_key`.
        per_key: Rows per key (the K of 1:K joins).
        spread: "equal" gives each key exactly `per_key` rows; "random" draws the key of each row uniformly,
            so a key has `per_key` rows on average, and some may have none.
        row_bytes: The size of a row, as in `Records`.
        seed: The same seed gives the same rows, whatever the batch sizes.

    Example:
        >>> master = MasterRows(6, per_key=2, row_bytes=120)
        >>> master.keys
        3
        >>> master.reader(batch_rows=4).read_all()["key"].to_pylist()
        [0, 0, 1, 1, 2, 2]

    Cost:
        Time O(bytes), about 30 million rows of 120 bytes a second on one core; memory O(bytes of a batch).

    Reference:
        M. A. Bornea, A. Deligiannakis, Y. Kotidis, V. Vassalos, Semi-streamed index join for near-real time
        execution of ETL transformations, ICDE 2011: table II (80 million rows, "random", per_key=320),
        figure 7 ("equal", per_key from 1 to 400) and figure 10 ("random", per_key=16).

    Departures:
        Keys begin at 0, like those of `Zipf`.
    """

    def __init__(
        self,
        rows: int,
        *,
        per_key: int = 1,
        spread: Spread = "equal",
        row_bytes: int = 120,
        seed: int = 0,
    ) -> None:
        if per_key < 1:
            raise OptionError(f"per_key={per_key}: it must be at least 1")
        if rows < 1 or rows % per_key:
            raise OptionError(f"rows={rows}: it must be a positive multiple of per_key={per_key}")
        if spread not in get_args(Spread):
            raise OptionError(f"spread={spread!r}: choose one of {get_args(Spread)}")
        self.rows = rows
        self.keys = rows // per_key
        self.row_bytes = row_bytes
        self.schema = Records(row_bytes).schema
        self._per_key = per_key
        self._spread = spread
        self.seed = seed

    def reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """All rows from the first, in batches."""
        keys = _SortedKeys(self) if self._spread == "random" else _EqualKeys(self._per_key)
        return Records(self.row_bytes, seed=self.seed).reader(keys.draw, self.rows, batch_rows)

    def table(self) -> pa.Table:
        """All rows in memory.

        >>> MasterRows(1000, row_bytes=128).table().nbytes
        128000
        """
        return self.reader().read_all()


class _EqualKeys:
    def __init__(self, per_key: int) -> None:
        self._per_key = per_key
        self._drawn_rows = 0

    def draw(self, rows: int) -> NDArray[np.int64]:
        first = self._drawn_rows
        self._drawn_rows += rows
        return np.arange(first, first + rows, dtype=np.int64) // self._per_key


class _SortedKeys:
    def __init__(self, master: MasterRows) -> None:
        self._keys = master.keys
        self._left_rows = master.rows
        self._state = state_of(master.seed, "master keys")
        self._passed = np.zeros(1)

    def draw(self, rows: int) -> NDArray[np.int64]:
        keys = np.empty(rows, np.int64)
        fill_sorted(self._state, self._passed, self._left_rows, self._keys, keys)
        self._left_rows -= rows
        return keys
