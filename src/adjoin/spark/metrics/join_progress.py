"""What joins of streams did in a micro-batch, carried by Spark's query progress."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from adjoin.errors import AdjoinError
from adjoin.spark.metrics.metrics import ProgressListener, reports_of

_SUMS = (
    "rows_in",
    "rows_out",
    "rows_late",
    "rows_expired",
    "rows_kept",
    "results_from_disk",
    "memory_bytes",
    "peak_bytes",
    "used_bytes",
    "disk_bytes",
    "log_bytes",
    "pages_read",
    "seeks",
    "bytes_read",
)
_BUCKET = "bucket"


@dataclass(frozen=True)
class BucketProgress:
    """One bucket in a micro-batch.

    Attributes:
        bucket: Its number.
        rows_in: Rows it received, late ones left out.
        rows_out: Results.
        rows_kept: Rows it keeps.
        seconds: How long its operator worked.
    """

    bucket: int
    rows_in: int
    rows_out: int
    rows_kept: int
    seconds: float


@dataclass(frozen=True)
class JoinProgress:
    """What one `join` of a query did in one micro-batch.

    Attributes:
        name: The `name` of the `join`.
        query_id: The streaming query.
        query_name: Its name, if it has one.
        batch_id: The micro-batch.
        watermark: The watermark in milliseconds; 0 before there is one.
        rows_in: Rows received, late ones left out; a band or range join may send a row to several buckets.
        rows_out: Results.
        results_from_memory: Pairs of rows that were found in memory.
        results_from_disk: Pairs of which one row was found on disk.
        rows_late: Rows dropped because they came after the watermark.
        rows_expired: Rows that left because no partner can come any more.
        rows_kept: Rows that may still find a partner, in memory and on disk.
        memory_bytes: The budgets of all buckets, summed.
        peak_bytes: The most memory that each bucket has ever used, summed.
        used_bytes: The memory that they use now.
        disk_bytes: The size of their spill files.
        log_bytes: The size of the log in Spark's state store.
        pages_read: Pages read from spill files.
        seeks: Read requests; one can cover several pages.
        bytes_read: Bytes read.
        buckets: The buckets, by number.
    """

    name: str
    query_id: str
    query_name: str | None
    batch_id: int
    watermark: int
    rows_in: int
    rows_out: int
    results_from_memory: int
    results_from_disk: int
    rows_late: int
    rows_expired: int
    rows_kept: int
    memory_bytes: int
    peak_bytes: int
    used_bytes: int
    disk_bytes: int
    log_bytes: int
    pages_read: int
    seeks: int
    bytes_read: int
    buckets: tuple[BucketProgress, ...]

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> "list[JoinProgress]":
        """One for each `join` of the query that took part in the micro-batch."""
        return [cls._of(name, progress, tasks) for name, tasks in reports_of(progress, _BUCKET)]

    @classmethod
    def _of(
        cls, name: str, progress: StreamingQueryProgress, tasks: list[Mapping[str, Any]]
    ) -> "JoinProgress":
        sums = {number: sum(task[number] for task in tasks) for number in _SUMS}
        online = sum(task["results_online"] for task in tasks)
        return cls(
            name=name,
            query_id=str(progress.id),
            query_name=progress.name,
            batch_id=progress.batchId,
            watermark=max(task["watermark"] for task in tasks),
            results_from_memory=online - sums["results_from_disk"],
            buckets=tuple(sorted(map(_bucket, tasks), key=lambda bucket: bucket.bucket)),
            **sums,
        )


class JoinListener(ProgressListener[JoinProgress]):
    """Passes the progress of every `join` in a session's streaming queries to a function.

    Args:
        on_progress: Called after each micro-batch, once for each `join` of the query.
        on_error: Called when an error of adjoin ends a query, with the query's id and the error as
            `adjoin.reason` finds it.

    Example:
        >>> listener = JoinListener(lambda progress: print(progress.rows_kept, progress.disk_bytes))
        >>> # spark.streams.addListener(listener)
    """

    def __init__(
        self,
        on_progress: Callable[[JoinProgress], None],
        on_error: Callable[[str, AdjoinError], None] | None = None,
    ) -> None:
        super().__init__(JoinProgress.of, on_progress, on_error)


def _bucket(facts: Mapping[str, Any]) -> BucketProgress:
    return BucketProgress(
        facts[_BUCKET], facts["rows_in"], facts["rows_out"], facts["rows_kept"], facts["microseconds"] / 1e6
    )
