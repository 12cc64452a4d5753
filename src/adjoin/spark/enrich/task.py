"""What one Spark task of `enrich` does: find the version, lock the page file, join, report."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
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
from adjoin.spark.enrich.worker import disk, mapped_page_files, open_master
from adjoin.spark.metrics.metrics import report_row
from adjoin.spark.page_memory.files import PageFiles
from adjoin.spark.types import to_spark


@dataclass(frozen=True)
class EnrichTask:
    """Everything a task needs to know, as plain data.

    Attributes:
        path: The master.
        view: The columns of the master when the query was made.
        version: The version to join with in every micro-batch; None for the one recorded for each.
        batch_version: The version to join with outside of streaming queries.
        algorithm: Name of the operator.
        options: Its options.
        memory_bytes: Budget of all tasks on one host.
        partitions: How many tasks share it.
        is_routed: Whether each partition has its own range of keys, and so its own page file.
        operator_id: Identifies this `enrich` among those of its query.
        run: Identifies the query if it is not a streaming query.
        directory: Where page files are; None to choose.
        records: Where query records are; None for in the master.
        added: The columns that results take from the master, after those of the stream.
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
            raise AdjoinError("enrich must run in a Spark task; to join Arrow batches use adjoin.SSIJ")
        micro_batch = MicroBatch.current(context)
        version = self._version(micro_batch)
        master, share_bytes = open_master(self.path, version, self.view, self.memory_bytes, self.partitions)
        batches = _once_there_are_some(batches)
        with ExitStack() as stack:
            path = stack.enter_context(self._page_file(context, micro_batch, share_bytes))
            pages = stack.enter_context(
                mapped_page_files.use(path, share_bytes, keep=micro_batch is not None)
            )
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

    def _page_file(
        self, context: TaskContext, micro_batch: MicroBatch | None, share_bytes: int
    ) -> AbstractContextManager[str]:
        """The path of the page file, locked."""
        owner = micro_batch.query_id if micro_batch else self.run
        records = self._records.begin(owner) if micro_batch else None
        files = PageFiles(
            operator=f"{owner}-{self.operator_id}",
            share_bytes=share_bytes,
            directory=self.directory,
        )
        return files.acquire(
            partition=context.partitionId() if self.is_routed else None,
            slots=self.partitions,
            records=records,
            keep=micro_batch is not None,
            attempt=1 + context.taskAttemptId(),
        )

    def _as_stream(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.rename_columns(self.schema.names[: batch.num_columns])

    def _as_result(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as Spark takes it; an error if the master's columns are not those expected."""
        added = pa.schema(list(batch.schema)[batch.num_columns - len(self.added) :])
        if added.names != self.added.names or added.types != self.added.types:
            raise SchemaError(
                f"the master returned the columns {added}, but the query expects {self.added}; restart it"
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

    Chained joins must lock their page files in the order of the rows: a join that locked its own before
    the join ahead of it did could deadlock with another task.
    """
    first = next(batches, None)
    return batches if first is None else chain([first], batches)
