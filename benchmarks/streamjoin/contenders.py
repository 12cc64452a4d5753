"""Who joins the two inputs; each runs in a process of its own and prints what it measured."""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from adjoin import DINER, SymmetricHashJoin
from adjoin.streamjoin.frame import SpillingJoin
from benchmarks.streamjoin.inputs import alternating, open_table

SETTINGS = {
    "DINER": "memory 5 % of the input; batches of both inputs in turn, as fast as they are taken",
    "SymmetricHashJoin": "the same arrivals, memory without limit",
    "DuckDB": "the batch join of the finished inputs, one thread, the same memory, spilling to disk",
}
_LARGE_BYTES = 16 << 30
_WARM_ROWS = 2_000


@dataclass
class Seen:
    """What came out: how many rows, and a sum over them that does not depend on their order."""

    rows: int = 0
    checksum: int = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Look at all rows."""
        for batch in batches:
            self.rows += batch.num_rows
            left, right = batch.column("row").to_numpy(), batch.column("row_right").to_numpy()
            mixed = (left.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ right.view(np.uint64)
            self.checksum = (self.checksum + int(mixed.sum(dtype=np.uint64))) % (1 << 64)


def _stream_join(join: SpillingJoin, paths: tuple[Path, Path]) -> dict[str, Any]:
    seen = Seen()
    began = time.perf_counter()
    for side, batch in alternating(paths):
        seen.take(join.push(side, batch))
    arrived, early_rows = time.perf_counter(), seen.rows
    seen.take(join.finish())
    metrics = join.metrics()
    join.close()
    return {
        "seconds": time.perf_counter() - began,
        "arriving_seconds": arrived - began,
        "early_rows": early_rows,
        "rows": seen.rows,
        "checksum": seen.checksum,
        "metrics": metrics,
    }


def _diner(paths: tuple[Path, Path], memory_bytes: int) -> dict[str, Any]:
    return _stream_join(_made(DINER, paths, memory_bytes), paths)


def _symmetric(paths: tuple[Path, Path], memory_bytes: int) -> dict[str, Any]:  # noqa: ARG001
    return _stream_join(_made(SymmetricHashJoin, paths, _LARGE_BYTES), paths)


def _made(make: Callable[..., SpillingJoin], paths: tuple[Path, Path], memory_bytes: int) -> SpillingJoin:
    """The operator, after another has joined some rows so that everything is compiled."""
    schema = open_table(paths[0]).schema
    with make(schema, schema, on="key", memory="8MB", block_bytes=4096) as other:
        for side, batch in alternating(paths):
            for _ in other.push(side, batch.slice(0, _WARM_ROWS)):
                pass
            if other.metrics()["rows_in"] >= 4 * _WARM_ROWS:
                break
        for _ in other.finish():
            pass
    return make(schema, schema, on="key", memory=memory_bytes)


def _duckdb(paths: tuple[Path, Path], memory_bytes: int) -> dict[str, Any]:
    seen = Seen()
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit='{memory_bytes}B'")
        connection.execute("SET threads=1")
        connection.execute(f"SET temp_directory='{folder}'")
        connection.execute("SET preserve_insertion_order=false")
        for name, path in zip(("l", "r"), paths, strict=True):
            connection.register(name, open_table(path))
        began = time.perf_counter()
        query = (
            "SELECT l.key, l.row, l.payload, r.row AS row_right, r.payload AS payload_right "
            "FROM l JOIN r ON l.key = r.key"
        )
        seen.take(connection.sql(query).to_arrow_reader(100_000))
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "rows": seen.rows, "checksum": seen.checksum, "metrics": {}}


CONTENDERS = {"DINER": _diner, "SymmetricHashJoin": _symmetric, "DuckDB": _duckdb}


def main() -> None:
    """Run one contender, as told on the command line."""
    name, left, right, memory_bytes = sys.argv[1:]
    outcome = CONTENDERS[name]((Path(left), Path(right)), int(memory_bytes))
    outcome["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps(outcome, default=int))


if __name__ == "__main__":
    main()
