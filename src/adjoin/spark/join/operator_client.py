"""A task's connection to the process that holds the operator of its bucket; starts it if there is none."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from adjoin import errors
from adjoin.errors import AdjoinError, StorageError
from adjoin.kernels.types import Array
from adjoin.spark import operator_home
from adjoin.spark.join.frames import Frames, connect
from adjoin.spark.join.log import Log
from adjoin.spark.join.options import JoinOptions
from adjoin.spark.join.query_end import unmark
from adjoin.spark.join.turn import Times

DIRECTORY_SETTING = "spark.adjoin.spill.dir"
_PROGRAM = "adjoin.spark.join.operator_process"
_START_SECONDS = 120.0
_POLL_SECONDS = 0.02
START_AGAIN_SECONDS = 5.0
"""A process waits this long for the one before it to end."""


class OperatorDiedError(StorageError):
    """The process that holds the operator has died; nothing is lost."""


class Done(NamedTuple):
    """What a turn has done.

    Attributes:
        results: The file with the results; None if there are none.
        facts: Metrics of the turn.
        matched: The numbers of the rows of each side that have found their first partner, ascending.
    """

    results: str | None
    facts: dict[str, int]
    matched: tuple[Array, Array]


class Request(NamedTuple):
    """A turn to do; see `Turn`.

    Attributes:
        base: The token of the state that it continues.
        token: The token of the state after it.
        late: Rows of a side with this time or an earlier one are dropped.
        expired: Rows of a side with an earlier time leave at the end.
        expired_before: As `expired`, at the end of the turn before.
        chunks: The rows: a header for each chunk, and its packs.
    """

    base: str
    token: str
    late: Times
    expired: Times
    expired_before: Times
    chunks: Sequence[tuple[dict[str, Any], Sequence[bytes]]]


class OperatorClient:
    """Talks to the process of a bucket.

    Args:
        frames: The connection.
        options: The join.
    """

    def __init__(self, frames: Frames, options: JoinOptions) -> None:
        self._frames = frames
        self._frames.send({"options": options.to_json()})

    def do(self, request: Request, log: Log, next_row: int) -> Done:
        """Do a turn; the operator is rebuilt from the log if it is not in the state that the turn continues.

        Args:
            request: The turn.
            log: The rows before it.
            next_row: The number of the row after those.
        """
        done = None
        if self._can_continue(request.base):
            done = self._join(request)
        if done is None:
            self._rebuild(request, log, next_row)
            done = self._join(request)
        if done is None:
            raise AdjoinError("the operator of a bucket is busy with another turn; run the micro-batch again")
        return done

    def _can_continue(self, token: str) -> bool:
        self._frames.send({"kind": "hello", "token": token})
        return bool(self._reply()[0]["is_at"])

    def _rebuild(self, request: Request, log: Log, next_row: int) -> None:
        self._frames.send(
            {
                "kind": "rebuild",
                "token": request.base,
                "next_row": next_row,
                "expired": request.expired_before,
            }
        )
        self._frames.send({}, *(numbers.tobytes() for numbers in log.matched()))
        for entry, value in log.rows():
            self._frames.send({"entry": entry.to_json()}, value)
        self._frames.send({})
        self._reply()

    def _join(self, request: Request) -> Done | None:
        """What the turn has done; None if the operator cannot do it in its state."""
        facts = {
            "base": request.base,
            "token": request.token,
            "late": request.late,
            "expired": request.expired,
        }
        self._frames.send({"kind": "join", **facts})
        for header, packs in request.chunks:
            self._frames.send(header, *packs)
        self._frames.send({})
        reply, matched = self._reply()
        if "stale" in reply:
            return None
        left, right = (np.frombuffer(numbers, np.int64) for numbers in matched)
        return Done(reply["results"], reply["facts"], (left, right))

    def _reply(self) -> tuple[dict[str, Any], list[bytes]]:
        reply, payloads = self._frames.receive()
        if "error" in reply:
            kind = getattr(errors, reply["error"], AdjoinError)
            raise kind(reply["message"])
        return reply, payloads


def home_of(options: JoinOptions) -> str:
    """The directory of all operators of this user on this host."""
    return os.path.join(options.spill or tempfile.gettempdir(), f"adjoin-{os.geteuid()}")


@contextmanager
def operator_of(operator: str, bucket: int, options: JoinOptions) -> Iterator[OperatorClient]:
    """A connection to the process of a bucket.

    Args:
        operator: Identifies the join and its query.
        bucket: The number of the bucket.
        options: The join.

    Raises:
        ArenaError: The home cannot be written to.
        StorageError: The process does not start.
    """
    home = home_of(options)
    try:
        held = operator_home.hold(home, operator, None, DIRECTORY_SETTING)
    except OSError as error:
        raise operator_home.refused(home, error, DIRECTORY_SETTING) from error
    try:
        unmark(held.path)
        with _connected(held.path, bucket) as connection:
            yield OperatorClient(Frames(connection), options)
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        words = _last_words(held.path, bucket)
        raise OperatorDiedError(
            f"the process that holds the operator has died{words}; start the query again"
        ) from error
    finally:
        os.close(held.descriptor)


def _connected(directory: str, bucket: int) -> socket.socket:
    """A connection to the process of a bucket, which is started if necessary; it may be about to end."""
    until = time.monotonic() + _START_SECONDS
    start_at = 0.0
    while time.monotonic() < until:
        connection = connect(directory, bucket)
        if connection is not None:
            with suppress(EOFError, OSError):
                Frames(connection).receive()  # it serves us
                return connection
            connection.close()
        elif time.monotonic() > start_at:
            _start(directory, bucket)
            start_at = time.monotonic() + START_AGAIN_SECONDS
        time.sleep(_POLL_SECONDS)
    raise StorageError(
        f"the process that holds the operator of a bucket does not start{_last_words(directory, bucket)}"
    )


def _last_words(directory: str, bucket: int) -> str:
    """The end of what a process has written to its log."""
    with suppress(OSError), open(_log_of(directory, bucket), encoding="utf-8", errors="replace") as log:
        lines = log.read().strip().splitlines()
        return f" ({lines[-1][:300]})" if lines else ""
    return ""


def _log_of(directory: str, bucket: int) -> str:
    return os.path.join(directory, f"{bucket}.log")


def _start(directory: str, bucket: int) -> None:
    """Start the process of a bucket."""
    with open(_log_of(directory, bucket), "wb") as output:
        # Through a shell that exits at once: the process has no parent that would have to wait for it.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-m", _PROGRAM, directory, str(bucket)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
            check=False,
        )
