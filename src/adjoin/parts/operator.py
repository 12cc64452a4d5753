"""What every operator is: one call at a time, and an end."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import pyarrow as pa

from adjoin.errors import AdjoinError


class Operator(ABC):
    """Takes batches and puts batches out.

    Every method that returns an iterator does its work while the iterator is consumed; consume it
    before the next call. One that is left half-consumed ends the operator. No order of results is
    promised.

    Attributes:
        survives: Errors after which it can go on.
    """

    survives: ClassVar[tuple[type[AdjoinError], ...]] = ()

    def __init__(self) -> None:
        self._busy = False
        self._ended = False
        self._failed = False
        self._rows_out = 0

    @abstractmethod
    def metrics(self) -> dict[str, Any]:
        """Counters since the start."""

    @abstractmethod
    def close(self) -> None:
        """Give files, threads and memory back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alone(self, work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._busy:
            raise AdjoinError("results of the call before were not consumed; exhaust its iterator first")
        self._check_open()
        self._busy = True
        return self._consume(work)

    def _consume(self, work: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            self._check_mapped()
            for batch in work:
                self._rows_out += batch.num_rows
                yield batch
                self._check_open()
                self._check_mapped()
        except BaseException as error:
            if not isinstance(error, self.survives):
                self._ended = True
                self._failed = True
            raise
        finally:
            self._busy = False

    def _check_mapped(self) -> None:  # noqa: B027 (most operators have memory of their own)
        """Raise an error if memory is gone that would be touched next."""

    def _check_open(self) -> None:
        if self._ended:
            raise AdjoinError("the operator has ended, after finish(), close() or an error; make a new one")
