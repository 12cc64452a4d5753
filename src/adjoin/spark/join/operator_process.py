"""The process on an executor's host that holds the operator of a bucket from one micro-batch to the next.

A Python worker of Spark has no bucket of its own and dies after a minute without work. So the operator, with
its memory and spill files, is in a process that tasks talk to through a Unix socket in a private directory.
Nothing is lost when it dies: the next task starts another one and rebuilds the operator from the log.

`python -m adjoin.spark.join.operator_process DIRECTORY BUCKET` runs until the query or its executor has
ended, or nothing has happened for an hour.
"""

import fcntl
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from adjoin.errors import AdjoinError
from adjoin.memory.heap import return_freed_memory
from adjoin.spark.join.bucket_operator import BucketOperator
from adjoin.spark.join.frames import Frames, bind
from adjoin.spark.join.operator_client import START_AGAIN_SECONDS
from adjoin.spark.join.options import JoinOptions
from adjoin.spark.join.turn import received
from adjoin.spark.page_memory import sweeper

_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.01


class OperatorProcess:
    """Serves one task at a time.

    Args:
        directory: The directory of the operators of a query on this host, which the caller holds.
        bucket: The number of the bucket.
        descriptor: The open directory.
    """

    def __init__(self, directory: str, bucket: int, descriptor: int) -> None:
        self._directory = directory
        self._bucket = bucket
        self._descriptor = descriptor
        self._operator: BucketOperator | None = None

    def serve(self) -> None:
        """Serve tasks until nobody needs the operator any more."""
        with bind(self._directory, self._bucket) as listener:
            while not sweeper.is_unneeded(self._directory, self._descriptor):
                ready, _, _ = select.select([listener], [], [], _LOOK_SECONDS)
                if ready:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError, EOFError):  # the task was killed: the next one goes on
                        self._serve(Frames(connection))
                    os.utime(self._descriptor)
        if self._operator is not None:
            self._operator.close()

    def _serve(self, task: Frames) -> None:
        """Serve a task, whose first message has the options of the join."""
        task.send({"serves": self._bucket})
        options = JoinOptions.from_json(task.receive()[0]["options"])
        try:
            while True:
                request, _ = task.receive()
                self._answer(task, options, request)
        except AdjoinError as error:
            self._discard()
            task.send({"error": type(error).__name__, "message": str(error)})

    def _answer(self, task: Frames, options: JoinOptions, request: dict[str, Any]) -> None:
        kind = request.pop("kind")
        if kind == "hello":
            task.send({"is_at": self._operator is not None and self._operator.can_continue(request["token"])})
        elif kind == "rebuild":
            self._rebuild(task, options, request)
        else:
            self._join(task, options, request)

    def _discard(self) -> None:
        """The state of the operator is no longer known: the next task rebuilds it."""
        if self._operator is not None:
            self._operator.close()
            self._operator = None

    def _rebuild(self, task: Frames, options: JoinOptions, request: dict[str, Any]) -> None:
        self._discard()
        operator = BucketOperator(options, self._directory, self._bucket)
        try:
            operator.restore(request, task)
        except BaseException:
            operator.close()
            raise
        self._operator = operator
        task.send({"rebuilt": True})

    def _join(self, task: Frames, options: JoinOptions, request: dict[str, Any]) -> None:
        """Receive a whole turn before anything changes: a task that is killed meanwhile changes nothing."""
        with received(request, task, options.spill) as turn:
            if self._operator is None or not self._operator.can_continue(turn.base):
                task.send({"stale": True})
                return
            outcome = self._operator.join(turn)
            if outcome is None:  # another turn than the one that was done already
                self._discard()
                task.send({"stale": True})
                return
        task.send(outcome.to_json(), *outcome.matched)


def main(directory: str, bucket: int) -> None:
    """Serve a bucket, unless another process does so already or the directory is gone."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # the sweeper leaves it alone
    if not sweeper.is_at(directory, descriptor):
        return
    alone = os.open(os.path.join(directory, f"{bucket}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + START_AGAIN_SECONDS
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
            OperatorProcess(directory, bucket, descriptor).serve()
            return
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return_freed_memory()
    main(sys.argv[1], int(sys.argv[2]))
