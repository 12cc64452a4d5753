"""Metrics of a micro-batch, carried by Spark's query progress."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.types import LongType, MapType, StringType, StructField

from adjoin.errors import AdjoinError, OptionError
from adjoin.semistream.algorithms import ALGORITHM_NAMES
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.metrics.observing import batch_observations
from adjoin.spark.quiet import quiet_listeners_at_exit
from adjoin.spark.reason import reason

OBSERVATION = "adjoin"
REPORT_COLUMN = "_adjoin_report"
REPORT_FIELD = StructField(REPORT_COLUMN, MapType(StringType(), LongType()))

_SUMS = (
    "rows_in",
    "rows_out",
    "cache_hits",
    "rows_unmatched",
    "pages_read",
    "seeks",
    "bytes_read",
    "memory_bytes",
    "peak_bytes",
)
_TASKS = "adjoin_tasks"


@dataclass(frozen=True)
class TaskProgress:
    """One task of a micro-batch.

    Attributes:
        partition: Its partition.
        rows_in: Stream rows it received.
        pages_read: Pages it read.
        seconds: How long it ran, including the wait for its input.
    """

    partition: int
    rows_in: int
    pages_read: int
    seconds: float


@dataclass(frozen=True)
class EnrichProgress:
    """What one `enrich` of a query did in one micro-batch.

    Attributes:
        name: The `name` of the `enrich`; by default "adjoin", "adjoin_2" and so on, in the order of calls.
        query_id: The streaming query.
        query_name: Its name, if it has one.
        batch_id: The micro-batch.
        master_version: The version that all its rows saw.
        algorithm: The operator; with "auto", the one it chose.
        rows_in: Stream rows received.
        rows_out: Rows emitted.
        cache_hits: Stream rows joined without a read.
        front_hits: How many of those the row cache in front of the join answered, if there is one.
        rows_unmatched: Stream rows without a match.
        pages_read: Pages read.
        seeks: Read requests; one can cover several adjacent pages.
        bytes_read: Bytes read.
        memory_bytes: The budgets of all tasks, summed.
        peak_bytes: The peak memory of each task, summed.
        seconds_waiting_max: The longest time a row was pending.
        tasks: The tasks, by partition.
    """

    name: str
    query_id: str
    query_name: str | None
    batch_id: int
    master_version: int
    algorithm: str
    rows_in: int
    rows_out: int
    cache_hits: int
    front_hits: int
    rows_unmatched: int
    pages_read: int
    seeks: int
    bytes_read: int
    memory_bytes: int
    peak_bytes: int
    seconds_waiting_max: float
    tasks: tuple[TaskProgress, ...]

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> "list[EnrichProgress]":
        """One for each `enrich` of the query that processed rows in the micro-batch.

        On classic Spark this includes those inside `foreachBatch`, if this process ran it and the
        micro-batch is one of the last 100; their numbers are those of the first computation of the rows.
        """
        return [cls._of(name, progress, tasks) for name, tasks in reports_of(progress, "partition")]

    @classmethod
    def _of(
        cls, name: str, progress: StreamingQueryProgress, tasks: list[Mapping[str, Any]]
    ) -> "EnrichProgress":
        return cls(
            name=name,
            query_id=str(progress.id),
            query_name=progress.name,
            batch_id=progress.batchId,
            master_version=max(task["master_version"] for task in tasks),
            algorithm=ALGORITHM_NAMES[tasks[0]["algorithm"]],
            front_hits=sum(task.get("front_hits", 0) for task in tasks),
            seconds_waiting_max=max(task["microseconds_waiting_max"] for task in tasks) / 1e6,
            tasks=tuple(sorted(map(_task, tasks), key=lambda task: task.partition)),
            **{number: sum(task[number] for task in tasks) for number in _SUMS},
        )


_Progress = TypeVar("_Progress")


class ProgressListener(StreamingQueryListener, Generic[_Progress]):
    """Passes the progress of adjoin's joins in a session's streaming queries to a function.

    Args:
        progress_of: What Spark's progress says about them.
        on_progress: Called after each micro-batch, once for each of them.
        on_error: Called when an error of adjoin ends a query, with the query's id and the error.
    """

    def __init__(
        self,
        progress_of: Callable[[StreamingQueryProgress], Sequence[_Progress]],
        on_progress: Callable[[_Progress], None],
        on_error: Callable[[str, AdjoinError], None] | None,
    ) -> None:
        self._progress_of = progress_of
        self._on_progress = on_progress
        self._on_error = on_error
        quiet_listeners_at_exit()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to report yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Report what the operators did."""
        for progress in self._progress_of(event.progress):
            self._on_progress(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to report."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Report the error if it is one of adjoin."""
        error = reason(event.exception)
        if error is not None and self._on_error is not None:
            self._on_error(str(event.id), error)


class EnrichListener(ProgressListener[EnrichProgress]):
    """Passes the progress of every `enrich` in a session's streaming queries to a function.

    Args:
        on_progress: Called after each micro-batch, once for each `enrich` of the query; on classic Spark
            also for each one inside `foreachBatch`, including those of `adjoin.etl`.
        on_error: Called when an error of adjoin ends a query, with the query's id and the error as
            `adjoin.reason` finds it.

    Example:
        >>> listener = EnrichListener(
        ...     lambda progress: print(progress.rows_in, progress.cache_hits),
        ...     on_error=lambda query_id, error: print(query_id, error),
        ... )
        >>> # spark.streams.addListener(listener)
    """

    def __init__(
        self,
        on_progress: Callable[[EnrichProgress], None],
        on_error: Callable[[str, AdjoinError], None] | None = None,
    ) -> None:
        super().__init__(EnrichProgress.of, on_progress, on_error)


def report_row(schema: pa.Schema, facts: Mapping[str, int]) -> pa.RecordBatch:
    """A row of nulls, with the facts in the last column."""
    *others, report = schema
    nulls = [pa.nulls(1, field.type) for field in others]
    return pa.record_batch([*nulls, pa.array([list(facts.items())], report.type)], schema=schema)


def observe_reports(result: DataFrame, name: str | None, around: MicroBatch | None) -> DataFrame:
    """Remove the report rows, and add what they say to the progress of the query.

    Args:
        result: Results and reports.
        name: Their name in the progress; None in `foreachBatch` for one by the order of calls.
        around: The micro-batch whose `foreachBatch` body runs this, if any.

    Raises:
        OptionError: The query already has a join with this name.
    """
    # One list of all reports: an expression per number would have to be planned in every micro-batch.
    reports = F.collect_list(REPORT_COLUMN).alias(_TASKS)
    if around is not None:
        observed = batch_observations.observe(result, around, name, reports)
    else:
        observed = _observe(result, name or next_name(), reports)
    return observed.filter(F.col(REPORT_COLUMN).isNull()).drop(REPORT_COLUMN)


def _observe(result: DataFrame, name: str, reports: Column) -> DataFrame:
    try:
        observed = result.observe(name, reports)
        observed.isStreaming  # noqa: B018 (Connect does not analyze a plan until asked)
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise OptionError(
            f"name={name!r} is already used by another join of this query; give each its own name"
        ) from error
    return observed


def next_name() -> str:
    """A name unique in this process: Spark refuses a query with the same name twice."""
    number = next(_numbers)
    return OBSERVATION if number == 1 else f"{OBSERVATION}_{number}"


_numbers = itertools.count(1)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """Progress comes as rows or as parsed JSON; on Connect the latter has values apart from their names."""
    facts: Mapping[str, Any] = value if isinstance(value, Mapping) else value.asDict()
    if facts.keys() == {"values", "schema"}:
        names = [field["name"] for field in facts["schema"]["fields"]]
        return dict(zip(names, facts["values"], strict=True))
    return facts


def reports_of(progress: StreamingQueryProgress, part: str) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The names of the joins in a micro-batch, and their reports that say which `part` they are about.

    There is one report per part: where rows are computed twice, there can be two of the same.
    """
    inside = batch_observations.of(MicroBatch(str(progress.id), progress.batchId))
    for name, observed in (*progress.observedMetrics.items(), *inside):
        facts = _as_mapping(observed)
        if facts.keys() == {_TASKS}:
            reports = {report.get(part): report for report in map(_as_mapping, facts[_TASKS])}
            if reports and None not in reports:
                yield name, list(reports.values())


def _task(facts: Mapping[str, Any]) -> TaskProgress:
    return TaskProgress(
        facts["partition"], facts["rows_in"], facts["pages_read"], facts["microseconds"] / 1e6
    )
