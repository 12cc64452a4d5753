"""`deduplicate`: each key once, however often it arrives."""

import os
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adjoin.errors import OptionError
from adjoin.etl.micro_batch import refuse_streaming, txn_of
from adjoin.etl.one_per_key import Order, has_key, key_columns, one_per_key, order_of
from adjoin.etl.time_to_live import Expiry, TimeToLive, expiry_of, sweep, without
from adjoin.master.master import Master
from adjoin.master.numbered_change import NumberedChange, Planned, upserts
from adjoin.operators.on import On
from adjoin.spark.enrich.enrich import enrich
from adjoin.spark.jobs import as_raised, fetch
from adjoin.spark.naming import column, found_name, free_name


def deduplicate(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    on: On,
    *,
    order_by: Order | None = None,
    ttl: TimeToLive | None = None,
    time: str | None = None,
    txn: tuple[str, int] | None = None,
    memory: int | str = "256MB",
    algorithm: str = "ssij",
    partitions: int | None = None,
    route: str = "range",
    records: str | os.PathLike[str] | None = None,
    name: str | None = "deduplicate",
) -> DataFrame:
    """Keep one row of each key not seen before, and remember the key in the master.

    How it works: rows whose key is in the master are dropped, as are all but one of the rows that share
    a new key; the new keys are applied to the master before this function returns. The DataFrame it
    returns compares with the version before that change, and so does a repeated batch: it returns the
    same rows again, whether the first run failed before the keys were applied, before its rows were
    written, or before Spark noted that they were. Streams that share a master take turns.

    Args:
        df: The rows: a batch DataFrame, such as the one `foreachBatch` passes. It is computed more than
            once and must have the same rows each time: persist it if it is not deterministic.
        master: A master with the keys seen so far, or its path.
        on: Key: a name, a list of names, or `{"column of df": "master column"}`.
        order_by: Which row of a key is kept: the first in this order, by one or more columns, such as
            `F.col("time").desc()`. Ties are broken by the row itself: the smallest is kept, comparing
            columns from left to right, nulls last. Without `order_by`, that alone decides.
        ttl: How long a key is remembered: a duration of event time such as "7 days", or a number of
            micro-batches; forever by default. See below.
        time: With a duration, the column of `df` with the event time, a timestamp or a date, which the
            master must have too. With a number, an int64 column of the master that `df` lacks.
        txn: Name and number of the change, `("sales", batch_id)`. By default those of the micro-batch,
            which only classic Spark reveals, in the thread that runs the `foreachBatch` body. Use a name
            for one call in the body and for one checkpoint only.
        memory: See `enrich`, which documents this option and all that follow.
        algorithm: See `enrich`.
        partitions: See `enrich`.
        route: See `enrich`.
        records: See `enrich`.
        name: See `enrich`. `EnrichListener` reports both joins under this name, the one that looks for
            new keys first.

    How keys expire: with `ttl`, a row whose key is in the master is a duplicate as long as
    `now - seen < ttl`; after that it counts as new, and its key is remembered again. Duplicates do not
    extend the life of a key.

    - By event time, `now` is the row's own time, or the clock if the clock is later or the row has no time.
      The clock is the greatest event time among the rows returned for earlier batches, by all streams that
      share the master; a single row with a time far in the future expires every key. `seen` is the time of
      the returned row, or the clock at that moment if the clock was later or the row had no time.
    - By micro-batch, `now` and `seen` are numbers of `txn`: with `ttl=1000`, a key of batch 5 is a duplicate
      up to batch 1004. Such a master serves one stream and one checkpoint.
    - A key that the master was built with and that has no time never expires. A key is returned once per
      batch, whatever its times. The master must not hold a key twice.

    The wall clock is never consulted; times and clock are committed with the keys, so a repeated batch
    returns the same rows. Later batches delete expired keys along with their own changes: each looks at a
    few pages, four rows for each row it adds. Whether a key has been deleted yet makes no difference.

    Returns:
        The rows that are kept, with all their columns. All rows with a null in the key are kept: whether
        they are duplicates is unknown, and the master holds no null keys.

    Raises:
        OptionError: `df` is a stream, the micro-batch is unknown and `txn` was not given, or `txn` was
            used for other rows before.
        SchemaError: A column is missing or has another type.
        ConflictError: Other writers kept committing first; the batch can be repeated.
        VersionNotFoundError: The batch was loaded before, and the version it saw has been removed.

    Example:
        >>> def load(batch, batch_id):
        ...     orders = deduplicate(batch, "/warehouse/order_ids", on="order_id", order_by="time")
        ...     orders.write.mode("overwrite").parquet(f"/warehouse/orders/batch={batch_id}")
        >>> # clicks.writeStream.foreachBatch(load).option("checkpointLocation", ...).start()

    Cost: twice that of `enrich`, a sort by key after each, and an `apply` if there are new keys. Those
    columns of the new rows that the master has pass through the driver, so they must fit into its
    memory and into `spark.driver.maxResultSize`. Persist a batch that is expensive to compute.
    """
    refuse_streaming(df, "deduplicate")
    master = master if isinstance(master, Master) else Master.open(master)
    keys = key_columns(df, master, on)
    order = order_of(df, order_by)
    named = txn_of(df, txn, "deduplicate", keys)
    expiry = expiry_of(df, master, ttl, time, named)
    join = partial(
        enrich,
        memory=memory,
        algorithm=algorithm,
        partitions=partitions,
        route=route,
        records=records,
        name=name,
    )

    def unseen(version: Master) -> DataFrame:
        return join(df, version, on, how="anti", version=version.version)

    def fresh(version: Master) -> DataFrame:
        rows = unseen(version) if expiry is None else _unseen_or_expired(df, version, keys, expiry, join)
        return one_per_key(rows, keys, order)

    def plan(base: Master) -> Planned | None:
        rows = fetch(_as_stored(fresh(base).where(has_key(keys)), base, keys), base.schema)
        return _remembered(base, rows) if expiry is None else _remembered_for_a_time(base, rows, expiry)

    settled = NumberedChange(master, named).settle(plan)
    if settled.is_repetition and not _is_empty(unseen(settled.after).where(has_key(keys))):
        raise OptionError(
            f"txn={named!r} was already applied to {master.path} for different rows: give each call and each "
            "checkpoint its own name, and read from a source that repeats the same rows"
        )
    return fresh(settled.before)


