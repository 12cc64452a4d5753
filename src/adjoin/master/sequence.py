"""The sequence column: the types that have a lasting order, and conversion of values to one of them."""

import pyarrow as pa
import pyarrow.compute as pc

from adjoin.errors import OptionError, SchemaError
from adjoin.keys.casts import stored_type, widens
from adjoin.master.manifest import Manifest

SEQUENCE_COLUMN = "sequence"
"""Its name in the relation of latest changes; see `adjoin.master.latest`."""


def sequence_type(manifest: Manifest, schema: pa.Schema, column: str) -> pa.DataType:
    """The type in which values of this column are compared; it is fixed when a sequence is first used.

    Raises:
        OptionError: Earlier changes had another sequence column.
        SchemaError: There is no such column, or its type does not fit.
    """
    if column not in schema.names:
        raise SchemaError(f"changes lack the sequence column {column!r}; they have {schema.names}")
    given = stored_type(column, schema.field(column).type)
    widest = _widest(column, given)
    latest = manifest.latest
    if latest is None:
        return widest
    if latest.column != column:
        raise OptionError(
            f"sequence={column!r} cannot be compared with the sequence {latest.column!r} of earlier changes; "
            f"give sequence={latest.column!r}"
        )
    recorded = latest.relation.schema.field(SEQUENCE_COLUMN).type
    if not (widens(given, recorded) or widens(widest, recorded)):
        raise SchemaError(
            f"the sequence column {column!r} has type {given}, but the recorded values have type {recorded}; "
            f"cast it to {recorded}"
        )
    return recorded


def _widest(column: str, type_: pa.DataType) -> pa.DataType:
    """The widest type of the same kind, because later changes may have a wider one."""
    is_ = pa.types
    if is_.is_signed_integer(type_):
        return pa.int64()
    if is_.is_unsigned_integer(type_):
        return pa.uint64()
    if is_.is_floating(type_):
        return pa.float64()
    if is_.is_decimal(type_):
        return pa.decimal256(76, type_.scale) if type_.precision > 38 else pa.decimal128(38, type_.scale)
    if is_.is_date(type_):
        return pa.date32()
    if is_.is_timestamp(type_):
        return pa.timestamp("ns" if type_.unit == "ns" else "us", None if type_.tz is None else "UTC")
    if is_.is_string(type_) or is_.is_large_string(type_):
        return pa.string()
    if is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_fixed_size_binary(type_):
        return pa.binary()
    raise SchemaError(
        f"unsupported type {type_} for the sequence column {column!r}; "
        "cast it to an integer, decimal, float, date, timestamp, string or binary"
    )


def sequence_values(column: str, values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert values of the sequence column; SchemaError if one of them has no order."""
    if values.null_count:
        raise SchemaError(
            f"the sequence column {column!r} has {values.null_count} nulls, so the order of those changes is "
            "unknown; fill them, or drop those changes"
        )
    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    try:
        values = values.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"the sequence column {column!r} of type {values.type} cannot be cast to {type_} without loss "
            f"({error}); cast it to {type_} first"
        ) from error
    if pa.types.is_floating(type_):
        if pc.any(pc.is_nan(values)).as_py():
            raise SchemaError(
                f"the sequence column {column!r} has NaN, which has no order; drop those changes"
            )
        values = pc.add(values, 0.0)  # makes -0.0 the same as 0.0
    return values
