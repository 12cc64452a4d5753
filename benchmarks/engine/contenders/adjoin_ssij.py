"""adjoin: SSIJ on a master, used in two ways."""

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

import adjoin
from benchmarks.engine import workload
from benchmarks.engine.contenders.contender import Answers, Contender, Setup


class SsijStreaming(Contender):
    """Batches are pushed one after another; SSIJ decides when to answer, and the end drains it."""

    name: ClassVar[str] = "ssij streaming"
    dataset: ClassVar[str] = "adjoin"
    settings: ClassVar[str] = (
        '`memory="128MB"` under the cap, 1 GB when everything is cached; direct I/O, pages of 8 KiB; batches '
        "are pushed one after another, and `finish()` is timed too"
    )
    variants: ClassVar[tuple[str, ...]] = ("",)
    whole_batches: ClassVar[bool] = False
    filter_bits: ClassVar[int] = 0

    def __init__(self, setup: Setup) -> None:
        self._master = adjoin.Master.open(setup.path / "master")
        self._join = adjoin.SSIJ(self._master, on="key", memory=setup.memory_bytes)

    @classmethod
    def build(cls, path: Path, master_rows: int) -> None:
        """Build the master from a reader, with the default page size and fill."""
        source = pa.RecordBatchReader.from_batches(workload.SCHEMA, workload.master_batches(master_rows))
        adjoin.Master.build(source, "key", path / "master", filter_bits=cls.filter_bits, memory="1GB").close()

    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Push the batch."""
        yield from self._join.push(batch)

    def drain(self) -> Answers:
        """Answer all pending rows."""
        yield from self._join.idle(0)

    def finish(self) -> Answers:
        """Answer all pending rows and end the stream."""
        yield from self._join.finish()

    def close(self) -> None:
        """Close operator and master."""
        self._join.close()
        self._master.close()

    def metrics(self) -> dict[str, Any]:
        """SSIJ's own counters."""
        return dict(self._join.metrics())


class SsijDrained(SsijStreaming):
    """Every batch is answered completely before the next one is sent."""

    name: ClassVar[str] = "ssij drained"
    settings: ClassVar[str] = (
        "as streaming, but every batch is answered completely (`push`, then `idle(0)`) before the next"
    )
    whole_batches: ClassVar[bool] = True

    def answer(self, batch: pa.RecordBatch) -> Answers:
        """Push the batch and drain it."""
        yield from self._join.push(batch)
        yield from self._join.idle(0)


class FilteredStreaming(SsijStreaming):
    """Streaming, on a master with a membership filter."""

    dataset: ClassVar[str] = "adjoin-filter"
    filter_bits: ClassVar[int] = 8


class FilteredDrained(SsijDrained):
    """Drained, on a master with a membership filter."""

    dataset: ClassVar[str] = "adjoin-filter"
    filter_bits: ClassVar[int] = 8
