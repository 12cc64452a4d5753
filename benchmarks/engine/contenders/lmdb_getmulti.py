"""LMDB: a memory-mapped B+tree, queried for a whole sorted batch at once with `getmulti`."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import lmdb
import numpy as np
import pyarrow as pa

from benchmarks.engine import workload
from benchmarks.engine.contenders.contender import Answers, Setup, Store

_ROW = np.dtype(
    [("key", "<i8"), ("surrogate", "<i8"), ("price", "<f8"), ("text", "<u8", (workload.TEXT_BYTES // 8,))]
)
_VALUE_BYTES = _ROW.itemsize - 8
_SLICE_ROWS = 50_000


class LmdbGetmulti(Store):
    """Integer keys, rows packed as fixed-width values that are returned as one array, no object per row."""

    name: ClassVar[str] = "lmdb"
    dataset: ClassVar[str] = "lmdb"
    settings: ClassVar[str] = (
        "read-only, no lock, integer keys, fixed-width values, unique sorted keys to `getmulti` in slices of "
        f"{_SLICE_ROWS:,} with one array back; readahead off and on"
    )
    variants: ClassVar[tuple[str, ...]] = ("readahead off", "readahead on")

    def __init__(self, setup: Setup) -> None:
        self._environment = lmdb.open(
            str(setup.path), readonly=True, lock=False, readahead=setup.variant == "readahead on", max_dbs=1
        )
        self._transaction = self._environment.begin(buffers=True)
        master = self._environment.open_db(b"master", txn=self._transaction, create=False)
        self._cursor = self._transaction.cursor(master)

    @classmethod
    def build(cls, path: Path, master_rows: int) -> None:
        """Append the rows in key order, which fills the pages."""
        size = master_rows * workload.ROW_BYTES * 2 + (64 << 20)
        with lmdb.open(str(path), map_size=size, max_dbs=1, sync=False, writemap=False) as environment:
            master = environment.open_db(b"master", integerkey=True, dupsort=True, dupfixed=True)
            for batch in workload.master_batches(master_rows):
                with environment.begin(write=True) as transaction:
                    transaction.cursor(master).putmulti(_items(batch), append=True)
            environment.sync(True)

    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Look up every key once, then repeat rows as often as the batch repeats keys."""
        keys, row_of = np.unique(batch["key"].to_numpy(), return_inverse=True)
        found = np.concatenate(
            [self._lookup(keys[at : at + _SLICE_ROWS]) for at in range(0, len(keys), _SLICE_ROWS)]
        )
        if len(found) != len(keys):
            raise AssertionError("this contender runs only on keys that exist")
        rows = found[row_of]
        columns = [pa.array(rows[name]) for name in ("key", "surrogate", "price")]
        columns.append(workload.text_array(rows["text"]))
        return [pa.RecordBatch.from_arrays(columns, schema=workload.SCHEMA)]

    def _lookup(self, keys: np.ndarray) -> np.ndarray:
        packed = self._cursor.getmulti(
            keys.view("V8").tolist(), dupdata=True, dupfixed_bytes=_VALUE_BYTES, keyfixed=True
        )
        return np.frombuffer(packed, _ROW)

    def close(self) -> None:
        self._cursor.close()
        self._transaction.abort()
        self._environment.close()


def _items(batch: pa.RecordBatch) -> Iterator[tuple[bytes, bytes]]:
    keys = batch["key"].to_numpy()
    rows = np.empty(len(keys), _ROW)
    rows["key"], rows["surrogate"] = keys, batch["surrogate"].to_numpy()
    rows["price"], rows["text"] = batch["price"].to_numpy(), workload.text_of(keys)
    packed = rows.tobytes()
    for start in range(0, len(packed), _ROW.itemsize):
        yield packed[start : start + 8], packed[start + 8 : start + _ROW.itemsize]
