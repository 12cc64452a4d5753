"""What two inputs are joined on: the join condition and the columns of the results, validated once."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import can_be_taken, no_rows, plain_columns, plain_schema, take_rows
from adjoin.arrow.encodings import Orders, has_order, plain_type
from adjoin.arrow.row_sizes import can_be_measured
from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.hashing import scatter
from adjoin.kernels.sorting import argsort_keys
from adjoin.kernels.types import Array
from adjoin.keys.casts import widens
from adjoin.keys.codec import KeyCodec
from adjoin.keys.predicate import Between, Bounds, Distance, Equality, Predicate, Within
from adjoin.operators.on import (
    On,
    check_columns,
    check_distinct,
    chosen_columns,
    result_batch,
    result_schema,
    with_suffix,
)
from adjoin.streamjoin.memory.tuples import KeyIntervals

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
HOWS = ("inner", "left", "right", "full", "semi", "anti")
_OURS = "_adjoin_"


class Condition:
    """When rows match: a left row has an interval of keys, a right row a single key that must lie in it.

    Args:
        right: The schema of the right side.
        pairs: The key: columns of the left, each with one of the right.
        within: The right key is at most this far from the left key.
        between: The right key lies between these two columns of the left.

    Attributes:
        is_equality: Whether left intervals are single keys.
        are_points: Of each side, whether its intervals are single keys.
    """

    def __init__(
        self,
        right: pa.Schema,
        pairs: Sequence[tuple[str, str]],
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
    ) -> None:
        keys = tuple(key for _, key in pairs)
        self._codec = KeyCodec.of(plain_schema(right), keys)
        point = Equality(self._codec, keys)
        self._sides: tuple[Predicate, Predicate] = (self._interval(pairs, within, between), point)
        self._distance = within
        self.is_equality = self._sides[LEFT].is_equality
        self.are_points = (self.is_equality, True)

    def _interval(
        self, pairs: Sequence[tuple[str, str]], within: Distance | None, between: tuple[str, str] | None
    ) -> Predicate:
        if within is not None and between is not None:
            raise OptionError("give within= or between=, not both")
        if between is not None:
            return Between(self._codec, between)
        if within is not None:
            if len(pairs) > 1:
                raise OptionError(f"within={within!r} takes one key, on= names {len(pairs)}")
            return Within(self._codec, pairs[0][0], within)
        return Equality(self._codec, tuple(column for column, _ in pairs))

    def bounds(self, side: int, batch: pa.RecordBatch) -> Bounds:
        """Encoded lower and upper ends of rows in plain types, and which rows have a key (None: all)."""
        low, high, valid = self._sides[side].bounds(batch)
        if not self.are_points[side]:
            valid = low <= high if valid is None else valid & (low <= high)
        return low, high, valid

    def columns(self, side: int) -> tuple[str, ...]:
        """The key columns of a side."""
        return self._sides[side].columns

    def attribute(self, side: int) -> tuple[object, ...]:
        """What the keys of a side depend on: if it is equal for two conditions, so are the keys."""
        kind = type(self._sides[side]).__name__
        return kind, self.columns(side), self._codec.types, None if self.are_points[side] else self._distance

    @property
    def verifies(self) -> bool:
        """Whether rows with equal encoded keys may still differ, because keys are hashed."""
        return not self._codec.ordered

    def same_keys(self, left: list[pa.Array], right: list[pa.Array]) -> Array:
        """Whether keys with equal hashes are equal."""
        return self._codec.same(self._codec.conform(left, exact=False), right)


class TwoInputs:
    """The join of two inputs.

    Args:
        left: Schema of the left input.
        right: Schema of the right input.
        on: The key.
        within: The right key is at most this far from the left key.
        between: The right key lies between these two columns of the left.
        suffix: Appended to a right column whose name the left has too.
        columns: Columns of the results; all by default.
        scatters: Whether keys are scattered one-to-one, so that a range of them is a hash partition.
        how: One of `HOWS`: which rows without a partner are results, or whether only left rows are.

    Attributes:
        names: The names of the inputs.
        schemas: Their schemas.
        stored: The columns of each side that are stored, in plain types.
        schema: The schema of the results.
        shown: The columns of each side that the results have.
        condition: When rows match.
        are_points: For the join attribute of each side, whether its intervals are single keys.
        described: The condition in words, by argument.
        orders: How ordered dictionaries are ordered, by side and column.
    """

    names: Sequence[str] = SIDES

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: On,
        within: Distance | None = None,
        between: tuple[str, str] | None = None,
        suffix: str = "_right",
        columns: Sequence[str] | None = None,
        *,
        scatters: bool = False,
        how: str = "inner",
    ) -> None:
        self.orders = Orders()
        self.how = how
        arguments.string("suffix", suffix)
        self.schemas: Sequence[pa.Schema] = (left, right)
        for side, schema in zip(SIDES, self.schemas, strict=True):
            check_input(side, schema)
        pairs = _key_pairs(on, left, right, between)
        self.described = {
            "on": [[column, key] for key, column in pairs.items()],
            "within": None if within is None else repr(within),
            "between": None if between is None else list(between),
        }
        self.condition = Condition(right, [(column, key) for key, column in pairs.items()], within, between)
        self.are_points: Sequence[Sequence[bool]] = [[points] for points in self.condition.are_points]
        self._scatters = scatters
        self.stored: Sequence[pa.Schema] = [plain_schema(schema) for schema in self.schemas]
        self._shared = [key for key, column in pairs.items() if key == column and self.condition.is_equality]
        self.shown = [list(left.names), [name for name in right.names if name not in self._shared]]
        if how in {"semi", "anti"}:
            self.shown[RIGHT] = []
        self.schema = self._all_columns(suffix)
        if columns is not None:
            self._choose(columns)
        self._sources = [(side, name) for side in (LEFT, RIGHT) for name in self.shown[side]]
        for number, schema in enumerate(self.schemas):
            self.keyed(number, no_rows(schema))

    def _all_columns(self, suffix: str) -> pa.Schema:
        """All columns of the results; those of a side that a result may lack can be null."""
        left, right = self.schemas
        fields = [left.field(name) for name in self.shown[LEFT]]
        if self.how in {"right", "full"}:
            fields = [
                _shared_field(field, right) if field.name in self._shared else field.with_nullable(True)
                for field in fields
            ]
        others = [with_suffix(right.field(name), left.names, suffix) for name in self.shown[RIGHT]]
        if self.how in {"left", "full"}:
            others = [field.with_nullable(True) for field in others]
        return result_schema([*fields, *others], "choose another suffix=")

    def _choose(self, columns: Sequence[str]) -> None:
        """Keep these columns of the results."""
        chosen = chosen_columns(columns, self.schema)
        named = iter(self.schema.names)
        self.shown = [[name for name in names if next(named) in chosen] for names in self.shown]
        self.schema = pa.schema([self.schema.field(name) for name in chosen])

    def keyed(self, side: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, KeyIntervals]:
        """The rows that have a key, in plain types and in the order of their keys; and the keys."""
        plain = plain_columns(batch)
        low, high, valid = self.condition.bounds(side, plain)
        if self._scatters:
            low = high = scatter(low)
        return in_key_order(plain, [(low, high, valid)])

    def result(self, first: int, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of this many results from the columns of one side, followed by those of the other."""
        if first == RIGHT:
            cut = len(self.shown[RIGHT])
            columns = columns[cut:] + columns[:cut]
        return result_batch(columns, self.schema, rows, self.orders, self._sources.__getitem__)


