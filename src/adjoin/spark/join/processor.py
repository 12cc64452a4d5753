"""What Spark calls for every bucket in every micro-batch: the rows go to its operator and into the log."""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import LongType, MapType, Row, StringType, StructField, StructType

from adjoin.errors import AdjoinError, CorruptionError, StorageError
from adjoin.kernels.types import Array
from adjoin.spark.enrich.micro_batch import MicroBatch
from adjoin.spark.join.event_time import expired_at, late_at
from adjoin.spark.join.log import MATCHED, Log, Meta
from adjoin.spark.join.operator_client import Done, OperatorDiedError, Request, operator_of
from adjoin.spark.join.options import JoinOptions
from adjoin.spark.join.stored_rows import packs_of, punctual, rows_of, times_of

TICKET_SCHEMA = StructType(
    [
        StructField("results", StringType()),
        StructField("facts", MapType(StringType(), LongType())),
    ]
)
_CHUNK_BYTES = 8 << 20
"""About how much is pushed at a time, and kept in one entry of the log."""
_ATTEMPTS = 3


@dataclass(frozen=True)
class Pack:
    """Rows of one side that have arrived in this bucket.

    Attributes:
        side: The side.
        origin: Where they come from; in this order, packs are in the same order in every attempt.
        rows: How many rows there are.
        data: The rows.
    """

    side: int
    origin: int
    rows: int
    data: bytes


