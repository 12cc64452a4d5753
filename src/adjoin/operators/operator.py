"""What every operator is: one call at a time, in one thread and one process, and an end."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar

import pyarrow as pa

from adjoin.errors import AdjoinError

Item = TypeVar("Item")


class Results(Iterator[Item], Generic[Item]):
    """What a call gives, made while it is consumed; not by two at once, and not beyond an error.

    Args:
        items: Makes them.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._lock = threading.Lock()
        self._has_failed = False

    def __next__(self) -> Item:
        if self._has_failed:
            raise AdjoinError("the call failed, and its results are not complete; consume no more of them")
        if not self._lock.acquire(blocking=False):
            raise AdjoinError("these results are being consumed already; let one thread consume them")
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
        """Consume no more of them, which ends the operator if they were not all."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()


class Operator(ABC):
    """Takes batches and puts batches out.

    Every method that returns an iterator does its work while the iterator is consumed; consume it
    before the next call. One that is left half-consumed ends the operator. No order of results is
    promised. An operator belongs to the process that made it: a fork of it has to make its own.

    Attributes:
        survives: Errors after which it can go on.
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
        """Counters since the start."""

    def close(self) -> None:
        """Give files, threads and memory back; in a fork of the process they are left to that one."""
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
        """What the work gives, while no other call is at work."""
        self._check_open()
        with self._turn:
            if self._busy:
                raise AdjoinError("results of the call before were not consumed; exhaust its iterator first")
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

    def _check_mapped(self) -> None:  # noqa: B027 (most operators have memory of their own)
        """Raise an error if memory is gone that would be touched next."""

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def _check_thread(self) -> None:
        if self._thread not in {None, threading.get_ident()}:
            raise AdjoinError("another thread consumes results of this operator at this moment; wait for it")

    def _check_open(self) -> None:
        if self._is_forked:
            raise AdjoinError("a process cannot use an operator from before its fork; make a new one")
        self._check_thread()
        if self._ended:
            raise AdjoinError("the operator has ended, after finish(), close() or an error; make a new one")
