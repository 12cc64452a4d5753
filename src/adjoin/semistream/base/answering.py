"""What happens to a stream row at the end, whichever algorithm it waited in."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import can_be_taken, no_rows, plain_columns
from adjoin.arrow.row_sizes import can_be_measured, sizes_of
from adjoin.errors import BudgetError, SchemaError
from adjoin.kernels.types import Array
from adjoin.memory.budget import MemoryBudget
from adjoin.operators.clock import Clock
from adjoin.semistream.base.buffers import Arrivals, Rows
from adjoin.semistream.base.matching import Matcher
from adjoin.semistream.base.output import Output
from adjoin.semistream.base.spec import JoinSpec
from adjoin.semistream.pages.resident import Residence


@dataclass
class Counts:
    """What has happened since the start."""

    rows_in: int = 0
    cache_hits: int = 0
    rows_unmatched: int = 0
    seconds_waiting_max: float = 0.0


class Answering:
    """Joins stream rows with pages in memory, and puts out those that are finished.

    Args:
        spec: The join.
        pages: What of the master is in memory.
        budget: The operator's budget.
        clock: Tells the time.
    """

    def __init__(self, spec: JoinSpec, pages: Residence, budget: MemoryBudget, clock: Clock) -> None:
        self._spec = spec
        self._pages = pages
        self._budget = budget
        self._clock = clock
        self.counts = Counts()

    def begin(self, stream: pa.Schema) -> None:
        """Prepare for rows with this schema, on the master version that is in memory."""
        pages, split = self._pages, self._pages.split
        schema = self._spec.output_schema(stream, pages.master.schema)
        for field in stream:
            if not can_be_taken(field.type) or not can_be_measured(field.type):
                raise SchemaError(
                    f"unsupported type {field.type} for column {field.name!r} of the stream; cast it to "
                    "numbers, strings, lists or structs"
                )
        self._spec.predicate.bounds(plain_columns(no_rows(stream)))
        layout = [pages.column(name) for name in self._spec.columns]
        keys = [pages.column(name) for name in self._spec.verified]
        self._output = Output(schema, pages.columns, layout, split.output_bytes, self._spec.orders)
        self._matcher = Matcher(self._spec, pages, keys, self._output, split.step_rows)

    def _rows_of(self, taken: Arrivals) -> tuple[Rows, Array | None]:
        """The rows with the keys they match, and which of them can match at all (None: every one)."""
        low, high, valid = self._spec.predicate.bounds(taken.batch)
        unmatched = np.zeros(len(low), bool)
        return Rows(taken.batch, taken.arrived, taken.due, low, high, unmatched, sizes_of(taken.batch)), valid

    def _answer(self, rows: Rows, chosen: Array, arrived: float | None = None) -> Iterator[pa.RecordBatch]:
        """These rows are finished: put out those without a match where the join wants them."""
        if len(chosen) == 0:
            return
        unmatched = chosen[~rows.matched[chosen]]
        self.counts.rows_unmatched += len(unmatched)
        if self._spec.keeps_unmatched and len(unmatched):
            yield from self._output.alone(rows, unmatched)
        waited = self._clock.now() - (rows.arrived if arrived is None else arrived)
        self.counts.seconds_waiting_max = max(self.counts.seconds_waiting_max, waited)

    def _no_room(self, wanted_bytes: int) -> BudgetError:
        enough = self._budget.total_bytes + 2 * wanted_bytes
        return BudgetError(
            f"rows that wait for pages find no room in memory={self._budget.total_bytes}; "
            f"give memory={enough} or more"
        )