def _remembered(base: Master, rows: pa.Table) -> Planned | None:
    known = dict(zip(rows.column_names, rows.columns, strict=True))
    return Planned(upserts(base, known)) if rows.num_rows else None


def _remembered_for_a_time(base: Master, rows: pa.Table, expiry: Expiry) -> Planned | None:
    """New keys with their times, and expired keys from some pages to delete."""
    swept = sweep(base, expiry, rows.num_rows)
    stamped, marks = expiry.stamped(rows, base)
    deletes = without(base.codec, swept.deletes, stamped)
    if not (rows.num_rows or deletes.num_rows):
        return None
    known = dict(zip(stamped.column_names, stamped.columns, strict=True))
    upserted = upserts(base, known)
    deleted = {name: deletes[name] for name in deletes.column_names}
    missing = {
        name: pa.nulls(deletes.num_rows, upserted.schema.field(name).type)
        for name in upserted.column_names
        if name not in deleted
    }
    changes = pa.table({**deleted, **missing}).select(upserted.column_names).cast(upserted.schema)
    return Planned(pa.concat_tables([upserted, changes]), {**marks, **swept.marks})


def _unseen_or_expired(
    df: DataFrame, version: Master, keys: Sequence[str], expiry: Expiry, join: Callable[..., DataFrame]
) -> DataFrame:
    """The rows whose key is not in the master, or was stored too long ago."""
    own = [f"_adjoin_{place}" for place in range(len(df.columns))]
    # Under names that the master lacks, so that its key is emitted and tells whether there is a match.
    on = {own[df.columns.index(name)]: key for name, key in zip(keys, version.key, strict=True)}
    wanted = [version.key[0], expiry.column]
    joined = join(df.toDF(*own), version, on, "left", wanted, version=version.version)
    back = [column(name).alias(given) for name, given in zip(own, df.columns, strict=True)]
    key, stored = (free_name(df, f"_adjoin_{what}") for what in ("key", "stored"))
    rows = joined.select(*back, column(version.key[0]).alias(key), column(expiry.column).alias(stored))
    return rows.where(F.col(key).isNull() | expiry.is_expired(F.col(stored), version)).select(
        *map(column, df.columns)
    )


def _is_empty(df: DataFrame) -> bool:
    with as_raised():
        return df.isEmpty()


def _as_stored(rows: DataFrame, master: Master, keys: Sequence[str]) -> DataFrame:
    """The columns that the master also has, under its names."""
    names = dict(zip(master.key, keys, strict=True))
    shared = {name: names.get(name) or found_name(rows, name, rows.columns) for name in master.schema.names}
    return rows.select(
        *[column(given).alias(name) for name, given in shared.items() if given in rows.columns]
    )
