"""The types of a master in Spark, and the types of a DataFrame in Arrow.

    master's Arrow schema --spark_schema--> StructType --arrow_schema_for_spark--> output of mapInArrow
    DataFrame --stream_schema--> input of mapInArrow

`to_spark` casts between the two Arrow schemas and does nothing where they agree; `from_spark` casts back.
Timestamps, times and durations in nanoseconds are truncated to microseconds, the precision of Spark.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    UserDefinedType,
    VariantType,
)

from adjoin.errors import SchemaError

_MOST_DIGITS = 38
_NANOSECONDS = pa.time64("ns")  # Spark's times have this unit in Arrow, but only microsecond precision
_TIME_ZONE = "spark.sql.session.timeZone"
_LARGE_VAR_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"
_VARIANT = {b"variant": b"true"}  # how Spark marks the second field of a variant

_TO_SPARK: dict[pa.DataType, DataType] = {
    pa.null(): NullType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.large_string(): StringType(),
    pa.string_view(): StringType(),
    pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(),
    pa.binary_view(): BinaryType(),
    pa.date32(): DateType(),
    pa.date64(): DateType(),
}
_TO_ARROW: dict[type[DataType], pa.DataType] = {
    NullType: pa.null(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimestampNTZType: pa.timestamp("us"),
    TimeType: pa.time64("ns"),
    DayTimeIntervalType: pa.duration("us"),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a master as Spark sees them.

    Raises:
        SchemaError: Spark cannot hold a column; says which.
    """
    return StructType([_spark_field(field.name, field) for field in schema])


def arrow_schema_for_spark(struct: StructType, session_time_zone: str, large_var_types: bool) -> pa.Schema:
    """The Arrow types in which Spark gives these columns to a Python worker and takes them back.

    Args:
        struct: The columns.
        session_time_zone: The time zone that timestamps are labeled with; their values are always UTC.
        large_var_types: Whether strings and binaries have 64-bit offsets.

    Raises:
        SchemaError: Spark cannot give a column to Python; says which.
    """
    convert = _ArrowTypes(session_time_zone, large_var_types)
    return pa.schema(
        [convert.field(field.name, field.name, field.dataType, field.nullable) for field in struct]
    )


def nullable(struct: StructType) -> StructType:
    """The same columns, all of them nullable, as Spark declares the tables it writes."""
    return StructType([StructField(field.name, _nullable(field.dataType)) for field in struct])


