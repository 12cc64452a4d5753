"""Metrics of joins inside `foreachBatch`, which Spark leaves out of the progress of the streaming query.

Each such join has an observation, which Spark fills in when the rows are first asked for. It is kept here
under its micro-batch until the progress of that micro-batch is looked at, by a listener or by hand.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, Observation

from adjoin.spark.enrich.micro_batch import MicroBatch

_MICRO_BATCHES_KEPT = 100
_LONGEST_WAIT_SECONDS = 2.0
_POLL_SECONDS = 0.01
_RUN = "spark.jobGroup.id"  # Spark gives every run of a query a group of its own


@dataclass
class _Observed:
    """The observations of one run of a micro-batch."""

    run: str | None
    named: list[tuple[str, Any]] = field(default_factory=list)
    is_awaited: bool = True


class BatchObservations:
    """The observations of the micro-batches that ran last in this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[MicroBatch, _Observed] = OrderedDict()
        self._lock = threading.Lock()

    def observe(self, df: DataFrame, around: MicroBatch, name: str | None, metrics: Column) -> DataFrame:
        """The same rows, observed under the name, or one made from how many there were in the micro-batch."""
        context: Any = SparkContext._active_spark_context
        run = context.getLocalProperty(_RUN)
        with self._lock:
            observed = self._kept.get(around)
            if observed is None or observed.run != run:  # a micro-batch that is repeated starts anew
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
        """Names and metrics of the joins whose rows were asked for.

        Spark fills in an observation a moment after the rows are there, so an empty one is waited for, once.
        """
        with self._lock:
            observed = self._kept.get(around)
            named = list(observed.named) if observed else []
        if observed is None:
            return
        until = time.monotonic() + (_LONGEST_WAIT_SECONDS if observed.is_awaited else 0)
        observed.is_awaited = False
        for name, observation in named:
            while not observation._jo.future().isCompleted() and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            if observation._jo.future().isCompleted():
                yield name, observation.get


batch_observations = BatchObservations()
