"""`new_rows`: what the master does not know yet."""

import os
from typing import Any

from pyspark.sql import DataFrame

from adjoin.master.master import Master
from adjoin.semistream.base.spec import On
from adjoin.spark.enrich.enrich import enrich


def new_rows(df: DataFrame, master: Master | str | os.PathLike[str], on: On, **options: Any) -> DataFrame:
    """Keep the rows whose key is not in the master yet.

    How it works: an anti join, `enrich(..., how="anti")`. Nothing is written, so rows that repeat a new
    key all come out; `deduplicate` keeps one.

    Args:
        df: The rows: a streaming DataFrame, or a batch one.
        master: A master, or the path of one.
        on: Key: a name, a list of names, or `{"column of df": "master column"}`.
        **options: Options of `enrich`: `memory`, `algorithm`, `partitions`, `route`, `deadline`, `version`.

    Returns:
        The new rows with all their columns. A row with a null in its key is one of them, because no
        master holds it; filter such rows out before if they are not to be loaded.

    Raises:
        SchemaError: A column is missing, or the key has another type.
        MasterNotFoundError: There is no master at the path.

    Example:
        >>> # customers = spark.readStream...
        >>> # unknown = adjoin.etl.new_rows(customers, "/warehouse/customers", on="customer_id")

    Cost: that of `enrich`. A master built with `filter_bits` spares the reads for keys that it lacks.
    """
    return enrich(df, master, on, how="anti", **options)
