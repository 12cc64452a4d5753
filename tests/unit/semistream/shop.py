"""A shop: products as the master, sales as the stream."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin import Master
from adjoin.master.device import Cost, SimulatedDisk
from adjoin.operators.clock import SimulatedClock

DISK = Cost(positioning_seconds=8e-3, block_seconds=1e-3)


def products(rows: int, copies: int = 1, width: int = 40) -> pa.Table:
    """Even keys, so that odd ones lie between; `copies` rows of each."""
    keys = np.repeat(np.arange(rows) * 2, copies)
    return pa.table({"id": keys, "name": [f"{key:0{width}d}" for key in keys]})


def build(table: pa.Table, path: Path, **options: Any) -> Master:
    return Master.build(table, key="id", path=path / "master", page_bytes=4096, **options)


def sales(keys: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(keys, pa.int64()), "sale": np.arange(len(keys))})


def results(join: Any, batches: list[Any]) -> pa.Table:
    schema = join.schema_of(sales([]).schema)
    return pa.Table.from_batches(list(join.run(batches)), schema=schema)


def slow_disk() -> dict[str, Any]:
    clock = SimulatedClock()
    return {"clock": clock, "device": SimulatedDisk(clock, DISK)}
