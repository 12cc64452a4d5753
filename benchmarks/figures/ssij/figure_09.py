"""SSIJ against the index joins of database systems."""

import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan, nan
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from adjoin import SSIJ, Master
from benchmarks.databases import workload
from benchmarks.databases.database import MASTER_SCHEMA, Database
from benchmarks.databases.mariadb import MariaDB
from benchmarks.databases.postgresql import PostgreSQL
from benchmarks.databases.programs import UnavailableError
from benchmarks.databases.server import DatabaseError
from benchmarks.figures.figure import REAL, Curves, Figure, Measurement, Sweep, Verdict, World
from benchmarks.figures.ssij.setting import KEYS, PAPER

STREAM_ROWS = 1_000_000
BUFFER_BYTES = 1 << 30
MEMORY_SHARE = 0.1
_BATCH_ROWS = 16_384
_REPETITIONS = 3


@dataclass(frozen=True)
class Case:
    """One system, with a relation of this size in the paper."""

    join: Callable[["Case", World], float]
    relation_bytes: float = 0.0

    def rows_per_key(self) -> int:
        return max(1, round(self.relation_bytes / workload.ROW_BYTES / KEYS))

    def master_rows(self, world: World) -> int:
        return world.scaled(KEYS) * self.rows_per_key()

    def master(self, world: World) -> pa.RecordBatchReader:
        """The relation at this scale."""
        rows = workload.master_batches(self.master_rows(world), world.seed, rows_per_key=self.rows_per_key())
        return pa.RecordBatchReader.from_batches(MASTER_SCHEMA, rows)

    def keys(self, world: World) -> workload.Array:
        """The stream at this scale."""
        rows = self.master_rows(world)
        return workload.stream_keys(world.scaled(STREAM_ROWS), rows, world.seed, self.rows_per_key())


def join_with_ssij(case: Case, world: World) -> float:
    """Seconds that SSIJ takes for the whole stream, starting cold."""
    stream = pa.record_batch({"key": case.keys(world)})
    batches = [stream.slice(begin, _BATCH_ROWS) for begin in range(0, stream.num_rows, _BATCH_ROWS)]
    with tempfile.TemporaryDirectory(dir=world.data) as folder:
        master = Master.build(case.master(world), key="key", path=Path(folder) / "master")
        memory = int(MEMORY_SHARE * master.bytes)
        with SSIJ(master, on="key", memory=memory) as join:
            began = perf_counter()
            for _ in join.run(batches):
                pass
            return perf_counter() - began


def join_in(system: type[Database]) -> Callable[[Case, World], float]:
    """Seconds that a system takes with the stream in its memory; nan if it is unavailable."""

    def join(case: Case, world: World) -> float:
        try:
            with tempfile.TemporaryDirectory(prefix="adjoin-", dir="/var/tmp") as folder:
                Path(folder).chmod(0o755)
                with system().start(Path(folder), world.scaled(BUFFER_BYTES)) as database:
                    database.load(case.master(world))
                    keys = case.keys(world)
                    return statistics.median(database.join(keys).seconds for _ in range(_REPETITIONS))
        except (UnavailableError, DatabaseError) as reason:
            print(f"{system.name} skipped: {reason}", file=sys.stderr, flush=True)
            return nan

    return join


def measure(case: Case, world: World) -> Measurement:
    """Stream rows joined per second."""
    return Measurement(world.scaled(STREAM_ROWS) / case.join(case, world))


def verdict(curves: Curves) -> Verdict:
    """At least three times as fast as a database."""
    ratios = {
        name: curves.ratios("SSIJ", name)
        for name in FIGURE.contenders
        if name != "SSIJ" and not any(map(isnan, curves[name]))
    }
    return Verdict(
        holds=bool(ratios) and min(map(min, ratios.values())) >= 3,
        number="; ".join(
            f"{min(of):.1f} to {max(of):.1f} times as fast as {name}" for name, of in ratios.items()
        )
        or "no database system was available",
        why=(
            "The databases read pages from the system's page cache, which no budget limits, where the "
            "paper's had to wait for a disk; SSIJ bypasses the page cache, and emits its rows."
        ),
    )


FIGURE = Figure(
    name="ssij-09",
    paper=PAPER,
    title="Service rate over the size of the relation, against index joins of database systems, uniform",
    claim="SSIJ with 10 % of memory is 3 to 24 times as fast as two database systems with 1 GB.",
    sweep=Sweep(
        "relation, MB",
        (500, 1000, 1500),
        lambda case, megabytes: replace(case, relation_bytes=megabytes * 1e6),
    ),
    contenders={
        "SSIJ": Case(join_with_ssij),
        "PostgreSQL": Case(join_in(PostgreSQL)),
        "MariaDB": Case(join_in(MariaDB)),
    },
    measure=measure,
    verdict=verdict,
    devices=(REAL,),
    is_logarithmic=True,
)
