"""Tell the hosts that a query has ended, so that they free its page memory."""

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
    """Marks ended queries in the records of the masters they were joined with."""

    def __init__(self) -> None:
        self.masters: set[tuple[str, str | None]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do: the records begin with the first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do: the query still runs."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do: the query still runs."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Mark the query: whatever the reason, it no longer needs its page memory."""
        for path, records in tuple(self.masters):  # others may add to it meanwhile
            try:
                QueryRecords(path, records).end(str(event.id))
            except AdjoinError:
                continue  # the master is gone: the sweeper frees the memory once it has been idle


def clean_up_after(df: DataFrame, master_path: str, records: str | None) -> None:
    """Mark queries of this session in the records of this master when they end.

    A batch DataFrame can be part of a streaming query too: inside `foreachBatch` the session is a copy
    whose listeners are never called, so the session that started Spark listens instead. On Connect the
    body runs in a process that ends with the query and cannot mark it: its page memory is removed after
    it has been idle.
    """
    session = df.sparkSession
    if not df.isStreaming and MicroBatch.around(df):
        # getOrCreate() would apply settings to it and ask Connect first.
        session = SparkSession._instantiatedSession or session  # noqa: SLF001 (no public name)
    _listener(session).masters.add((master_path, records))


@lru_cache(maxsize=8)
def _listener(session: Any) -> EndOfQueries:
    listener = EndOfQueries()
    session.streams.addListener(listener)
    quiet_listeners_at_exit()
    return listener
