"""Bursty sales, joined with a master of two million products in 32 MB of memory.

Builds the master, streams Zipf-distributed sales in self-similar bursts through SSIJ, shows what
happens while it runs, and ends with a short table.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

import adjoin
from adjoin.workloads.bursty import BurstyArrivals
from adjoin.workloads.zipf import Zipf

PART_ROWS = 100_000
WORDS = np.array(["red", "green", "large", "small", "steel", "oak", "lamp", "chair", "table", "shelf"])


def products(rows: int, seed: int) -> pa.RecordBatchReader:
    """Products in no order: identifier, warehouse key, price, name."""
    schema = pa.schema(
        {"product_id": pa.int64(), "warehouse_key": pa.int64(), "price": pa.float64(), "name": pa.string()}
    )
    identifiers = np.random.default_rng(seed).permutation(rows)

    def parts() -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(seed + 1)
        for start in range(0, rows, PART_ROWS):
            ids = identifiers[start : start + PART_ROWS]
            words = WORDS[random.integers(0, len(WORDS), (12, len(ids)))]
            names = pa.array(words[0])
            for word in words[1:]:
                names = pa.compute.binary_join_element_wise(names, pa.array(word), " ")
            prices = random.integers(100, 100_000, len(ids)) / 100
            yield pa.record_batch(
                [pa.array(ids), pa.array(ids + 10**9), pa.array(prices), names], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, parts())


def sales(rows: int, master_rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Sales as they arrive: bursts of every length, few products sold most."""
    keys = Zipf(master_rows, exponent=1.0, placement="random", seed=seed)
    bursts = BurstyArrivals(sources=13, seed=seed)
    sold = 0
    while sold < rows:
        count = min(int(bursts.rows(1)[0]), rows - sold)
        ids = np.arange(sold, sold + count)
        yield pa.record_batch({"sale_id": ids, "product_id": keys.draw(count), "amount": 1 + ids % 5})
        sold += count


def enrich(console: Console, join: adjoin.SSIJ, batches: Iterator[pa.RecordBatch], rows: int) -> float:
    """Run the join and show its metrics; returns the seconds it took."""
    columns = (
        BarColumn(bar_width=12),
        TextColumn("{task.completed:,} sales"),
        TextColumn("{task.fields[speed]:,.0f}/s"),
        TextColumn("{task.fields[hits]:.0%} without a read"),
        TextColumn("{task.fields[used]:.1f} MB"),
    )
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        task = progress.add_task("", total=rows, speed=0.0, hits=0.0, used=0.0)
        began = time.perf_counter()
        for result in join.run(batches):
            metrics = join.metrics()
            progress.update(
                task,
                advance=result.num_rows,
                speed=metrics["rows_in"] / (time.perf_counter() - began),
                hits=metrics["cache_hits"] / metrics["rows_in"],
                used=metrics["used_bytes"] / 2**20,
            )
        return time.perf_counter() - began


def summary(master: adjoin.Master, metrics: dict[str, float], seconds: float) -> Table:
    table = Table(title="SSIJ", show_header=False)
    rows_in = metrics["rows_in"]
    table.add_row("master", f"{master.rows:,} products, {master.bytes / 2**20:,.0f} MB on disk")
    table.add_row("enriched", f"{metrics['rows_out']:,} sales")
    table.add_row("speed", f"{rows_in / seconds:,.0f} rows/s")
    table.add_row("answered without a read", f"{metrics['cache_hits'] / rows_in:.1%}")
    reads = (
        f"{metrics['seeks']:,} for {metrics['pages_read']:,} pages, {metrics['bytes_read'] / 2**20:,.0f} MB"
    )
    table.add_row("reads", reads)
    table.add_row(
        "memory",
        f"{metrics['peak_bytes'] / 2**20:.2f} MB at most, of {metrics['memory_bytes'] / 2**20:.0f} MB",
    )
    return table


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--products", type=int, default=2_000_000)
    arguments.add_argument("--sales", type=int, default=5_000_000)
    arguments.add_argument("--memory", default="32MB")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="adjoin-demo-") as directory:
        console.print(f"Building a master of {options.products:,} products ...")
        master = adjoin.Master.build(
            products(options.products, options.seed), key="product_id", path=Path(directory) / "products"
        )
        with master, adjoin.SSIJ(master, on="product_id", memory=options.memory) as join:
            batches = sales(options.sales, options.products, options.seed)
            seconds = enrich(console, join, batches, options.sales)
            console.print(summary(master, join.metrics(), seconds))


if __name__ == "__main__":
    main()
