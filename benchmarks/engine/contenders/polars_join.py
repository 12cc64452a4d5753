"""Polars: the whole master as a data frame in memory."""

from pathlib import Path
from typing import ClassVar

import polars as pl
import pyarrow as pa
from pyarrow import feather

from benchmarks.engine import workload
from benchmarks.engine.contenders.contender import Answers, Setup, Store


class PolarsJoin(Store):
    """An eager inner join per batch; strings are returned as views into the master or as plain strings."""

    name: ClassVar[str] = "polars"
    dataset: ClassVar[str] = "polars"
    settings: ClassVar[str] = (
        "data frame in memory, one chunk, all cores; strings returned as views (no copy) and as plain strings"
    )
    variants: ClassVar[tuple[str, ...]] = ("text as views", "text as strings")

    def __init__(self, setup: Setup) -> None:
        frame = pl.from_arrow(feather.read_table(setup.path / "master.arrow", memory_map=False))
        assert isinstance(frame, pl.DataFrame)
        self._master = frame.rechunk()
        self._level = pl.CompatLevel.newest() if setup.variant == "text as views" else pl.CompatLevel.oldest()

    @classmethod
    def build(cls, path: Path, master_rows: int) -> None:
        """One Arrow file, read completely when the contender starts."""
        with pa.ipc.new_file(path / "master.arrow", workload.SCHEMA) as writer:
            for batch in workload.master_batches(master_rows):
                writer.write_batch(batch)

    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Join one batch."""
        stream = pl.from_arrow(batch)
        assert isinstance(stream, pl.DataFrame)
        return [stream.join(self._master, on="key", how="inner").to_arrow(compat_level=self._level)]

    def close(self) -> None:
        del self._master
