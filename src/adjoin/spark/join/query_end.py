"""Tell the operators of a query that it has ended, so that they free their memory and files.

The driver reaches those on its own host. On other hosts they end with their executors, or after an idle hour.
"""

import os
from contextlib import suppress
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from adjoin.spark.page_memory import sweeper
from adjoin.spark.quiet import quiet_listeners_at_exit


class EndOfJoins(StreamingQueryListener):
    """Marks the directories of queries that have ended.

    Attributes:
        homes: The directories of all operators of this user.
    """

    def __init__(self) -> None:
        self.homes: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do: its operators start with the first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do: the query still runs."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do: the query still runs."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Mark its operators: whatever the reason, they are rebuilt if it starts again."""
        for home in tuple(self.homes):
            with suppress(OSError):  # no operator has been on this host
                for name in os.listdir(home):
                    if name.startswith(f"{event.id}-"):
                        _mark(os.path.join(home, name))


def _mark(directory: str) -> None:
    with suppress(OSError):
        os.close(os.open(os.path.join(directory, sweeper.ENDED), os.O_WRONLY | os.O_CREAT, 0o600))


def unmark(directory: str) -> None:
    """The query has started again."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, sweeper.ENDED))


def clean_up_after(df: DataFrame, home: str) -> None:
    """Mark the operators in this home when queries of the session end."""
    _listener(df.sparkSession).homes.add(home)


@lru_cache(maxsize=8)
def _listener(session: Any) -> EndOfJoins:
    listener = EndOfJoins()
    session.streams.addListener(listener)
    quiet_listeners_at_exit()
    return listener
