"""Metrics of joins inside `foreachBatch`, which Spark leaves out of the progress of the streaming query.

Each such join has an observation, which Spark fills in when the rows are first computed. It is kept here,
filed under its micro-batch, until a listener or the user asks for the progress of that micro-batch.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Observation

from adjoin.spark.enrich.micro_batch import MicroBatch

_MICRO_BATCHES_KEPT = 100
_LONGEST_WAIT_SECONDS = 2.0
_POLL_SECONDS = 0.01
_RUN = "spark.jobGroup.id"  # Spark gives every run of a query its own group


@dataclass
class _Observed:
    """The observations of one run of a micro-batch."""

    run: str | None
    named: list[tuple[str, Any]] = field(default_factory=list)
    is_awaited: bool = True


class BatchObservations:
    """The observations of the most recent micro-batches of this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[MicroBatch, _Observed] = OrderedDict()
        self._lock = threading.Lock()

    def observe(self, df: DataFrame, around: MicroBatch, name: str | None, metrics: Column) -> DataFrame:
        """The same rows, observed under this name, or by default one numbered within the micro-batch."""
        run = df.sparkSession.sparkContext.getLocalProperty(_RUN)
        with self._lock:
            observed = self._kept.get(around)
            if observed is None or observed.run != run:  # a repeated micro-batch starts afresh
                observed = self._kept[around] = _Observed(run)
            self._kept.move_to_end(around)
            while len(self._kept) > _MICRO_BATCHES_KEPT:
                self._kept.popitem(last=False)
            count = 1 + sum(1 for one, _ in observed.named if one.startswith("adjoin"))
            name = name or ("adjoin" if count == 1 else f"adjoin_{count}")
            observation = Observation(name)
            result = df.observe(observation, metrics)
            observed.named.append((name, observation))
        return result

    def of(self, around: MicroBatch) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Names and metrics of the joins whose rows were computed.

        Spark fills in an observation a moment after the rows are done, so an empty one is waited for, once.
        """
        with self._lock:
            observed = self._kept.get(around)
            named = list(observed.named) if observed else []
        if observed is None:
            return
        until = time.monotonic() + (_LONGEST_WAIT_SECONDS if observed.is_awaited else 0)
        observed.is_awaited = False
        for name, observation in named:
            while not _is_filled_in(observation) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            if _is_filled_in(observation):
                yield name, observation.get


def _is_filled_in(observation: Any) -> bool:
    return bool(observation._jo.future().isCompleted())  # noqa: SLF001 (`get` would wait forever)


batch_observations = BatchObservations()
