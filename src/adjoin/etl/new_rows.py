"""`new_rows`: the rows whose key the master does not know yet."""

import datetime
import os

from pyspark.sql import DataFrame

from adjoin.keys.predicate import Distance
from adjoin.master.master import Master
from adjoin.operators.on import On
from adjoin.spark.enrich.enrich import enrich


def new_rows(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    on: On,
    *,
    memory: int | str = "256MB",
    algorithm: str = "ssij",
    partitions: int | None = None,
    route: str = "range",
    deadline: float | datetime.timedelta | str | None = None,
    within: Distance | None = None,
    between: tuple[str, str] | None = None,
    version: int | None = None,
    records: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> DataFrame:
    """Keep the rows whose key is not in the master yet.

    How it works: an anti join, `enrich(..., how="anti")`. Nothing is written, so every row of a new key
    is returned, repeated or not; `deduplicate` keeps one per key.

    Args:
        df: The rows: a streaming or a batch DataFrame.
        master: A master, or its path.
        on: Key: a name, a list of names, or `{"column of df": "master column"}`.
        memory: See `enrich`, which documents this option and all that follow.
        algorithm: See `enrich`.
        partitions: See `enrich`.
        route: See `enrich`.
        deadline: See `enrich`.
        within: See `enrich`: a row is new if no master key is within this distance.
        between: See `enrich`: a row is new if no master key lies between these two columns.
        version: See `enrich`.
        records: See `enrich`.
        name: See `enrich`.

    Returns:
        The new rows with all their columns. Rows with a null key are among them, because no master holds
        null keys; filter them out first if they must not be loaded.

    Raises:
        SchemaError: A column is missing, or the key has another type.
        MasterNotFoundError: There is no master at the path.

    Example:
        >>> # customers = spark.readStream...
        >>> # unknown = adjoin.etl.new_rows(customers, "/warehouse/customers", on="customer_id")

    Cost: that of `enrich`. A master built with `filter_bits` saves the reads for keys it lacks.
    """
    return enrich(
        df,
        master,
        on,
        how="anti",
        memory=memory,
        algorithm=algorithm,
        partitions=partitions,
        route=route,
        deadline=deadline,
        within=within,
        between=between,
        version=version,
        records=records,
        name=name,
    )
