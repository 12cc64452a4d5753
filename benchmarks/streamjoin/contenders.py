"""The contenders; each runs in its own process and prints its measurements."""

import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from adjoin import DINER, MINER, SymmetricHashJoin, return_freed_memory
from adjoin.kernels.types import Array
from adjoin.streamjoin.base.spec import SIDES
from benchmarks.streamjoin.cascade import Cascade
from benchmarks.streamjoin.chains import NAMES, ON
from benchmarks.streamjoin.inputs import in_turn, open_table

SETTINGS = {
    "DINER": "memory 5 % of the input; batches of both inputs in turn, as fast as the join takes them",
    "SymmetricHashJoin": "the same arrivals, unlimited memory",
    "DuckDB": "a batch join of the complete inputs, one thread, the same memory, spilling to disk",
    "MINER": "memory 5 % of the input; batches of all inputs in turn, as fast as the join takes them",
    "DINER cascade": "the same arrivals, a chain of three joins with a third of the memory each",
}
_LARGE_BYTES = 16 << 30
_ODD = np.uint64(0x9E3779B97F4A7C15)
_WARM_BYTES, _WARM_ROWS = 12 << 20, 2_000


@dataclass
class Seen:
    """The number of result rows, and a checksum that does not depend on their order."""

    rows: int = 0
    checksum: int = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Count all rows."""
        for batch in batches:
            self.rows += batch.num_rows
            self.checksum = (self.checksum + int(self._mixed(batch).sum(dtype=np.uint64))) % (1 << 64)

    def _mixed(self, batch: pa.RecordBatch) -> Array:
        left, right = batch.column("row").to_numpy(), batch.column("row_right").to_numpy()
        return (left.view(np.uint64) * _ODD) ^ right.view(np.uint64)


class SeenMany(Seen):
    """The same for four relations, whatever their columns are called."""

    def _mixed(self, batch: pa.RecordBatch) -> Array:
        mixed: Array = np.zeros(batch.num_rows, np.uint64)
        for number in range(1, 5):
            (name,) = (name for name in batch.schema.names if name.endswith(f"row{number}"))
            mixed = (mixed * _ODD) ^ batch.column(name).to_numpy().view(np.uint64)
        return mixed


def _diner(paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:
    return _two(DINER, paths, memory_bytes)


def _symmetric(paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:  # noqa: ARG001
    return _two(SymmetricHashJoin, paths, _LARGE_BYTES)


def _two(join: Callable[..., Any], paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:
    schema = open_table(paths[0]).schema
    return _measured(partial(join, schema, schema, "key"), SIDES, paths, memory_bytes, Seen())


def _miner(paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:
    return _measured(partial(MINER, _schemas(paths), ON), NAMES, paths, memory_bytes, SeenMany())


def _cascade(paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:
    return _measured(partial(Cascade, _schemas(paths)), NAMES, paths, memory_bytes, SeenMany())


def _schemas(paths: tuple[Path, ...]) -> dict[str, pa.Schema]:
    return {name: open_table(path).schema for name, path in zip(NAMES, paths, strict=True)}


def _measured(
    make: Callable[..., Any], names: Sequence[str], paths: Sequence[Path], memory_bytes: int, seen: Seen
) -> dict[str, Any]:
    """Join batches of all inputs in turn, after warming up with another join of the same kind."""
    _warm_up(make(_WARM_BYTES, block_bytes=4096), in_turn(names, paths))
    join, progress = make(memory_bytes), []
    began = time.perf_counter()
    for name, batch in in_turn(names, paths):
        seen.take(join.push(name, batch))
        progress.append(seen.rows)
    arrived, early_rows = time.perf_counter(), seen.rows
    seen.take(join.finish())
    seconds, metrics = time.perf_counter() - began, join.metrics()
    join.close()
    tenths = [progress[round(len(progress) * tenth / 10) - 1] for tenth in range(1, 11)]
    return {
        "seconds": seconds,
        "arriving_seconds": arrived - began,
        "early_rows": early_rows,
        "rows": seen.rows,
        "checksum": seen.checksum,
        "metrics": {**metrics, "progress": tenths},
    }


def _warm_up(join: Any, arrivals: Iterable[tuple[str, pa.RecordBatch]]) -> None:
    """Join some rows, so that everything is compiled."""
    for name, batch in itertools.islice(arrivals, 16):
        for _ in join.push(name, batch.slice(0, _WARM_ROWS)):
            pass
    for _ in join.finish():
        pass
    join.close()


def _duckdb(paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:
    query = (
        "SELECT l.key, l.row, l.payload, r.row AS row_right, r.payload AS payload_right "
        "FROM l JOIN r ON l.key = r.key"
    )
    return _query(dict(zip(("l", "r"), paths, strict=True)), query, memory_bytes, Seen())


def _query(paths: dict[str, Path], query: str, memory_bytes: int, seen: Seen) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit='{memory_bytes}B'")
        connection.execute("SET threads=1")
        connection.execute(f"SET temp_directory='{folder}'")
        connection.execute("SET preserve_insertion_order=false")
        for name, path in paths.items():
            connection.register(name, open_table(path))
        began = time.perf_counter()
        seen.take(connection.sql(query).to_arrow_reader(100_000))
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "rows": seen.rows, "checksum": seen.checksum, "metrics": {}}


def _duckdb_chain(paths: tuple[Path, ...], memory_bytes: int) -> dict[str, Any]:
    shown = [f"row{number} AS r{number}_row{number}" for number in range(1, 5)]
    shown += [f"payload{number}" for number in range(1, 5)]
    query = f"SELECT {', '.join(shown)} FROM {', '.join(NAMES)} WHERE {' AND '.join(ON)}"
    return _query(dict(zip(NAMES, paths, strict=True)), query, memory_bytes, SeenMany())


CONTENDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "DINER": _diner,
    "SymmetricHashJoin": _symmetric,
    "DuckDB": _duckdb,
}
CHAIN_CONTENDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "MINER": _miner,
    "DINER cascade": _cascade,
    "DuckDB": _duckdb_chain,
}


def main() -> None:
    """Run the contender named on the command line."""
    name, *paths, memory_bytes = sys.argv[1:]
    return_freed_memory()  # the resident size is one of the measurements
    known = CONTENDERS if len(paths) == 2 else CHAIN_CONTENDERS
    outcome = known[name](tuple(map(Path, paths)), int(memory_bytes))
    outcome["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps(outcome, default=int))


if __name__ == "__main__":
    main()
