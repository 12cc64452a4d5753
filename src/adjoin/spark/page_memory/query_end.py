"""Telling the hosts that a query has ended, so that they free its page memory."""

from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from adjoin.errors import AdjoinError
from adjoin.master.version_records import QueryRecords
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.quiet import quiet_listeners_at_exit


class EndOfQueries(StreamingQueryListener):
    """Marks queries as ended in the records of the masters they were joined with."""

    def __init__(self) -> None:
        self.masters: set[tuple[str, str | None]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Its first micro-batch will tell."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """It goes on."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """It goes on."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Whatever was the reason, its page memory is needed no more."""
        for path, records in tuple(self.masters):  # others may add to it meanwhile
            try:
                QueryRecords(path, records).end(str(event.id))
            except AdjoinError:
                continue  # the master is gone: the sweeper frees the memory when it has been idle


def clean_up_after(df: DataFrame, master_path: str, records: str | None) -> None:
    """From now on, queries that end are marked in the records of this master.

    A batch DataFrame can be part of one too.

    Inside `foreachBatch` the session is a copy that hears of no query; the one that started Spark does.
    On Connect the body runs in a process that ends with the query, so nobody is there to mark it: its page
    memory goes when it was idle for long.
    """
    session = df.sparkSession
    if not df.isStreaming and MicroBatch.around(df):
        session = SparkSession._instantiatedSession or session
    _listener(session).masters.add((master_path, records))


@lru_cache(maxsize=8)
def _listener(session: Any) -> EndOfQueries:
    listener = EndOfQueries()
    session.streams.addListener(listener)
    quiet_listeners_at_exit()
    return listener