def _shared_field(field: pa.Field, right: pa.Schema) -> pa.Field:
    """A key column that stands for both sides, in the type that holds the keys of both."""
    other = right.field(field.name)
    one_type, other_type = plain_type(field.type), plain_type(other.type)
    nullable = field.nullable or other.nullable
    if field.type.equals(other.type) and not has_order(field.type):
        return field.with_nullable(nullable)
    for wide, narrow in ((one_type, other_type), (other_type, one_type)):
        if widens(narrow, wide):
            return pa.field(field.name, wide, nullable)
    raise SchemaError(
        f"key column {field.name!r} is {field.type} on the left and {other.type} on the right, and no "
        "result column can hold both; cast one of them, or rename it and give on= a dictionary"
    )


def in_key_order(plain: pa.RecordBatch, bounds: Sequence[Bounds]) -> tuple[pa.RecordBatch, KeyIntervals]:
    """The rows that have a key of every attribute, in the order of the first one; and their keys."""
    low, valids = bounds[0][0], [valid for _, _, valid in bounds if valid is not None]
    if all(valid.all() for valid in valids):
        order: Array = argsort_keys(low)
    else:
        rows = np.flatnonzero(np.logical_and.reduce(valids))
        order = rows[argsort_keys(low[rows])]
    keys = []
    for low, high, _ in bounds:
        taken = low[order]
        keys.append((taken, taken if high is low else high[order]))
    return take_rows(plain, order), keys


def check_input(name: str, schema: pa.Schema) -> None:
    """Raise a SchemaError if an input has columns that cannot be joined."""
    if not isinstance(schema, pa.Schema):
        raise SchemaError(f"the {name} input is described by a pyarrow.Schema, not by {schema!r:.100}")
    check_distinct(schema, f"the {name} input")
    for field in schema:
        if field.name.startswith(_OURS):
            raise SchemaError(
                f"column {field.name!r} of the {name} input has the reserved prefix {_OURS!r}; rename it"
            )
        if not can_be_taken(field.type) or not can_be_measured(field.type):
            raise SchemaError(
                f"unsupported type {field.type} for column {field.name!r} of the {name} input; cast it to "
                "numbers, strings, lists or structs"
            )


def _key_pairs(on: On, left: pa.Schema, right: pa.Schema, between: tuple[str, str] | None) -> dict[str, str]:
    """The left column of every key column of the right."""
    pairs = arguments.key_pairs(on)
    if not pairs:
        raise OptionError(f"on={on!r} must name at least one key, each once")
    if between is not None:
        arguments.names("between", between)
    if between is not None and (len(between) != 2 or len(pairs) != 1):
        raise OptionError(f"between={between!r} must be two columns of the left, and on= the right's key")
    check_columns(left, between or pairs.values(), "the left input")
    check_columns(right, pairs, "the right input")
    return pairs
