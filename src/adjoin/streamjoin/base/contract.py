"""What every join of streams can do: batches in, batches out; idle; an input ends; all end."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from adjoin import arguments
from adjoin.errors import AdjoinError, OptionError, SchemaError, StorageError
from adjoin.operators.clock import Pause
from adjoin.operators.operator import Operator, Results

Arrival = tuple[str, pa.RecordBatch | None] | Pause
"""The name of an input with a batch of it, or with None where it ends; or a time in which nothing comes."""


class StreamJoin(Operator):
    """Streams joined.

    Where the disk has no room for what memory cannot hold, a `StorageError` says so, and the operator can go
    on once there is room: what was pushed has been taken.

    Args:
        names: The names of the inputs.
        schemas: Their schemas.
        schema: The schema of the results.
    """

    survives = (StorageError,)

    def __init__(self, names: Sequence[str], schemas: Sequence[pa.Schema], schema: pa.Schema) -> None:
        super().__init__()
        self._names = tuple(names)
        self._schemas = tuple(schemas)
        self.schema = schema
        self._has_ended = [False] * len(self._names)

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch of the input with this name; put out what it matches so far."""
        self._check_open()
        return self._alone(self._push(self._checked(side, batch), batch))

    def end(self, side: str) -> None:
        """Nothing more will come from this input."""
        self._check_open()
        self._has_ended[self._number(side)] = True

    def idle(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Let so many seconds pass on the operator's clock, in which nothing arrives."""
        return self._alone(self._idle(arguments.seconds("seconds", seconds)))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All inputs have ended: put out all that is missing."""
        return self._alone(self._end_all())

    def _end_all(self) -> Iterator[pa.RecordBatch]:
        self._has_ended[:] = [True] * len(self._names)
        yield from self._finish()

    def run(self, arrivals: Iterable[Arrival]) -> Iterator[pa.RecordBatch]:
        """Join whole inputs: `(name, batch)`, `(name, None)` where one ends, or a pause."""
        return Results(self._run(arrivals))

    def _run(self, arrivals: Iterable[Arrival]) -> Iterator[pa.RecordBatch]:
        self._check_open()
        for item in self._paced(arrivals):
            if item is None:
                yield from self._alone(self._waited())
            elif isinstance(item, Pause):
                yield from self.idle(item.seconds)
            elif not isinstance(item, tuple) or len(item) != 2:
                raise OptionError(f"{item!r:.100} is no pair of an input's name and a batch, or a Pause")
            elif item[1] is None:
                self.end(item[0])
            else:
                yield from self.push(item[0], item[1])
        yield from self.finish()

    def _paced(self, arrivals: Iterable[Arrival]) -> Iterable[Arrival | None]:
        """The items; None when there is something to do before the next one is there."""
        return arrivals

    @abstractmethod
    def _push(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _idle(self, seconds: float) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _waited(self) -> Iterator[pa.RecordBatch]:
        """What is done when `_paced` gave None."""

    @abstractmethod
    def _finish(self) -> Iterator[pa.RecordBatch]: ...

    def _checked(self, side: str, batch: pa.RecordBatch) -> int:
        number = self._number(side)
        if not isinstance(batch, pa.RecordBatch):
            raise SchemaError(f"push takes a pyarrow.RecordBatch, got {type(batch).__name__}")
        if not batch.schema.equals(self._schemas[number]):
            raise SchemaError(
                f"a batch of the {side} input has the schema {batch.schema.names}, it was declared with "
                f"{self._schemas[number].names} (or other types)"
            )
        if self._has_ended[number]:
            raise AdjoinError(f"the {side} input has ended; nothing more can come from it")
        return number

    def _number(self, side: str) -> int:
        if side not in self._names:
            raise OptionError(f"side={side!r} is not one of {', '.join(self._names)}")
        return self._names.index(side)
