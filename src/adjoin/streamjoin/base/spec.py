"""What is to be joined with what, checked once at the door."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import (
    batch_of,
    can_be_taken,
    no_rows,
    plain_columns,
    take_rows,
)
from adjoin.arrow.encodings import Orders, declared_type, declared_values
from adjoin.arrow.row_sizes import can_be_measured
from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.hashing import scatter
from adjoin.kernels.types import Array
from adjoin.keys.predicate import Distance
from adjoin.streamjoin.base.condition import LEFT, RIGHT, Condition

On = str | Sequence[str] | Mapping[str, str]
SIDES = ("left", "right")
_OURS = "_adjoin_"


@dataclass(frozen=True)
class Keyed:
    """Rows of one side with their keys, those without a key left out.

    Attributes:
        batch: The rows, in plain types.
        low: Least key of the other side that each matches, encoded.
        high: Greatest key; the same array where these are the same keys.
    """

    batch: pa.RecordBatch
    low: Array
    high: Array

    def __len__(self) -> int:
        return len(self.low)

    def take(self, rows: Array) -> "Keyed":
        """These rows."""
        low = self.low[rows]
        high = low if self.high is self.low else self.high[rows]
        return Keyed(take_rows(self.batch, rows), low, high)

    def scattered(self) -> "Keyed":
        """The same rows with keys in an order by lot, the same for the same."""
        low = scatter(self.low)
        return Keyed(self.batch, low, low)


class TwoInputs:
    """A checked description of the join of two inputs.

    A row of the left has an interval of keys, a row of the right one key: it matches the left rows whose
    intervals it lies in.

    Attributes:
        schema: The schema of the results.
        shown: Of each side the columns that are put out.
        condition: When rows match.
        described: The same in words, by argument.
        orders: What ordered dictionaries are ordered by; their columns by side and name.
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
    ) -> None:
        self.orders = Orders()
        arguments.string("suffix", suffix)
        self._schemas = (left, right)
        for side, schema in zip(SIDES, self._schemas, strict=True):
            check_columns(side, schema)
        pairs = _key_pairs(on, left, right, between)
        self.described = {
            "on": [[column, key] for key, column in pairs.items()],
            "within": None if within is None else repr(within),
            "between": None if between is None else list(between),
        }
        self.condition = Condition(right, [(column, key) for key, column in pairs.items()], within, between)
        same = {key for key, column in pairs.items() if key == column}
        if not self.condition.is_equality:
            same = set()
        self.shown = (list(left.names), [name for name in right.names if name not in same])
        self.schema = self._output_schema(suffix)
        if columns is not None:
            self._keep_only(columns)
        for number, schema in enumerate(self._schemas):
            self.keyed(number, no_rows(schema))

    def _output_schema(self, suffix: str) -> pa.Schema:
        left, right = self._schemas
        fields = [left.field(name) for name in self.shown[LEFT]]
        for name in self.shown[RIGHT]:
            field = right.field(name)
            fields.append(field.with_name(name + suffix) if name in left.names else field)
        names = [field.name for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"two output columns would be named {name!r}; choose another suffix=")
        return pa.schema([field.with_type(declared_type(field.type)) for field in fields])

    def _keep_only(self, columns: Sequence[str]) -> None:
        if any(name not in self.schema.names for name in arguments.names("columns", columns)):
            raise OptionError(f"columns={columns!r} must be a list of some of {self.schema.names}")
        named = dict(
            zip(
                self.schema.names,
                [(side, name) for side in (LEFT, RIGHT) for name in self.shown[side]],
                strict=True,
            )
        )
        chosen = [name for name in self.schema.names if name in columns]
        self.shown = tuple(  # type: ignore[assignment]
            [named[name][1] for name in chosen if named[name][0] == side] for side in (LEFT, RIGHT)
        )
        self.schema = pa.schema([self.schema.field(name) for name in chosen])

    def keyed(self, side: int, batch: pa.RecordBatch) -> Keyed:
        """The rows of a batch that have a key."""
        plain = plain_columns(batch)
        low, high, valid = self.condition.bounds(side, plain)
        if valid is None or valid.all():
            return Keyed(plain, low, high)
        return Keyed(plain, low, high).take(np.flatnonzero(valid))

    def result(self, first: int, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of so many results from the columns of one side, then those of the other."""
        if first == RIGHT:
            cut = len(self.shown[RIGHT])
            columns = columns[cut:] + columns[:cut]
        sources = [(side, name) for side in (LEFT, RIGHT) for name in self.shown[side]]
        arrays = [
            declared_values(column, field.type, self.orders, source)
            for column, field, source in zip(columns, self.schema, sources, strict=True)
        ]
        return batch_of(arrays, self.schema, rows)


def check_columns(side: str, schema: pa.Schema) -> None:
    """Raise a SchemaError if an input has columns that cannot pass."""
    if not isinstance(schema, pa.Schema):
        raise SchemaError(f"the {side} input is described by a pyarrow.Schema, not by {schema!r:.100}")
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SchemaError(f"the {side} input has several columns named {min(repeated)!r}; rename them")
    for field in schema:
        if field.name.startswith(_OURS):
            raise SchemaError(f"the {side} input's column {field.name!r} begins as ours do; rename it")
        if not can_be_taken(field.type) or not can_be_measured(field.type):
            raise SchemaError(
                f"unsupported type {field.type} for column {field.name!r} of the {side} input; cast it to "
                "numbers, strings, lists or structs"
            )


def _key_pairs(on: On, left: pa.Schema, right: pa.Schema, between: tuple[str, str] | None) -> dict[str, str]:
    """The left column of every key column of the right."""
    pairs = arguments.key_pairs(on)
    if not pairs:
        raise OptionError(f"on={on!r} must name at least one key, each once")
    if between is not None:
        arguments.names("between", between)
    wanted = {"right": list(pairs), "left": list(between or pairs.values())}
    if between is not None and (len(between) != 2 or len(pairs) != 1):
        raise OptionError(f"between={between!r} must be two columns of the left, and on= the right's key")
    for side, schema in (("left", left), ("right", right)):
        missing = [name for name in wanted[side] if name not in schema.names]
        if missing:
            raise SchemaError(f"the {side} input has no column {missing[0]!r}; it has {schema.names}")
    return pairs