def _nullable(type_: DataType) -> DataType:
    if isinstance(type_, ArrayType):
        return ArrayType(_nullable(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(_nullable(type_.keyType), _nullable(type_.valueType))
    return nullable(type_) if isinstance(type_, StructType) else type_


def arrow_settings(df: Any) -> tuple[str, bool]:
    """Time zone and use of 64-bit offsets in the session of a DataFrame."""
    conf = df.sparkSession.conf
    return conf.get(_TIME_ZONE), (conf.get(_LARGE_VAR_TYPES, "false") or "").lower() == "true"


def stream_schema(df: Any) -> pa.Schema:
    """The Arrow schema in which the rows of a DataFrame arrive in mapInArrow.

    Where Spark can prove that a column has no nulls, its batches say so; this schema may not.

    Raises:
        SchemaError: Spark cannot give a column to Python; says which.
    """
    return arrow_schema_for_spark(df.schema, *arrow_settings(df))


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the types of `schema`; columns that agree already are not copied.

    Raises:
        SchemaError: A value does not fit, such as seconds out of range in microseconds.
    """
    columns = [column_to_spark(column, field) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def column_to_spark(column: pa.Array, field: pa.Field) -> pa.Array:
    """As `to_spark`, for one column."""
    try:
        if column.type.equals(_NANOSECONDS):
            column = _cast(column, pa.time64("us"))
        if column.type.equals(field.type):
            return column
        return _cast(column.storage if isinstance(column, pa.ExtensionArray) else column, field.type)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"column {field.name!r} of type {column.type} has a value that Spark's {field.type} cannot hold "
            f"({error}); leave it out with columns="
        ) from error


def from_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The reverse of `to_spark`: columns from Spark, cast to the types they have in the master.

    Columns that the master lacks, or that are of another Spark type there, are returned unchanged.

    Raises:
        SchemaError: A value does not fit, such as a negative one into an unsigned integer.
    """
    named = zip(batch.schema.names, batch.columns, strict=True)
    columns = [
        _column_from_spark(column, schema.field(name)) if name in schema.names else column
        for name, column in named
    ]
    return pa.record_batch(columns, names=batch.schema.names)


def _column_from_spark(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type) or not _is_same_in_spark(column.type, field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {field.name!r} has a value that the master's {field.type} cannot hold ({error})"
        ) from error


def _is_same_in_spark(given: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        return _spark_type("", given).simpleString() == _spark_type("", wanted).simpleString()
    except SchemaError:
        return False


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column.cast(options=pc.CastOptions(type_, allow_time_truncate=True))


def _spark_field(column: str, field: pa.Field) -> StructField:
    return StructField(field.name, _spark_type(column, field.type), field.nullable)


def _spark_type(column: str, type_: pa.DataType) -> DataType:
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _spark_type(column, type_.storage_type)
    if type_ in _TO_SPARK:
        return _TO_SPARK[type_]
    if is_.is_fixed_size_binary(type_):
        return BinaryType()
    if is_.is_timestamp(type_):
        return TimestampType() if type_.tz is not None else TimestampNTZType()
    if is_.is_time(type_):
        return TimeType()
    if is_.is_duration(type_):
        return DayTimeIntervalType()
    if is_.is_decimal(type_):
        return _spark_decimal(column, type_)
    return _spark_nested(column, type_)


def _spark_nested(column: str, type_: pa.DataType) -> DataType:
    is_ = pa.types
    if is_.is_map(type_):
        key, item = _spark_type(column, type_.key_type), _spark_type(column, type_.item_type)
        return MapType(key, item, type_.item_field.nullable)
    if is_.is_struct(type_):
        return _spark_struct(column, type_)
    if is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_):
        return ArrayType(_spark_type(column, type_.value_type), type_.value_field.nullable)
    raise _unknown(column, type_)


def _spark_decimal(column: str, type_: pa.DataType) -> DataType:
    """Spark has no negative scale, and none greater than the precision."""
    precision, scale = type_.precision - min(type_.scale, 0), max(type_.scale, 0)
    if max(precision, scale) > _MOST_DIGITS:
        raise _unknown(column, type_)
    return DecimalType(max(precision, scale), scale)


def _spark_struct(column: str, type_: pa.DataType) -> DataType:
    if [field.name for field in type_] == ["value", "metadata"] and type_.field(1).metadata == _VARIANT:
        return VariantType()
    names = [field.name for field in type_]
    if len(set(names)) < len(names):
        raise _unknown(column, type_)
    return StructType([_spark_field(column, field) for field in type_])


def _unknown(column: str, type_: pa.DataType) -> SchemaError:
    return SchemaError(
        f"column {column!r} has type {type_}, which Spark cannot hold; leave it out with columns="
    )


class _ArrowTypes:
    """Spark's types in Arrow, for the settings of one session."""

    def __init__(self, time_zone: str, large_var_types: bool) -> None:
        self._timestamp = pa.timestamp("us", time_zone)
        self._string = pa.large_string() if large_var_types else pa.string()
        self._binary = pa.large_binary() if large_var_types else pa.binary()

    def field(self, column: str, name: str, type_: DataType, nullable: bool) -> pa.Field:
        return pa.field(name, self.type(column, type_), nullable)

    def type(self, column: str, type_: DataType) -> pa.DataType:
        if type(type_) in _TO_ARROW:
            return _TO_ARROW[type(type_)]
        if isinstance(type_, StringType):
            return self._string
        if isinstance(type_, BinaryType):
            return self._binary
        if isinstance(type_, TimestampType):
            return self._timestamp
        if isinstance(type_, DecimalType):
            return pa.decimal128(type_.precision, type_.scale)
        if isinstance(type_, UserDefinedType):
            return self.type(column, type_.sqlType())
        return self._nested(column, type_)

    def _nested(self, column: str, type_: DataType) -> pa.DataType:
        if isinstance(type_, ArrayType):
            return pa.list_(self.field(column, "element", type_.elementType, type_.containsNull))
        if isinstance(type_, MapType):
            key = self.field(column, "key", type_.keyType, False)
            return pa.map_(key, self.field(column, "value", type_.valueType, type_.valueContainsNull))
        if isinstance(type_, StructType):
            return pa.struct(
                [self.field(column, field.name, field.dataType, field.nullable) for field in type_]
            )
        if isinstance(type_, VariantType):
            value = pa.field("value", self._binary, nullable=False)
            return pa.struct([value, pa.field("metadata", self._binary, nullable=False, metadata=_VARIANT)])
        raise SchemaError(
            f"column {column!r} has type {type_.simpleString()}, which Spark does not exchange with Python; "
            "cast it to another type or leave it out"
        )
