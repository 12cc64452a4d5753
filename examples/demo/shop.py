"""A shop that sells in self-similar bursts, a few products most often, while its prices change."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from workloads.bursty import BurstyArrivals
from workloads.zipf import Zipf

WORDS = ["red", "green", "large", "small", "steel", "oak", "lamp", "chair", "table", "shelf"]
FIRST_KEY = 1_000_000_000
SALES = "sale_id bigint, product_id bigint, amount bigint, sold_at timestamp"
CHANGES = "product_id bigint, product_key bigint, price double, name string, _op string, step bigint"
_STEP_SECONDS = 0.5
_STEPS_PER_CHANGE = 4
_CHANGED_PRODUCTS = 500
_UNKNOWN_SHARE = 0.0005


def products(spark: SparkSession, rows: int) -> DataFrame:
    """Products: natural key, warehouse key, price, name."""
    words = F.array(*map(F.lit, WORDS))
    chosen = [
        words[F.pmod(F.xxhash64("id", F.lit(place)), F.lit(len(WORDS))).cast("int")] for place in range(9)
    ]
    return spark.range(rows).select(
        F.col("id").alias("product_id"),
        (F.col("id") + FIRST_KEY).alias("product_key"),
        (F.pmod(F.xxhash64("id"), F.lit(100_000)) / 100).alias("price"),
        F.concat_ws(" ", *chosen).alias("name"),
    )


class Shop:
    """Writes files of sales and of price changes until it is closed.

    Args:
        directory: Gets the folders `sales` and `changes`.
        rows: Products in the master at the start; a few sales are of others.
        sources: Strength of the bursts; about 2**sources sales every half second.
        seed: The same seed gives the same sales.
    """

    def __init__(self, directory: Path, rows: int, sources: int, seed: int) -> None:
        self.sales, self.changes = directory / "sales", directory / "changes"
        self.sold = 0
        self._rows = rows
        self._random = np.random.default_rng(seed)
        self._keys = Zipf(rows, exponent=1.0, placement="random", seed=seed)
        self._bursts = BurstyArrivals(sources=sources, seed=seed)
        self._bursts.rows(1 << sources)  # all sources begin off
        self._closed = threading.Event()
        for folder in (self.sales, self.changes):
            folder.mkdir(parents=True)
        self._thread = threading.Thread(target=self._trade, name="shop")

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _trade(self) -> None:
        step = 0
        while not self._closed.wait(_STEP_SECONDS):
            self._sell(step, int(self._bursts.rows(1)[0]))
            if step % _STEPS_PER_CHANGE == 0:
                self._change_prices(step)
            step += 1

    def _sell(self, step: int, count: int) -> None:
        keys = self._keys.draw(count)
        unknown = self._random.random(count) < _UNKNOWN_SHARE
        keys[unknown] = self._rows + self._random.integers(0, 1_000, int(unknown.sum()))
        ids = np.arange(self.sold, self.sold + count)
        now = pa.scalar(time.time_ns() // 1_000, pa.timestamp("us", "UTC"))
        table = pa.table(
            {"sale_id": ids, "product_id": keys, "amount": 1 + ids % 5, "sold_at": pa.repeat(now, count)}
        )
        _publish(table, self.sales / f"{step:06d}.parquet")
        self.sold += count

    def _change_prices(self, step: int) -> None:
        ids = np.unique(self._random.integers(0, self._rows, _CHANGED_PRODUCTS))
        table = pa.table(
            {
                "product_id": ids,
                "product_key": ids + FIRST_KEY,
                "price": self._random.integers(100, 100_000, len(ids)) / 100,
                "name": [f"product {number}, repriced" for number in ids],
                "_op": ["upsert"] * len(ids),
                "step": [step] * len(ids),
            }
        )
        _publish(table, self.changes / f"{step:06d}.parquet")


def _publish(table: pa.Table, path: Path) -> None:
    """Show the file to Spark only when it is complete."""
    hidden = path.with_name("." + path.name)
    pq.write_table(table, hidden)
    os.rename(hidden, path)
