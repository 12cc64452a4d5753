"""Masters and streams of the paper: synthetic, TPC-H, cloud reports.

Each says how much finer its scale is, because masters that are small in the paper would become too small, and
how many rounds over the master warm up a join.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from adjoin.master.master import Master
from benchmarks.figures.figure import World
from benchmarks.figures.masters import PAGE_BYTES, KeyedMaster, built_once
from benchmarks.figures.streams import ROW_BYTES
from workloads import TPCH, CloudReports, Records, Zipf

_CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class Synthetic:
    """Zipf keys in random order; at a scale, each key stands for that many keys of similar frequency.

    So the same share of the keys, the most frequent first, has the same share of the stream at every scale.

    Attributes:
        rows: Rows of the master in the paper, one for each key.
        skew: The exponent.
    """

    rows: int = 100_000_000
    skew: float = 1.0
    key = "key"
    finer = 1
    rounds = 3

    def master(self, world: World) -> Master:
        """The master at this scale."""
        return KeyedMaster(rows=self.rows, row_bytes=120, fill=1.0).open(world)

    def stream(self, world: World) -> Iterator[pa.RecordBatch]:
        """An endless stream of rows."""
        keys = world.scaled(self.rows)
        ranks = Zipf(keys * world.scale, self.skew, seed=world.seed)
        places = Zipf(keys, placement="random", seed=world.seed)
        records = Records(ROW_BYTES, seed=world.seed)
        while True:
            yield records.batch(places.key_of(ranks.draw(_CHUNK_ROWS) // world.scale))


@dataclass(frozen=True)
class CustomerOrders:
    """Customer and Orders of TPC-H at scale factor 100, as they are or with skewed keys.

    Attributes:
        skew: The exponent; None keeps the keys of the benchmark.
    """

    skew: float | None = None
    finer = 4
    rounds = 3

    @property
    def key(self) -> dict[str, str]:
        """The key columns of stream and master."""
        return {"o_custkey": "c_custkey"}

    def _tables(self, world: World) -> TPCH:
        return TPCH(
            world.data / "tpch", "customer", scale=100 / world.scale, exponent=self.skew, seed=world.seed
        )

    def master(self, world: World) -> Master:
        """The master at this scale."""
        tables = self._tables(world)

        def build(path: Path) -> None:
            Master.build(tables.master(), key=tables.master_key, path=path, page_bytes=PAGE_BYTES).close()

        return Master.open(built_once(world.data / f"customer-{world.scale}", build))

    def stream(self, world: World) -> Iterator[pa.RecordBatch]:
        """The orders, repeated forever."""
        while True:
            yield from self._tables(world).stream(columns=["o_orderkey", "o_custkey", "o_shippriority"])


@dataclass(frozen=True)
class Clouds:
    """Synthetic cloud reports: 20 million by longitude, and those of another month as the stream."""

    key = "longitude"
    finer = 4
    rounds = 2

    def master(self, world: World) -> Master:
        """The master at this scale: coarser longitudes keep the number of reports per longitude."""
        reports = CloudReports(seed=world.seed).master(world.scaled(20_000_000))

        def build(path: Path) -> None:
            rows = pa.RecordBatchReader.from_batches(reports.schema, _coarser(reports, world))
            Master.build(rows, key=self.key, path=path, page_bytes=PAGE_BYTES).close()

        return Master.open(built_once(world.data / f"reports-{world.scale}-{world.seed}", build))

    def stream(self, world: World) -> Iterator[pa.RecordBatch]:
        """The reports of another month, repeated forever."""
        while True:
            yield from _coarser(CloudReports(seed=world.seed).stream(world.scaled(6_000_000)), world)


def _coarser(reports: pa.RecordBatchReader, world: World) -> Iterator[pa.RecordBatch]:
    place = reports.schema.get_field_index(Clouds.key)
    for batch in reports:
        longitude = np.asarray(batch.column(place)) // world.scale
        yield batch.set_column(place, reports.schema.field(place), pa.array(longitude))
