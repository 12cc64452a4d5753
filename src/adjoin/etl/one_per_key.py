"""One row per key, the same one every time."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from adjoin.errors import OptionError, SchemaError
from adjoin.master.master import Master
from adjoin.operators.on import On
from adjoin.semistream.base.spec import make_spec
from adjoin.spark.enrich.routing import is_hashable
from adjoin.spark.naming import column, found_key, found_names, free_name

Order = str | Column | Sequence[str | Column]
_PLACE = "_adjoin_place"


def one_per_key(df: DataFrame, keys: Sequence[str], order: Sequence[Column] = ()) -> DataFrame:
    """The first row of each key in this order; ties go to the smallest row, nulls last.

    All rows with a null in the key are kept: whether they are duplicates is unknown.
    """
    row = [comparable(field) for field in df.schema]
    known = has_key(keys)
    # Spread the rows without a key, or a single task would sort them all.
    apart = F.when(~known, F.xxhash64(*row))
    window = Window.partitionBy(*[comparable(df.schema[name]) for name in keys], apart)
    place = F.row_number().over(window.orderBy(*order, *[value.asc_nulls_last() for value in row]))
    name = free_name(df, _PLACE)
    return df.withColumn(name, place).where((F.col(name) == 1) | ~known).drop(name)


def key_columns(df: DataFrame, master: Master, on: On) -> tuple[str, ...]:
    """The DataFrame's key columns, in the order of the master's key."""
    keys = make_spec(master, found_key(df, master.key, on), "anti").predicate.columns
    return tuple(require_columns(df, keys, "on"))


def has_key(keys: Sequence[str]) -> Column:
    """True for rows without a null in the key."""
    known = F.lit(True)
    for name in keys:
        known &= column(name).isNotNull()
    return known


def comparable(field: StructField) -> Column:
    """The column in a form that Spark finds equal exactly where the values are identical."""
    return _comparable(column(field.name), field.dataType)


def _comparable(value: Column, type_: DataType) -> Column:
    if isinstance(type_, StringType) and not type_.isUTF8BinaryCollation():
        return F.collate(value, "UTF8_BINARY")
    if is_hashable(type_):
        return value
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda item: _comparable(item, type_.elementType))
    if isinstance(type_, MapType):
        entry = StructType([StructField("key", type_.keyType), StructField("value", type_.valueType)])
        return F.array_sort(_comparable(F.map_entries(value), ArrayType(entry)))
    if isinstance(type_, StructType):
        fields = [_comparable(value[field.name], field.dataType).alias(field.name) for field in type_]
        return F.when(value.isNotNull(), F.struct(*fields))
    return value.cast("string")  # a variant, whose string form is complete


def order_of(df: DataFrame, order_by: Order | None) -> list[Column]:
    """The expressions to sort by; a name sorts ascending, nulls last."""
    if order_by is None:
        return []
    given = [order_by] if isinstance(order_by, str | Column) else list(order_by)
    for one in given:
        if not isinstance(one, str | Column):
            raise OptionError(f"order_by={one!r}: give column names or columns")
    return [
        column(*require_columns(df, [one], "order_by")).asc_nulls_last() if isinstance(one, str) else one
        for one in given
    ]


def require_columns(df: DataFrame, names: Sequence[str], option: str) -> list[str]:
    """These columns as the DataFrame spells them; a SchemaError if one is missing."""
    found = found_names(df, names, df.columns)
    missing = [name for name in found if name not in df.columns]
    if missing:
        raise SchemaError(f"{option}={missing[0]!r} is not a column of the DataFrame, which has {df.columns}")
    return found
