"""The columns that `on=`, `columns=` and `suffix=` name: keys, and columns of the results."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.copying import batch_of
from adjoin.arrow.encodings import Orders, declared_type, declared_values
from adjoin.errors import OptionError, SchemaError

On = str | Sequence[str] | Mapping[str, str]
"""Key columns: a name, a list of names, or `{"column of this side": "column of the other side"}`."""


def check_distinct(schema: pa.Schema, owner: str) -> None:
    """Raise a SchemaError if the owner, such as "the stream", has two columns of the same name."""
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SchemaError(f"{owner} has several columns named {min(repeated)!r}; rename them")


def check_columns(schema: pa.Schema, names: Iterable[str], owner: str) -> None:
    """Raise a SchemaError if the owner has no column of one of these names."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise SchemaError(f"{owner} has no column {missing[0]!r}; it has {schema.names}")


def with_suffix(field: pa.Field, taken: Sequence[str], suffix: str) -> pa.Field:
    """A field, renamed if its name is taken."""
    return field.with_name(field.name + suffix) if field.name in taken else field


def result_schema(fields: Sequence[pa.Field], cure: str) -> pa.Schema:
    """The schema of results with these fields, in the types in which they are returned.

    Raises:
        SchemaError: Two have the same name; `cure` says what to do about it.
    """
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"two output columns would be named {name!r}; {cure}")
    return pa.schema([field.with_type(declared_type(field.type)) for field in fields])


def chosen_columns(columns: Any, schema: pa.Schema) -> list[str]:
    """The names that `columns=` chooses from a result schema, in the order of the schema."""
    names = arguments.names("columns", columns)
    if any(name not in schema.names for name in names):
        raise OptionError(f"columns={columns!r} must be a list of some of {schema.names}")
    return [name for name in schema.names if name in names]


def result_batch(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    rows: int,
    orders: Orders,
    source: Callable[[int], tuple[Hashable, ...]],
) -> pa.RecordBatch:
    """Results from plain values of their columns, in the declared types.

    Args:
        columns: The values.
        schema: The schema of the results.
        rows: How many there are; a result may have no columns.
        orders: How ordered dictionaries are ordered.
        source: The path in `orders` of the column with this number.
    """
    declared = [
        declared_values(column, field.type, orders, source(number))
        for number, (column, field) in enumerate(zip(columns, schema, strict=True))
    ]
    return batch_of(declared, schema, rows)
