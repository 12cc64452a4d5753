"""Two inputs of which all results are returned at once: outer, semi and anti joins, a bound on time."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.encodings import plain_type
from adjoin.errors import OptionError
from adjoin.keys.predicate import Distance
from adjoin.operators.on import On, result_batch
from adjoin.streamjoin.base.spec import HOWS, LEFT, RIGHT, TwoInputs
from adjoin.streamjoin.complete.time_bound import Span, TimeBound
from adjoin.streamjoin.memory.tuples import TIME


class CompleteInputs(TwoInputs):
    """The join of two inputs, with rows that have no partner and a bound on time.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: The key.
        within: The right key is at most this far from the left key.
        between: The right key lies between these two columns of the left.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns of the results; all by default.
        how: One of `HOWS`.
        time: The column of each side with its times; None: no bound on time.
        before: How long before a left row its partners may lie; None: any time.
        after: How long after it they may lie; None: any time.

    Attributes:
        bound: The bound on time.
        preserved: Of each side, whether rows without a partner are results.
        marked: Of each side, whether it matters which rows have had a match.
        leaves: Of each side, whether a row leaves with its first match.
        emits_pairs: Whether pairs of rows that match are results.
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        how: str = "inner",
        time: tuple[str, str] | None = None,
        before: Span | None = None,
        after: Span | None = None,
    ) -> None:
        if arguments.string("how", how) not in HOWS:
            raise OptionError(f"how={how!r} is not one of {', '.join(HOWS)}")
        super().__init__(left, right, on, within, between, suffix, columns, how=how)
        if time is None and (before is not None or after is not None):
            raise OptionError("before= and after= bound the times of two columns; name them with time=")
        self.bound = None if time is None else TimeBound(self.stored, time, before, after)
        bound = self.bound
        self.described: dict[str, Any] = self.described | {
            "results": "complete",
            "how": how,
            "time": None if bound is None else [*bound.columns, bound.before, bound.after],
        }
        if bound is not None:
            self.stored = [pa.schema([pa.field(TIME, pa.int64(), False), *schema]) for schema in self.stored]
        self.preserved = how in {"left", "full", "anti"}, how in {"right", "full"}
        self.marked = self.preserved[LEFT] or how == "semi", self.preserved[RIGHT]
        self.leaves = how in {"semi", "anti"}, False
        self.emits_pairs = how not in {"semi", "anti"}
        self._types = [plain_type(field.type) for field in self.schema]
        self._recast = {
            number
            for number, (side, name) in enumerate(self._sources)
            if side == LEFT and name in self._shared and how in {"right", "full"}
        }

    def result(self, first: int, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of this many results from the columns of one side, followed by those of the other."""
        if first == RIGHT:
            cut = len(self.shown[RIGHT])
            columns = columns[cut:] + columns[:cut]
        return self._batch(columns, rows)

    def alone(self, side: int) -> list[str]:
        """The columns of a side that its rows without a partner need."""
        names = {name for source, name in self._sources if source == side}
        if side == RIGHT:
            names |= {self._sources[number][1] for number in self._recast}
        return [name for name in self.schemas[side].names if name in names]

    def unpaired(self, side: int, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """Results that are rows of one side, from the columns that `alone` names; the others are null."""
        given = dict(zip(self.alone(side), columns, strict=True))
        found = []
        for number, (source, name) in enumerate(self._sources):
            if source == side or number in self._recast:
                found.append(given[name])
            else:
                found.append(pa.nulls(rows, self._types[number]))
        return self._batch(found, rows)

    def _batch(self, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """Results from plain values of all columns."""
        columns = [
            column.cast(self._types[number])
            if number in self._recast and not column.type.equals(self._types[number])
            else column
            for number, column in enumerate(columns)
        ]
        return result_batch(columns, self.schema, rows, self.orders, self._sources.__getitem__)
