"""Columns by name and by place, whatever characters their names have."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def column(name: str) -> Column:
    """The column of this name."""
    return F.col("`" + name.replace("`", "``") + "`")


def by_place(df: DataFrame) -> DataFrame:
    """The columns named by their places: Spark takes some names apart on their way to Python."""
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))


def comparison(df: DataFrame) -> Callable[[str], str]:
    """A function whose result is the same for names that the session takes for the same."""
    is_sensitive = (df.sparkSession.conf.get("spark.sql.caseSensitive") or "").lower() == "true"
    return str if is_sensitive else str.lower


def free_name(df: DataFrame, name: str) -> str:
    """The name, or a longer one if the DataFrame has it already."""
    compared = comparison(df)
    taken = set(map(compared, df.columns))
    while compared(name) in taken:
        name += "_"
    return name