class JoinProcessor(StatefulProcessor):
    """The state of the buckets of a partition, and their turns.

    Args:
        options: The join.
        buckets: The number of each bucket, by the key under which Spark groups its rows.
        operator_id: Identifies this join among those of its query.
        has_timers: Whether buckets take a turn whenever the watermark moves.
    """

    def __init__(
        self,
        options: JoinOptions,
        buckets: Mapping[int, int],
        operator_id: str,
        *,
        has_timers: bool,
    ) -> None:
        self._options = options
        self._buckets = buckets
        self._operator_id = operator_id
        self._has_timers = has_timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._meta = handle.getValueState("meta", "value binary")
        self._entries = handle.getMapState("log", "number bigint, part int", "value binary")

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 (Spark's name)
    ) -> Iterator[Row]:
        """Join the packs that have arrived for a bucket."""
        packs = [Pack(row.side, row.origin, row.rows, bytes(row.data)) for row in rows if row.rows]
        yield from self._turn(key[0], packs, timerValues)

    def handleExpiredTimer(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """The watermark has moved."""
        yield from self._turn(key[0], [], timerValues)

    def close(self) -> None:
        """Nothing is left to do: the operators stay for the next micro-batch."""

    def _turn(self, key: int, packs: list[Pack], timers: TimerValues) -> Iterator[Row]:
        watermark = max(0, timers.getCurrentWatermarkInMs())
        meta = self._known()
        if not packs and watermark == meta.watermark and meta.token:
            self._set_timer(watermark)
            return
        log = Log(meta, _StateValues(self._entries))
        done = self._join(self._buckets[key], packs, watermark, log)
        log.expire(expired_at(self._options, watermark))
        self._shrink(log, watermark)
        meta.watermark = watermark
        self._meta.update((meta.to_bytes(),))
        self._set_timer(watermark)
        facts = {**done.facts, "bucket": self._buckets[key], "log_bytes": log.size, "watermark": watermark}
        yield Row(results=done.results, facts=facts)

    def _known(self) -> Meta:
        described = {**self._options.described(), "partitions": len(self._buckets)}
        described = json.loads(json.dumps(described))
        saved = self._meta.get()
        return Meta(described) if saved is None else Meta.from_bytes(bytes(saved[0]), described)

    def _set_timer(self, watermark: int) -> None:
        """Take a turn when the watermark has moved, also if no rows arrive."""
        if self._has_timers:
            self._handle.registerTimer(watermark + 1)

    def _join(self, bucket: int, packs: list[Pack], watermark: int, log: Log) -> Done:
        """Send the packs to the operator, and add them to the log."""
        meta, options = log.meta, self._options
        late, first_row = late_at(options, meta.watermark), meta.next_row
        chunks = []
        for chunk in _chunks(packs):
            chunks.append(({"side": chunk[0].side, "first": meta.next_row}, [pack.data for pack in chunk]))
            meta.next_row += sum(pack.rows for pack in chunk)
        request = Request(
            base=meta.token,
            token=uuid.uuid4().hex,
            late=late,
            expired=expired_at(options, watermark),
            expired_before=expired_at(options, meta.watermark),
            chunks=chunks,
        )
        done = self._do(bucket, request, log, first_row)
        for header, data in chunks:
            self._log(log, header["side"], header["first"], data, late[header["side"]])
        for kind, numbers in zip(MATCHED, done.matched, strict=True):
            log.add_matched(kind, numbers)
        meta.token = request.token
        return done

    def _do(self, bucket: int, request: Request, log: Log, first_row: int) -> Done:
        """Do a turn; if the operator's process dies meanwhile, another one does it."""
        for _ in range(_ATTEMPTS):
            try:
                with operator_of(self._operator(), bucket, self._options) as operator:
                    return operator.do(request, log, first_row)
            except OperatorDiedError as error:
                died = error
        raise StorageError(str(died)) from died

    def _operator(self) -> str:
        """The name of the join on its hosts: no other query has the same."""
        context = TaskContext.get()
        micro_batch = None if context is None else MicroBatch.current(context)
        if micro_batch is None:
            raise AdjoinError("a join of streams must run in a streaming query")
        return f"{micro_batch.query_id}-{self._operator_id}"

    def _log(self, log: Log, side: int, first: int, packs: list[bytes], late: int | None) -> None:
        """Add the rows of a chunk to the log, with the times at which they expire."""
        value = b"".join(packs)
        sizes = tuple(map(len, packs))
        batches = list(packs_of(value, sizes, self._options.schemas[side]))
        rows = sum(batch.num_rows for batch in batches)
        median = latest = None
        if self._options.time is not None:
            kept = punctual(iter(batches), self._options.watermarked[side], late)
            times = np.concatenate([_valid_times(batch, self._options.time[side]) for batch in kept])
            if not len(times):
                return
            median, latest = int(np.median(times)), int(times.max())
        log.add(
            value, kind=side, first=first, rows=rows, sizes=sizes, late=late, median=median, latest=latest
        )

    def _shrink(self, log: Log, watermark: int) -> None:
        """Rewrite entries of which most rows have expired."""
        expired = expired_at(self._options, watermark)
        for entry in log.mostly_expired(expired):
            side = entry.kind
            assert self._options.time is not None
            rows, numbers = rows_of(entry, log.value(entry), self._options, expired[side])
            pack = rows.serialize().to_pybytes()
            times = _valid_times(rows, self._options.time[side])
            log.replace(
                entry,
                pack + numbers.astype(np.int64).tobytes(),
                sizes=(len(pack),),
                late=None,
                median=int(np.median(times)),
                latest=int(times.max()),
            )


class _StateValues:
    """The entries of the log in the state store."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, number: int, part: int) -> bytes:
        found = self._state.getValue((number, part))
        if found is None:
            raise CorruptionError(f"the checkpoint's state of the join lacks entry {number} of its log")
        return bytes(found[0])

    def put(self, number: int, part: int, value: bytes) -> None:
        self._state.updateValue((number, part), (value,))

    def remove(self, number: int, part: int) -> None:
        self._state.removeKey((number, part))


def _chunks(packs: list[Pack]) -> Iterator[list[Pack]]:
    """Packs that are pushed together: those of the left first, each side in the order of the origins."""
    chunk: list[Pack] = []
    size = 0
    for pack in sorted(packs, key=lambda pack: (pack.side, pack.origin)):
        if chunk and (pack.side != chunk[0].side or size + len(pack.data) > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(pack)
        size += len(pack.data)
    if chunk:
        yield chunk


def _valid_times(batch: pa.RecordBatch, column: str) -> Array:
    times, valid = times_of(batch, column)
    return times if valid is None else times[valid]
