"""`deduplicate`: each key once, however often it arrives."""

import os
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from adjoin.errors import OptionError
from adjoin.etl.choice import Order, has_key, key_columns, one_per_key, order_of
from adjoin.etl.microbatch import refuse_streaming, txn_of
from adjoin.master.changing import NumberedChange, Planned, upserts
from adjoin.master.master import Master
from adjoin.semistream.spec import On
from adjoin.spark.enrich import enrich
from adjoin.spark.jobs import as_raised, fetch
from adjoin.spark.naming import column, found_name


def deduplicate(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    on: On,
    *,
    order_by: Order | None = None,
    txn: tuple[str, int] | None = None,
    **options: Any,
) -> DataFrame:
    """Keep one row of each key that was never seen before, and remember the key in the master.

    How it works: rows whose key is in the master are dropped, and of the others all but one for each
    key; the keys that remain are applied to the master before this function returns. The DataFrame that
    it returns compares with the version before that, and so does a batch that is repeated: the same rows
    come out again, whether it broke off before the keys were applied, or before its rows were written,
    or before Spark knew that they were. Streams that share a master take turns.

    Args:
        df: The rows: a batch DataFrame, such as `foreachBatch` hands out. It is computed more than once,
            so its rows must be the same each time: persist it if a function in it is not deterministic.
        master: A master with the keys seen so far, or the path of one.
        on: Key: a name, a list of names, or `{"column of df": "master column"}`.
        order_by: Which row of a key stays: the first in this order, by one or several columns, such as
            `F.col("time").desc()`. Ties, and all rows by default, are decided by the row itself: the
            smallest stays, columns compared from left to right, nulls being the greatest.
        txn: Name and number of the change, `("sales", batch_id)`. By default those of the micro-batch,
            which Spark tells on classic, in the thread that runs the `foreachBatch` body. A name belongs
            to one call in the body and to one checkpoint.
        **options: Options of `enrich`: `memory`, `algorithm`, `partitions`, `route`.

    Returns:
        The rows that stay with all their columns. Rows with a null in the key all stay: nobody knows
        whether they are the same, and the master holds no nulls.

    Raises:
        OptionError: `df` is a stream, the micro-batch is not known and `txn` not given, or `txn` was
            given for other rows before.
        SchemaError: A column is missing or has another type.
        ConflictError: Other writers were faster, time and again; the batch can be repeated.
        VersionNotFoundError: The batch was loaded before, and the version that it saw is gone.

    Example:
        >>> def load(batch, batch_id):
        ...     orders = deduplicate(batch, "/warehouse/order_ids", on="order_id", order_by="time")
        ...     orders.write.mode("overwrite").parquet(f"/warehouse/orders/batch={batch_id}")
        >>> # clicks.writeStream.foreachBatch(load).option("checkpointLocation", ...).start()

    Cost: two times that of `enrich`, a sort by key after each, and an `apply` if there are new keys. Of
    the new rows those columns that the master has pass through the driver, so they must fit into its
    memory and into `spark.driver.maxResultSize`. Persist a batch that is expensive to compute.
    """
    refuse_streaming(df, "deduplicate")
    master = master if isinstance(master, Master) else Master.open(master)
    keys = key_columns(df, master, on)
    order = order_of(df, order_by)
    named = txn_of(df, txn, "deduplicate", keys)
    options = {"name": "deduplicate", **options}

    def fresh(version: Master) -> DataFrame:
        joined = enrich(df, version, on, how="anti", version=version.version, **options)
        return one_per_key(joined, keys, order)

    def plan(base: Master) -> Planned | None:
        rows = fetch(_as_stored(fresh(base).where(has_key(keys)), base, keys), base.schema)
        known = dict(zip(rows.column_names, rows.columns, strict=True))
        return Planned(upserts(base, known)) if rows.num_rows else None

    settled = NumberedChange(master, named).settle(plan)
    if settled.is_repetition and not _is_empty(fresh(settled.after).where(has_key(keys))):
        raise OptionError(
            f"txn={named!r} was applied to {master.path} for other rows than these: give each call and each "
            "checkpoint a name of its own, and read from a source that repeats the same rows"
        )
    return fresh(settled.before)


def _is_empty(df: DataFrame) -> bool:
    with as_raised():
        return df.isEmpty()


def _as_stored(rows: DataFrame, master: Master, keys: Sequence[str]) -> DataFrame:
    """The columns that the master has too, under its names."""
    names = dict(zip(master.key, keys, strict=True))
    shared = {name: names.get(name) or found_name(rows, name, rows.columns) for name in master.schema.names}
    return rows.select(
        *[column(given).alias(name) for name, given in shared.items() if given in rows.columns]
    )
