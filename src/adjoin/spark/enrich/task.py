"""What one Spark task of `enrich` does: find the version, take the partition's pages, join, report."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from adjoin.errors import AdjoinError, SchemaError
from adjoin.master.evolve import View
from adjoin.master.master import Master
from adjoin.master.version_records import QueryRecords
from adjoin.memory.heap import return_freed_memory
from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.enrich.worker import disk, open_master, page_files
from adjoin.spark.metrics.metrics import report_row
from adjoin.spark.page_memory.files import Arenas
from adjoin.spark.types import to_spark


@dataclass(frozen=True)
class EnrichTask:
    """Everything a task must know, as plain data.

    Attributes:
        path: The master.
        view: The columns of the master, as they were when the query was made.
        version: The version to join with, whatever the micro-batch; None for the one recorded for it.
        batch_version: The version to join with outside of streaming queries.
        algorithm: Name of the operator.
        options: Its options.
        memory_bytes: Budget of all tasks on one host.
        partitions: Tasks that share it.
        is_routed: Whether a partition has a range of keys of its own, and so a page memory of its own.
        operator_id: Tells this `enrich` apart from others of the same query.
        run: Tells the query apart if it is not a streaming query.
        directory: Where page memory lies, None to choose.
        records: Where query records lie, None for the master.
        added: The columns that the results have from the master, behind those of the stream.
        schema: Exactly what Spark takes back, the report last.
    """

    path: str
    view: View
    version: int | None
    batch_version: int
    algorithm: str
    options: dict[str, Any]
    memory_bytes: int
    partitions: int
    is_routed: bool
    operator_id: str
    run: str
    directory: str | None
    records: str | None
    added: pa.Schema
    schema: pa.Schema

    def join(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function that Spark runs on every partition."""
        started = time.perf_counter()
        return_freed_memory()
        context = TaskContext.get()
        if context is None:
            raise AdjoinError("enrich runs in a Spark task; join Arrow batches with adjoin.SSIJ instead")
        micro_batch = MicroBatch.current(context)
        version = self._version(micro_batch)
        master, share_bytes = open_master(self.path, version, self.view, self.memory_bytes, self.partitions)
        batches = _once_there_are_some(batches)
        with ExitStack() as stack:
            path = stack.enter_context(self._arena(context, micro_batch, share_bytes))
            pages = stack.enter_context(page_files.use(path, share_bytes, keep=micro_batch is not None))
            operator = algorithm_named(self.algorithm)(
                master, memory=share_bytes, pages=pages, shared_index=True, device=disk(), **self.options
            )
            stack.callback(operator.close)
            for batch in operator.run(map(self._as_stream, batches)):
                yield self._as_result(batch)
            metrics = operator.metrics()
        yield report_row(self.schema, self._facts(metrics, self.algorithm, context, master, started))

    def _version(self, micro_batch: MicroBatch | None) -> int:
        if self.version is not None:
            return self.version
        if micro_batch is None:
            return self.batch_version
        return self._records.version_for(micro_batch.query_id, micro_batch.batch_id)

    @property
    def _records(self) -> QueryRecords:
        return QueryRecords(self.path, self.records, self.view.master)

    def _arena(self, context: TaskContext, micro_batch: MicroBatch | None, share_bytes: int) -> Any:
        owner = micro_batch.query_id if micro_batch else self.run
        records = self._records.begin(owner) if micro_batch else None
        arenas = Arenas(
            operator=f"{owner}-{self.operator_id}",
            share_bytes=share_bytes,
            directory=self.directory,
        )
        return arenas.acquire(
            partition=context.partitionId() if self.is_routed else None,
            slots=self.partitions,
            records=records,
            keep=micro_batch is not None,
            attempt=1 + context.taskAttemptId(),
        )

    def _as_stream(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.rename_columns(self.schema.names[: batch.num_columns])

    def _as_result(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as Spark takes it; no column of the master may have taken the place of another."""
        added = pa.schema(list(batch.schema)[batch.num_columns - len(self.added) :])
        if added.names != self.added.names or added.types != self.added.types:
            raise SchemaError(
                f"the master gives the columns {added}, the query was made for {self.added}; start it again"
            )
        report = self.schema.field(-1)
        return to_spark(batch.append_column(report, pa.nulls(batch.num_rows, report.type)), self.schema)

    @staticmethod
    def _facts(
        metrics: dict[str, Any], algorithm: str, context: TaskContext, master: Master, started: float
    ) -> dict[str, int]:
        facts = {name: int(value) for name, value in metrics.items() if not isinstance(value, str)}
        facts["algorithm"] = ALGORITHM_NAMES.index(metrics.get("algorithm", algorithm))
        facts["microseconds_waiting_max"] = int(metrics["seconds_waiting_max"] * 1e6)
        facts["microseconds"] = int((time.perf_counter() - started) * 1e6)
        facts["partition"] = context.partitionId()
        facts["master_version"] = master.version
        return facts


def _once_there_are_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Wait for the first batch.

    Joins in a row take their page memory in the order of the rows: one that took its own before the one
    ahead of it could wait for a task that waits for it.
    """
    first = next(batches, None)
    return batches if first is None else chain([first], batches)
