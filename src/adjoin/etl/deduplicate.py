"""`deduplicate`: each key once, however often it arrives."""

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adjoin.errors import OptionError
from adjoin.etl.micro_batch import refuse_streaming, txn_of
from adjoin.etl.one_per_key import Order, has_key, key_columns, one_per_key, order_of
from adjoin.etl.time_to_live import Expiry, TimeToLive, expiry_of, sweep, without
from adjoin.master.master import Master
from adjoin.master.numbered_change import NumberedChange, Planned, upserts
from adjoin.semistream.base.spec import On
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
        ttl: How long a key is remembered: a duration of event time such as "7 days", or a whole number of
            micro-batches; for ever by default. See below.
        time: With a duration, the column of `df` with the event time, a timestamp or a date, which the
            master must have too. With a number, an int64 column of the master that `df` lacks.
        txn: Name and number of the change, `("sales", batch_id)`. By default those of the micro-batch,
            which Spark tells on classic, in the thread that runs the `foreachBatch` body. A name belongs
            to one call in the body and to one checkpoint.
        **options: Options of `enrich`: `memory`, `algorithm`, `partitions`, `route`, `name`. Under the name,
            "deduplicate" by default, `EnrichListener` hears of both joins, that for new keys first.

    How keys expire: with `ttl`, a row whose key the master holds is a duplicate as long as
    `now - seen < ttl`; then it counts as new, and its key is remembered anew. Duplicates do not make a key
    live longer.

    - By event time, `now` is the row's own time, or the clock if that is later or the row has no time. The
      clock is the greatest event time of all rows that came out of earlier batches, of all streams that share
      the master; one row with a time far in the future makes all keys expire. `seen` is the time of the row
      that came out, or what the clock was then, if that was later or the row had no time.
    - By micro-batch, `now` and `seen` are numbers of `txn`: with `ttl=1000`, a key of batch 5 is a duplicate
      up to batch 1004. One stream and one checkpoint to a master.
    - A key that the master was built with and that has no time never expires. Within one batch a key comes
      out once, whatever its times. The master must not hold a key twice.

    The wall clock is never asked; time and clock are committed with the keys, so a batch that is repeated
    lets the same rows out. Expired keys are deleted with the changes of later batches, each of which looks
    at a few pages, four rows for each that it adds; whether a key is deleted yet makes no difference.

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
    expiry = expiry_of(df, master, ttl, time, named)

    def unseen(version: Master) -> DataFrame:
        return enrich(df, version, on, how="anti", version=version.version, **options)

    def fresh(version: Master) -> DataFrame:
        rows = unseen(version) if expiry is None else _unseen_or_expired(df, version, keys, expiry, options)
        return one_per_key(rows, keys, order)

    def plan(base: Master) -> Planned | None:
        rows = fetch(_as_stored(fresh(base).where(has_key(keys)), base, keys), base.schema)
        return _remembered(base, rows) if expiry is None else _remembered_for_a_time(base, rows, expiry)

    settled = NumberedChange(master, named).settle(plan)
    if settled.is_repetition and not _is_empty(unseen(settled.after).where(has_key(keys))):
        raise OptionError(
            f"txn={named!r} was applied to {master.path} for other rows than these: give each call and each "
            "checkpoint a name of its own, and read from a source that repeats the same rows"
        )
    return fresh(settled.before)


def _remembered(base: Master, rows: pa.Table) -> Planned | None:
    known = dict(zip(rows.column_names, rows.columns, strict=True))
    return Planned(upserts(base, known)) if rows.num_rows else None


def _remembered_for_a_time(base: Master, rows: pa.Table, expiry: Expiry) -> Planned | None:
    """New keys with their times, and expired keys of some pages to delete."""
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
    df: DataFrame, version: Master, keys: Sequence[str], expiry: Expiry, options: dict[str, Any]
) -> DataFrame:
    """The rows whose key is not in the master, or was stored too long ago."""
    own = [f"_adjoin_{place}" for place in range(len(df.columns))]
    # Under names that the master lacks, so that its key tells whether there is a match.
    on = {own[df.columns.index(name)]: key for name, key in zip(keys, version.key, strict=True)}
    wanted = [version.key[0], expiry.column]
    joined = enrich(df.toDF(*own), version, on, "left", wanted, version=version.version, **options)
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
    """The columns that the master has too, under its names."""
    names = dict(zip(master.key, keys, strict=True))
    shared = {name: names.get(name) or found_name(rows, name, rows.columns) for name in master.schema.names}
    return rows.select(
        *[column(given).alias(name) for name, given in shared.items() if given in rows.columns]
    )
