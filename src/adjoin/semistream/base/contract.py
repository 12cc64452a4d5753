"""The contract of semi-stream operators: batches in, batches out, pauses, new master versions, an end."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa

from adjoin import arguments
from adjoin.errors import SchemaError
from adjoin.master.master import Master
from adjoin.operators.clock import Pause
from adjoin.operators.operator import Operator, Results


class SemiStreamOperator(Operator):
    """Joins a stream with a master.

    The public methods check their arguments and make sure that one call runs at a time; the work itself is in
    the methods with an underscore.

    Attributes:
        keeps_deadlines: Whether the operator has a `deadline` option.
    """

    keeps_deadlines: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._stream_schema: pa.Schema | None = None

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch of the stream; return the results that are available.

        Raises:
            SchemaError: The batch does not fit the join or the batches before it; nothing was taken.
            BudgetError: A row does not fit in memory; the message names the memory that is enough.
        """
        self._check_open()
        self._check_batch(batch)
        return self._alone(self._push(batch))

    @abstractmethod
    def offer(self, batch: pa.RecordBatch) -> bool:
        """Put rows into the input buffer; returns False if there is no room.

        Unlike `push`, this can be called while results are being consumed. Rows in the input buffer take at
        most half of the memory that rows can have; the other half is for pending rows. Nothing is taken once
        `finish` has been called.
        """

    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Let this many seconds pass on the operator's clock without input.

        Without a deadline, all pending rows are answered at once; with a deadline, each when it is due.
        `idle(0)` answers what has to be answered and returns.
        """
        return self._alone(self._idle(arguments.seconds("seconds", seconds)))

    def refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        """Answer pending rows against the old version of the master, then continue with this one."""
        self._check_open()
        self.check_master(master)
        return self._alone(self._refresh(master))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the stream: answer all pending rows."""
        return self._alone(self._finish())

    def run(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterator[pa.RecordBatch]:
        """Join a whole stream of batches and pauses.

        With a deadline, a thread reads the source, so that rows are answered in time even if the next batch
        is late.
        """
        return Results(self._run(items))

    def _run(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterator[pa.RecordBatch]:
        self._check_open()
        for item in self.paced(items):
            if item is None or isinstance(item, Pause):
                yield from self.idle(item.seconds if item else 0)
            else:
                yield from self.push(item)
        yield from self.finish()

    def paced(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterable[pa.RecordBatch | Pause | None]:
        """The items, with a None wherever rows must be answered before the next item arrives."""
        return items

    @abstractmethod
    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""

    def expect(self, stream: pa.Schema) -> None:
        """Prepare for batches with this schema, or raise a SchemaError if it differs from the stream's."""
        if self._stream_schema is None:
            self._begin(stream)
            self._stream_schema = stream
        elif not stream.equals(self._stream_schema):
            raise SchemaError(
                f"a batch has the schema {stream.names}, the ones before had "
                f"{self._stream_schema.names} (or other types); one stream has one schema"
            )

    @abstractmethod
    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a BudgetError if a row does not fit in memory."""

    @abstractmethod
    def check_master(self, master: Master) -> None:
        """Raise an error unless `refresh` can continue with this master."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Raise AssertionError if a structure contradicts itself or its account."""

    @abstractmethod
    def _begin(self, stream: pa.Schema) -> None: ...

    @abstractmethod
    def _push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _refresh(self, master: Master) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _finish(self) -> Iterator[pa.RecordBatch]: ...

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaError(f"push takes a pyarrow.RecordBatch, got {type(batch).__name__}")
        self.expect(batch.schema)
        self.check_rows(batch)
