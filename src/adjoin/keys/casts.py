"""Lossless casts between types, and the types that a master stores."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from adjoin.errors import SchemaError

_UNITS = ("s", "ms", "us", "ns")
_DAY_NANOSECONDS = 86_400 * 10**9
_EXACT_DIVISION_DIGITS = 9
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT_BITS = {16: 11, 32: 24, 64: 53}  # by width of a float, the bits of an integer that it holds exactly


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of type `given` can be represented exactly in type `wanted`."""
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
    """Whether values of type `given` can be converted to equal values of `wanted` where these exist."""
    is_ = pa.types
    if (is_.is_decimal(given) and is_.is_integer(wanted)) or (
        is_.is_integer(given) and is_.is_decimal(wanted)
    ):
        return True
    if is_.is_timestamp(given) and is_.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if _text_kind(given) == "bytes" and is_.is_fixed_size_binary(wanted):
        return True
    families = (is_.is_integer, is_.is_floating, is_.is_decimal, is_.is_duration, is_.is_time, is_.is_date)
    return widens(given, wanted) or any(family(given) and family(wanted) for family in families)


def equal_values(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column cast to a type it `is_comparable` with; null where that type has no equal value."""
    is_ = pa.types
    given = column.type
    if given.equals(type_):
        return column
    if is_.is_temporal(given):
        return _equal_ticks(column, type_)
    if widens(given, type_):
        return column.cast(type_)
    if is_.is_integer(given) and is_.is_integer(type_):
        lows, highs = zip(integer_range(given), integer_range(type_), strict=True)
        fits = pc.and_(_at_least(column, max(lows)), _at_most(column, min(highs)))
        return _only(column, fits).cast(type_)
    if is_.is_decimal(type_):
        return _equal_decimals(column, type_)
    if is_.is_integer(type_):
        return _equal_integers(column, type_)
    if is_.is_floating(type_):
        there_and_back = column.cast(type_, safe=False).cast(given, safe=False)
        return _only(column, pc.or_(pc.equal(there_and_back, column), pc.is_nan(column))).cast(type_, False)
    return _only(column, pc.equal(pc.binary_length(column), type_.byte_width)).cast(type_)


def _only(column: pa.Array, chosen: pa.Array) -> pa.Array:
    """The column, with nulls in place of values that were not chosen."""
    return pc.if_else(chosen, column, pa.scalar(None, column.type))


def _at_least(column: pa.Array, value: Decimal | int) -> pa.Array:
    return pc.greater_equal(column, pa.scalar(value, column.type))


def _at_most(column: pa.Array, value: Decimal | int) -> pa.Array:
    return pc.less_equal(column, pa.scalar(value, column.type))


def integer_range(type_: pa.DataType) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    if pa.types.is_unsigned_integer(type_):
        return 0, (1 << type_.bit_width) - 1
    return -1 << (type_.bit_width - 1), (1 << (type_.bit_width - 1)) - 1


def _equal_decimals(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Decimals or integers, as decimals of another precision and scale."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(_DIGITS[64], 0))
    if column.type.bit_width < 128:  # Arrow has few functions for narrower decimals
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    if column.type.scale < 0 or type_.scale < 0:  # Arrow cannot compare decimals with a negative scale
        shift = -min(column.type.scale, type_.scale)
        return _with_scale(_equal_decimals(_shifted(column, shift), _shifted_type(type_, shift)), type_)
    given = column.type
    digits = type_.precision - type_.scale + given.scale
    if digits <= 0:
        column = _only(column, pc.equal(column, pa.scalar(Decimal(0), given)))
    elif digits < given.precision:
        greatest = Decimal((0, (9,) * digits, -given.scale))
        smallest = Decimal((1, (9,) * digits, -given.scale))
        column = _only(column, pc.and_(_at_least(column, smallest), _at_most(column, greatest)))
    make = pa.decimal256 if max(type_.bit_width, given.bit_width) > 128 else pa.decimal128
    wanted = make(type_.precision, type_.scale)
    if wanted.scale < given.scale:
        whole = _truncated(column, wanted.scale)
        column = _only(whole, pc.equal(whole.cast(given), column))
    return column.cast(wanted).cast(type_)


def _truncated(column: pa.Array, scale: int) -> pa.Array:
    """Decimals truncated to fewer decimal places."""
    make = pa.decimal256 if column.type.bit_width > 128 else pa.decimal128
    while column.type.scale > scale:
        # Arrow 26 divides decimal256 wrongly in larger steps: 2**64 - 1 with 40 places becomes
        # 2**64 - 4676805241.
        fewer = max(scale, column.type.scale - _EXACT_DIVISION_DIGITS)
        column = column.cast(make(column.type.precision, fewer), safe=False)
    return column


def _shifted(column: pa.Array, shift: int) -> pa.Array:
    return _with_scale(column, _shifted_type(column.type, shift))


def _shifted_type(type_: pa.DataType, shift: int) -> pa.DataType:
    """The decimal type with the same digits and its scale raised by `shift`."""
    make = getattr(pa, f"decimal{type_.bit_width}")
    return make(type_.precision, type_.scale + shift)


def _with_scale(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same digits in a type that differs only in scale."""
    return pa.Array.from_buffers(type_, len(column), column.buffers(), offset=column.offset)


def _equal_integers(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Decimals as integers."""
    whole = _equal_decimals(column, pa.decimal128(_DIGITS[64], 0))
    low, high = map(Decimal, integer_range(type_))
    return _only(whole, pc.and_(_at_least(whole, low), _at_most(whole, high))).cast(type_)


def tick_nanoseconds(type_: pa.DataType) -> int:
    """The resolution of a temporal type."""
    if pa.types.is_date32(type_):
        return _DAY_NANOSECONDS
    unit = "ms" if pa.types.is_date64(type_) else type_.unit
    return int(10 ** (9 - 3 * _UNITS.index(unit)))


def _equal_ticks(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Times, dates, timestamps and durations in another unit."""
    given, wanted = tick_nanoseconds(column.type), tick_nanoseconds(type_)
    ticks = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    storage = pa.int32() if type_.bit_width == 32 else pa.int64()
    low, high = integer_range(storage)
    if given >= wanted:
        factor = given // wanted
        fits = pc.and_(_at_least(ticks, -(-low // factor)), _at_most(ticks, high // factor))
        return pc.multiply(_only(ticks, fits), factor).cast(storage).cast(type_)
    whole = pc.divide(ticks, wanted // given)
    fits = pc.and_(_at_least(whole, low), _at_most(whole, high))
    is_equal = pc.equal(pc.multiply(whole, wanted // given), ticks)
    return _only(whole, pc.and_(fits, is_equal)).cast(storage).cast(type_)


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
    """The plain type in which a master stores a column of this type; SchemaError if there is none."""
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        if not nested and stored_type(name, type_.storage_type, True).equals(type_.storage_type):
            return type_
        raise SchemaError(
            f"column {name!r} has the extension type {type_} nested in another type; cast it to "
            f"{type_.storage_type}"
        )
    if is_.is_dictionary(type_) or is_.is_run_end_encoded(type_):
        return stored_type(name, type_.value_type, nested)
    if is_.is_string_view(type_):
        return pa.string()
    if is_.is_binary_view(type_):
        return pa.binary()
    if is_.is_union(type_):
        raise SchemaError(f"unsupported type {type_} for column {name!r}; split the union into columns")
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
    raise SchemaError(f"unsupported type {type_} for column {name!r}; cast it to a list")


def strings_as_bytes(type_: pa.DataType) -> pa.DataType:
    """The type with the same layout in memory, and binaries in place of strings."""
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return strings_as_bytes(type_.storage_type)
    if is_.is_string(type_):
        return pa.binary()
    if is_.is_large_string(type_):
        return pa.large_binary()
    fields = [type_.field(at) for at in range(type_.num_fields)]
    plain = [field.with_type(strings_as_bytes(field.type)) for field in fields]
    if is_.is_struct(type_):
        return pa.struct(plain)
    if is_.is_map(type_):
        return pa.map_(strings_as_bytes(type_.key_type), plain[0].type.field(1))
    if is_.is_fixed_size_list(type_):
        return pa.list_(plain[0], type_.list_size)
    if is_.is_large_list(type_):
        return pa.large_list(plain[0])
    return pa.list_(plain[0]) if is_.is_list(type_) else type_


def stored_field(column: str, field: pa.Field, nested: bool = True) -> pa.Field:
    return field.with_type(stored_type(column, field.type, nested))


def cast_column(name: str, column: pa.Array, field: pa.Field) -> pa.Array:
    """The column in the type of the field: decoded, numbers widened, nothing lost."""
    wanted = field.type
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if pa.types.is_dictionary(column.type) and column.type.value_type.equals(wanted):
        column = column.dictionary_decode()
    if not column.type.equals(wanted):
        if not _is_related(stored_type(name, column.type), wanted):
            raise SchemaError(
                f"column {name!r} has type {column.type}, but {wanted} is needed; cast it first"
            )
        column = _cast(name, column, wanted)
    if not field.nullable and column.null_count:
        raise SchemaError(
            f"column {name!r} is declared not null but has {column.null_count} nulls; "
            "declare it nullable, or remove them"
        )
    return column


def _is_related(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a checked cast either preserves every value or fails."""
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
    """Like `_is_related`; structs must have the same fields, because a cast would drop and add fields."""
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
            f"column {name!r} of type {column.type} cannot be cast to {wanted} without loss ({error}); "
            f"cast it to {wanted} first"
        ) from error
