"""Which types become which without loss, and the types a master stores."""

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from adjoin.errors import SchemaError

_UNITS = ("s", "ms", "us", "ns")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT_BITS = {16: 11, 32: 24, 64: 53}  # integers of so many bits are exact in a float of so many


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True if every value of type `given` is a value of type `wanted` with the same meaning."""
    is_ = pa.types
    if given.equals(wanted):
        return True
    if is_.is_integer(given):
        return _integer_widens(given, wanted)
    if is_.is_floating(given):
        return bool(is_.is_floating(wanted) and given.bit_width <= wanted.bit_width)
    if is_.is_decimal(given):
        return bool(is_.is_decimal(wanted) and _digits_fit(given.precision, given.scale, wanted))
    if is_.is_timestamp(given):
        same_zone = is_.is_timestamp(wanted) and (given.tz is None) == (wanted.tz is None)
        return bool(same_zone and _finer(given, wanted))
    if is_.is_duration(given):
        return bool(is_.is_duration(wanted) and _finer(given, wanted))
    if is_.is_time(given):
        return bool(is_.is_time(wanted) and _finer(given, wanted))
    return _text_kind(given) is not None and _text_kind(given) == _text_kind(wanted)


def is_comparable(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a value of type `given` either is a value of type `wanted` or equals none."""
    is_ = pa.types
    if is_.is_decimal(given) and is_.is_integer(wanted):
        return True
    if is_.is_timestamp(given) and is_.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if _text_kind(given) == "bytes" and is_.is_fixed_size_binary(wanted):
        return True
    families = (is_.is_integer, is_.is_floating, is_.is_decimal, is_.is_duration, is_.is_time, is_.is_date)
    return widens(given, wanted) or any(family(given) and family(wanted) for family in families)


