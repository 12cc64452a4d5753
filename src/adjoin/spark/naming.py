"""Columns by name and by place, whatever characters their names have."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def column(name: str) -> Column:
    """The column of this name."""
    return F.col("`" + name.replace("`", "``") + "`")


def by_place(df: DataFrame) -> DataFrame:
    """The columns named by their places: Spark takes some names apart on their way to Python."""
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))


def free_name(df: DataFrame, name: str) -> str:
    """The name, or a longer one if the DataFrame has it already."""
    taken = {given.lower() for given in df.columns}
    while name.lower() in taken:
        name += "_"
    return name
