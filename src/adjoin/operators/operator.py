"""The contract of every operator: one call at a time, one thread, one process, and an end."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

import pyarrow as pa

from adjoin.errors import AdjoinError

Item = TypeVar("Item")


class Results(Iterator[Item], Generic[Item]):
    """The results of a call, produced while they are consumed, by one thread at a time, up to an error.

    Args:
        items: Produces the results.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._lock = threading.Lock()
        self._has_failed = False

    def __next__(self) -> Item:
        if self._has_failed:
            raise AdjoinError("the call has failed, so its results are incomplete; do not consume any more")
        if not self._lock.acquire(blocking=False):
            raise AdjoinError("another thread is consuming these results; consume them in a single thread")
        try:
            return next(self._items)
        except StopIteration:
            raise
        except BaseException:
            self._has_failed = True
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Stop consuming; this ends the operator unless all results were consumed."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


class Operator(ABC):
    """Takes record batches and emits record batches.

    A method that returns an iterator does its work while the iterator is consumed; exhaust it before the
    next call. Abandoning an iterator halfway ends the operator. The order of results is not defined. An
    operator belongs to the process that created it: a fork of that process needs its own.

    Attributes:
        survives: Errors that do not end the operator.
    """

    survives: ClassVar[tuple[type[AdjoinError], ...]] = ()

    def __init__(self) -> None:
        self._process = os.getpid()
        self._turn = threading.Lock()
        self._thread: int | None = None
        self._busy = False
        self._ended = False
        self._failed = False
        self._rows_out = 0

    @abstractmethod
    def metrics(self) -> dict[str, Any]:
        """The counters since the start."""

    def close(self) -> None:
        """Release files, threads and memory; in a fork, leave them to the process that created them."""
        if self._is_forked:
            self._ended = True
            return
        self._check_thread()
        self._ended = True
        self._close()

    @abstractmethod
    def _close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alone(self, work: Iterator[Item]) -> Results[Item]:
        """Run the work as the only call at this time."""
        self._check_open()
        with self._turn:
            if self._busy:
                raise AdjoinError("the results of the previous call were not consumed; exhaust them first")
            self._busy = True
        return Results(self._consume(work))

    def _consume(self, work: Iterator[Item]) -> Iterator[Item]:
        try:
            while True:
                self._check_open()
                self._check_mapped()
                self._thread = threading.get_ident()
                try:
                    item = next(work)
                except StopIteration:
                    return
                finally:
                    self._thread = None
                if isinstance(item, pa.RecordBatch):
                    self._rows_out += item.num_rows
                yield item
        except BaseException as error:
            if not isinstance(error, self.survives):
                self._ended = True
                self._failed = True
            raise
        finally:
            self._busy = False

    def _check_mapped(self) -> None:  # noqa: B027 (most operators use private memory)
        """Raise an error if mapped memory is gone: touching it would be fatal."""

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def _check_thread(self) -> None:
        if self._thread not in {None, threading.get_ident()}:
            raise AdjoinError("another thread is consuming results of this operator; wait until it is done")

    def _check_open(self) -> None:
        if self._is_forked:
            raise AdjoinError(
                "an operator cannot be used in a fork of the process that created it; create a new one there"
            )
        self._check_thread()
        if self._ended:
            raise AdjoinError("the operator has ended by finish(), close() or an error; create a new one")