def equal_values(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column in a type with which it `is_comparable`; null where no value of that type is equal."""
    # Arrow rounds floats without a word; of all other types it says when a value does not fit.
    if widens(column.type, type_) or not pa.types.is_floating(type_):
        with suppress(pa.ArrowInvalid):
            return column.cast(type_)
    column = pc.if_else(_has_equal(column, type_), column, pa.scalar(None, column.type))
    return column.cast(type_)


def _has_equal(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(type_):
        return pc.equal(pc.binary_length(column), type_.byte_width)
    there_and_back = column.cast(type_, safe=False).cast(column.type, safe=False)
    is_equal = pc.equal(there_and_back, column)
    if pa.types.is_floating(type_):
        return pc.or_(is_equal, pc.is_nan(column))
    if pa.types.is_unsigned_integer(type_):
        return pc.and_(is_equal, pc.greater_equal(column, pa.scalar(0, column.type)))
    return is_equal


def _integer_widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    is_ = pa.types
    unsigned = is_.is_unsigned_integer(given)
    if is_.is_integer(wanted):
        if unsigned == is_.is_unsigned_integer(wanted):
            return bool(given.bit_width <= wanted.bit_width)
        return bool(unsigned and given.bit_width < wanted.bit_width)
    if is_.is_floating(wanted):
        return bool(given.bit_width <= _EXACT_BITS[wanted.bit_width])
    return bool(is_.is_decimal(wanted) and _digits_fit(_DIGITS[given.bit_width], 0, wanted))


def _digits_fit(precision: int, scale: int, wanted: pa.DataType) -> bool:
    return bool(scale <= wanted.scale and precision - scale <= wanted.precision - wanted.scale)


def _finer(given: pa.DataType, wanted: pa.DataType) -> bool:
    return _UNITS.index(given.unit) <= _UNITS.index(wanted.unit)


def _text_kind(type_: pa.DataType) -> str | None:
    is_ = pa.types
    if is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_):
        return "text"
    if is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_binary_view(type_):
        return "bytes"
    return None


def stored_type(name: str, type_: pa.DataType, nested: bool = False) -> pa.DataType:
    """The plain type in which a master keeps a column of this type, or a SchemaError."""
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        if not nested and stored_type(name, type_.storage_type, True).equals(type_.storage_type):
            return type_
        raise SchemaError(f"column {name!r} has type {type_} inside another; cast it to {type_.storage_type}")
    if is_.is_dictionary(type_) or is_.is_run_end_encoded(type_):
        return stored_type(name, type_.value_type, nested)
    if is_.is_string_view(type_):
        return pa.string()
    if is_.is_binary_view(type_):
        return pa.binary()
    if is_.is_union(type_):
        raise SchemaError(f"column {name!r} has type {type_}; unions cannot be stored: split it into columns")
    return _stored_nested(name, type_) if type_.num_fields else type_


def _stored_nested(name: str, type_: pa.DataType) -> pa.DataType:
    is_ = pa.types
    fields = [type_.field(at) for at in range(type_.num_fields)]
    if is_.is_map(type_):
        key, item = stored_field(name, type_.key_field), stored_field(name, type_.item_field)
        return pa.map_(key, item, keys_sorted=type_.keys_sorted)
    plain = [stored_field(name, field) for field in fields]
    if is_.is_struct(type_):
        return pa.struct(plain)
    if is_.is_fixed_size_list(type_):
        return pa.list_(plain[0], type_.list_size)
    if is_.is_large_list(type_):
        return pa.large_list(plain[0])
    if is_.is_list(type_):
        return pa.list_(plain[0])
    raise SchemaError(f"column {name!r} has type {type_}, which cannot be stored; cast it to a list")


def texts_as_bytes(type_: pa.DataType) -> pa.DataType:
    """The type whose values lie in memory in the same way, with binaries in place of texts."""
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return texts_as_bytes(type_.storage_type)
    if is_.is_string(type_):
        return pa.binary()
    if is_.is_large_string(type_):
        return pa.large_binary()
    fields = [type_.field(at) for at in range(type_.num_fields)]
    plain = [field.with_type(texts_as_bytes(field.type)) for field in fields]
    if is_.is_struct(type_):
        return pa.struct(plain)
    if is_.is_map(type_):
        return pa.map_(texts_as_bytes(type_.key_type), plain[0].type.field(1))
    if is_.is_fixed_size_list(type_):
        return pa.list_(plain[0], type_.list_size)
    if is_.is_large_list(type_):
        return pa.large_list(plain[0])
    return pa.list_(plain[0]) if is_.is_list(type_) else type_


def stored_field(column: str, field: pa.Field, nested: bool = True) -> pa.Field:
    return field.with_type(stored_type(column, field.type, nested))


def cast_column(name: str, column: pa.Array, field: pa.Field) -> pa.Array:
    """The column in the type of the field: encodings undone, numbers widened, nothing lost."""
    wanted = field.type
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if pa.types.is_dictionary(column.type) and column.type.value_type.equals(wanted):
        column = column.dictionary_decode()
    if not column.type.equals(wanted):
        if not _is_related(stored_type(name, column.type), wanted):
            raise SchemaError(f"column {name!r} has type {column.type}, {wanted} is needed; cast it first")
        column = _cast(name, column, wanted)
    if not field.nullable and column.null_count:
        raise SchemaError(
            f"column {name!r} is declared not null and has {column.null_count} nulls; "
            "make the field nullable or remove them"
        )
    return column


def _is_related(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a checked cast either keeps the meaning of every value or fails."""
    if given.equals(wanted) or pa.types.is_null(given) or widens(given, wanted):
        return True
    families = (
        pa.types.is_integer,
        pa.types.is_decimal,
        pa.types.is_duration,
        pa.types.is_time,
    )
    if pa.types.is_nested(given) or pa.types.is_nested(wanted):
        return _are_nested_related(given, wanted)
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    return any(family(given) and family(wanted) for family in families)


def _are_nested_related(given: pa.DataType, wanted: pa.DataType) -> bool:
    """As `_is_related`; the fields of structs must be the same, because a cast drops and invents them."""
    is_ = pa.types
    if is_.is_struct(given) and is_.is_struct(wanted):
        names = sorted(field.name for field in wanted)
        return sorted(field.name for field in given) == names and all(
            _is_related(given.field(name).type, wanted.field(name).type) for name in names
        )
    if is_.is_map(given) and is_.is_map(wanted):
        keys = _is_related(given.key_type, wanted.key_type)
        return keys and _is_related(given.item_type, wanted.item_type)
    return _is_list(given) and _is_list(wanted) and _is_related(given.value_type, wanted.value_type)


def _is_list(type_: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_))


def _cast(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"column {name!r} of type {column.type} cannot become {wanted} without loss ({error}); "
            f"cast it to {wanted} first"
        ) from error
