"""What every semi-stream operator can do: batch in, batches out; idle; a new master version; end."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa

from adjoin import arguments
from adjoin.errors import SchemaError
from adjoin.master.master import Master
from adjoin.operators.clock import Pause
from adjoin.operators.operator import Operator, Results


class SemiStreamJoin(Operator):
    """A stream joined with a master."""

    keeps_deadlines: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._stream_schema: pa.Schema | None = None

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch of the stream; put out what can be answered.

        Raises:
            SchemaError: The batch does not fit the join or the batches before; nothing was taken.
            BudgetError: A row finds no room in the memory; the message names what would do.
        """
        self._check_open()
        self._check_batch(batch)
        return self._alone(self._push(batch))

    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Let so many seconds pass on the operator's clock, in which nothing arrives.

        Without a deadline everything that waits is answered first, with one when it is due;
        `idle(0)` answers and goes on.
        """
        return self._alone(self._idle(arguments.seconds("seconds", seconds)))

    def refresh(self, master: Master) -> Iterator[pa.RecordBatch]:
        """Answer what was begun on the old version of the master, then go on with another."""
        self._check_open()
        self._check_master(master)
        return self._alone(self._refresh(master))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The stream has ended: answer all that waits."""
        return self._alone(self._finish())

    def run(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterator[pa.RecordBatch]:
        """Join a whole stream: batches, and pauses between them.

        With a deadline the source is read in a thread, so that rows are answered in time even if the next
        batch is late.
        """
        return Results(self._run(items))

    def _run(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterator[pa.RecordBatch]:
        self._check_open()
        for item in self._paced(items):
            if item is None or isinstance(item, Pause):
                yield from self.idle(item.seconds if item else 0)
            else:
                yield from self.push(item)
        yield from self.finish()

    def _paced(self, items: Iterable[pa.RecordBatch | Pause]) -> Iterable[pa.RecordBatch | Pause | None]:
        """The items; None when rows must be answered before the next one is there."""
        return items

    @abstractmethod
    def schema_of(self, stream: pa.Schema) -> pa.Schema:
        """The schema of the results for a stream with this schema."""

    @abstractmethod
    def _check_master(self, master: Master) -> None: ...

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
        self._check_stream(batch.schema)

    def _check_stream(self, schema: pa.Schema) -> None:
        if self._stream_schema is None:
            self._begin(schema)
            self._stream_schema = schema
        elif not schema.equals(self._stream_schema):
            raise SchemaError(
                f"a batch has the schema {schema.names}, the ones before had "
                f"{self._stream_schema.names} (or other types); one stream has one schema"
            )
