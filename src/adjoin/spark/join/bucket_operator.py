"""The operator of a bucket, and how it moves from the state after one micro-batch to the next."""

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import join_batches
from adjoin.errors import AdjoinError, StorageError
from adjoin.kernels.types import Array
from adjoin.spark.join.frames import Frames
from adjoin.spark.join.log import Entry
from adjoin.spark.join.options import SIDES, JoinOptions
from adjoin.spark.join.stored_rows import packs_of, punctual, rows_of
from adjoin.spark.join.turn import Chunk, Times, Turn

_COUNTS = (
    "rows_in",
    "rows_out",
    "results_online",
    "results_from_disk",
    "rows_expired",
    "blocks_flushed",
    "pages_read",
    "seeks",
    "bytes_read",
)
"""Metrics of the operator that count since its start."""
_LEVELS = ("memory_bytes", "peak_bytes", "used_bytes", "disk_bytes", "rows_kept")
"""Metrics of the operator that say how things are."""


@dataclass(frozen=True)
class Outcome:
    """What a turn has done.

    Attributes:
        results: The file with the results; None if there are none.
        facts: Metrics of the turn.
        matched: The numbers of the rows of each side that have found their first partner.
    """

    results: str | None
    facts: dict[str, int]
    matched: tuple[bytes, bytes]

    def to_json(self) -> dict[str, Any]:
        """The header of the message to the task."""
        return {"results": self.results, "facts": self.facts}


class BucketOperator:
    """The operator of a bucket.

    It is in the state that a token names, and a turn takes it to the next one. The results of a turn are in a
    file that stays until the next turn begins: only then has Spark committed them. Until then the
    same turn may be asked for again, and has the same results.

    Args:
        options: The join.
        directory: Where files with results are put.
        bucket: The number of the bucket.
    """

    def __init__(self, options: JoinOptions, directory: str, bucket: int) -> None:
        self._options = options
        self._directory = directory
        self._bucket = bucket
        self._operator = options.operator()
        self._token: str | None = None
        self._last: tuple[str, tuple[object, ...], Outcome] | None = None
        self._counted = dict.fromkeys(_COUNTS, 0)

    def can_continue(self, token: str) -> bool:
        """Whether a turn can begin in the state of this token, or has begun there and may be repeated."""
        return token == self._token or (self._last is not None and self._last[0] == token)

    def restore(self, request: dict[str, Any], task: Frames) -> None:
        """Rebuild the state from the log, which the task sends entry by entry."""
        matched = [np.frombuffer(values, np.int64) for values in task.receive()[1]]
        failure: AdjoinError | None = None
        while "entry" in (message := task.receive())[0]:
            if failure is None:
                try:
                    self._load(
                        Entry.from_json(message[0]["entry"]), message[1][0], request["expired"], matched
                    )
                except AdjoinError as error:
                    failure = error  # to be sent when the task listens
        if failure is not None:
            raise failure
        self._operator.skip_row_numbers(request["next_row"])
        self._operator.newly_matched()  # they are in the log
        self._token = request["token"]
        self._facts(0)

    def _load(self, entry: Entry, value: bytes, expired: Times, matched: Sequence[Array]) -> None:
        side = entry.kind
        rows, numbers = rows_of(entry, value, self._options, expired[side])
        self._operator.load(SIDES[side], rows, numbers, np.isin(numbers, matched[side]))

    def join(self, turn: Turn) -> Outcome | None:
        """Do a turn; None if another one was done in the state in which it begins."""
        if self._last is not None and turn.base == self._last[0]:
            return self._last[2] if turn.digest == self._last[1] else None
        self._drop_results()
        self._token = None  # unknown until the turn is done
        started, operator = time.perf_counter(), self._operator
        with ResultFile(self._directory, self._bucket, operator.schema) as results:
            late_rows = sum(self._push(turn, chunk, results) for chunk in turn.chunks)
            if turn.expired != (None, None):
                results.write(operator.expire_rows(*turn.expired))
        matched = [np.ascontiguousarray(some, np.int64).tobytes() for some in operator.newly_matched()]
        facts = {**self._facts(time.perf_counter() - started), "rows_late": late_rows}
        outcome = Outcome(results.path, facts, (matched[0], matched[1]))
        self._token, self._last = turn.token, (turn.base, turn.digest, outcome)
        return outcome

    def _push(self, turn: Turn, chunk: Chunk, results: "ResultFile") -> int:
        """Join the rows of a chunk; returns how many were late."""
        side = chunk.side
        packs = list(packs_of(turn.packs(chunk), chunk.sizes, self._options.schemas[side]))
        batches = punctual(iter(packs), self._options.watermarked[side], turn.late[side])
        rows = join_batches(batches)
        self._operator.skip_row_numbers(chunk.first)
        results.write(self._operator.push(SIDES[side], rows))
        return sum(pack.num_rows for pack in packs) - rows.num_rows

    def _facts(self, seconds: float) -> dict[str, int]:
        """Metrics since the last call."""
        metrics = self._operator.metrics()
        counts = {name: int(metrics[name]) for name in _COUNTS}
        since = {name: counts[name] - self._counted[name] for name in _COUNTS}
        self._counted = counts
        levels = {name: int(metrics[name]) for name in _LEVELS}
        return {**since, **levels, "microseconds": int(seconds * 1e6)}

    def _drop_results(self) -> None:
        """The last turn has been committed: its results are no longer needed."""
        if self._last is not None and self._last[2].results is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._last[2].results)
        self._last = None

    def close(self) -> None:
        """Release memory and files."""
        self._drop_results()
        self._operator.close()


class ResultFile:
    """A file with results, for the task that returns them to Spark.

    Args:
        directory: Where to create it.
        bucket: The number of the bucket.
        schema: The columns of the results.

    Attributes:
        path: Where it is; None as long as there are no results.
    """

    def __init__(self, directory: str, bucket: int, schema: pa.Schema) -> None:
        self._name = os.path.join(directory, f"{bucket}-{uuid.uuid4().hex}.results")
        self._schema = schema
        self._writer: Any = None
        self.path: str | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Append results."""
        try:
            for batch in batches:
                if self._writer is None:
                    self._writer = pa.ipc.new_stream(self._name, self._schema)
                    self.path = self._name
                self._writer.write_batch(batch)
        except OSError as error:
            raise StorageError(f"cannot write results to {self._name}: {error}; make room") from error

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None and kind is None:
            self._writer.close()
        elif self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            with suppress(FileNotFoundError):
                os.unlink(self._name)


def results_in(path: str) -> Iterator[pa.RecordBatch]:
    """The results in a file."""
    with pa.memory_map(path) as source, pa.ipc.open_stream(source) as stream:
        yield from stream
