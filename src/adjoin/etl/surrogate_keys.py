"""`surrogate_keys`: warehouse keys in place of natural keys."""

import os
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from adjoin.errors import OptionError, SchemaError
from adjoin.etl.micro_batch import refuse_streaming, txn_of
from adjoin.etl.one_per_key import comparable, has_key, key_columns, one_per_key, require_columns
from adjoin.master.data_file import read_pages
from adjoin.master.master import Master
from adjoin.master.numbered_change import NumberedChange, Planned, upserts
from adjoin.operators.on import On
from adjoin.spark.enrich.enrich import enrich
from adjoin.spark.jobs import fetch
from adjoin.spark.naming import column, comparison, found_name, found_names

_SCANNED_BYTES = 64 << 20


def surrogate_keys(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    on: On,
    key: str,
    *,
    attributes: Sequence[str] = (),
    keep_natural: bool = False,
    unknown_key: int | None = None,
    txn: tuple[str, int] | None = None,
    memory: int | str = "256MB",
    algorithm: str = "ssij",
    partitions: int | None = None,
    route: str = "range",
    records: str | os.PathLike[str] | None = None,
    name: str | None = "surrogate_keys",
) -> DataFrame:
    """Replace natural keys with warehouse keys, and issue a new one for each natural key not seen before.

    How it works: the master is a dimension, or just the mapping: its key is the natural key, and its
    column `key` the surrogate. Before this function returns, it sorts the natural keys of the batch that
    the master lacks, numbers them on from the highest surrogate ever issued, and applies them. The
    DataFrame it returns is the join with exactly the version that holds them. A repeated batch issues
    nothing and is joined with the same version, so it gets the same keys, whatever has happened to the
    master since. The highest surrogate is kept in `Master.marks` and never falls, so the surrogate of a
    deleted row is never reused; until the first one is issued, it is the greatest in the master. From
    then on, all surrogates must come from this function. Streams that issue keys into the same master
    take turns.

    Args:
        df: The facts: a batch DataFrame, such as the one `foreachBatch` passes. It is computed more than
            once and must have the same rows each time: persist it if it is not deterministic.
        master: A master with exactly one row for each natural key, or its path.
        on: Natural key: a name, a list of names, or `{"column of df": "master column"}`.
        key: The master's integer column with the surrogate; the result has it under this name.
        attributes: Columns of both `df` and the master that a new master row takes from the batch; if
            several rows have the key, from the smallest, nulls sorting last. All other columns are null
            until the dimension's own load fills them.
        keep_natural: Keep the natural key columns next to the surrogate.
        unknown_key: The surrogate of rows with a null in the natural key, often -1 or 0; null by default.
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

    Returns:
        All rows of `df`, without the natural key columns, with the surrogate as the last column.

    Raises:
        OptionError: `df` is a stream, or the micro-batch is unknown and `txn` was not given.
        SchemaError: A column is missing, has another type, or exists already.
        ConflictError: Other writers kept committing first; the batch can be repeated.
        VersionNotFoundError: The batch was loaded before, and the version it saw has been removed.

    Example:
        >>> def load(batch, batch_id):
        ...     facts = surrogate_keys(batch, "/warehouse/products", on="product_id", key="product_key")
        ...     facts.write.mode("overwrite").parquet(f"/warehouse/sales/batch={batch_id}")
        >>> # sales.writeStream.foreachBatch(load).option("checkpointLocation", ...).start()

    Cost: twice that of `enrich`, first for the distinct natural keys alone; plus an `apply` if some are
    new. New keys pass through the driver, so they must fit into its memory and into
    `spark.driver.maxResultSize`. The first call on a master reads all of it. Persist a batch that is
    expensive to compute.
    """
    refuse_streaming(df, "surrogate_keys")
    master = master if isinstance(master, Master) else Master.open(master)
    natural = key_columns(df, master, on)
    key = found_name(df, key, master.schema.names)
    _check(df, master, key, attributes, unknown_key)
    named = txn_of(df, txn, "surrogate_keys", [*natural, key])
    candidates = _candidates(df, master, natural, attributes)
    join = partial(
        enrich,
        memory=memory,
        algorithm=algorithm,
        partitions=partitions,
        route=route,
        records=records,
        name=name,
    )

    def plan(base: Master) -> Planned | None:
        unseen = join(candidates, base, list(base.key), how="anti", version=base.version)
        keys = fetch(unseen, base.schema)
        return _issue(base, keys, key) if keys.num_rows else None

    settled = NumberedChange(master, named).settle(plan)
    after = settled.after
    joined = join(df, after, on, how="left", columns=[key], version=after.version)
    return _replaced(joined, natural, key, keep_natural, unknown_key, f"{named!r} of {master.path}")


def _check(
    df: DataFrame, master: Master, key: str, attributes: Sequence[str], unknown_key: int | None
) -> None:
    if key not in master.schema.names or key in master.key:
        raise SchemaError(
            f"key={key!r} must name a column of the master other than its key {list(master.key)}"
        )
    if not pa.types.is_integer(master.schema.field(key).type):
        raise SchemaError(
            f"key={key!r} has type {master.schema.field(key).type} in the master; surrogates are integers: "
            "build the master with an int64 column"
        )
    compared = comparison(df)
    if compared(key) in map(compared, df.columns):
        raise SchemaError(f"the DataFrame already has a column {key!r}; rename or drop it first")
    type_ = master.schema.field(key).type
    least = 0 if pa.types.is_unsigned_integer(type_) else -_most(type_) - 1
    if unknown_key is not None and not least <= unknown_key <= _most(type_):
        raise OptionError(f"unknown_key={unknown_key} does not fit column {key!r} of type {type_}")
    for name in _stored_names(df, master, attributes):
        if name not in master.schema.names or name in (*master.key, key):
            raise SchemaError(f"attributes={name!r} must name a column of the master other than its keys")


def _stored_names(df: DataFrame, master: Master, attributes: Sequence[str]) -> list[str]:
    """The attributes as the master spells them; names it lacks, as the DataFrame spells them."""
    return found_names(df, require_columns(df, attributes, "attributes"), master.schema.names)


def _candidates(
    df: DataFrame, master: Master, natural: Sequence[str], attributes: Sequence[str]
) -> DataFrame:
    """The distinct natural keys under the master's names, with the attributes of one row each."""
    pairs = zip(natural, master.key, strict=True)
    keys = [comparable(df.schema[name]).alias(key) for name, key in pairs]
    given = require_columns(df, attributes, "attributes")
    stored = _stored_names(df, master, attributes)
    pairs = zip(given, stored, strict=True)
    rows = df.where(has_key(natural)).select(*keys, *[column(name).alias(own) for name, own in pairs])
    return one_per_key(rows, master.key) if attributes else rows.distinct()


def _issue(base: Master, unseen: pa.Table, key: str) -> Planned:
    unseen = unseen.sort_by([(name, "ascending") for name in base.key])
    highest = base.marks[key] if key in base.marks else _highest(base, key)
    most = _most(base.schema.field(key).type)
    if highest + unseen.num_rows > most:
        raise SchemaError(
            f"column {key!r} cannot hold {unseen.num_rows} more surrogate keys after {highest} "
            f"(maximum {most}); build the master with an int64 column"
        )
    numbers = np.arange(highest + 1, highest + 1 + unseen.num_rows)
    known = dict(zip(unseen.column_names, unseen.columns, strict=True))
    return Planned(upserts(base, {**known, key: pa.array(numbers)}), {key: highest + unseen.num_rows})


def _most(type_: pa.DataType) -> int:
    sign = 0 if pa.types.is_unsigned_integer(type_) else 1
    return int(min(2 ** (type_.bit_width - sign), 2**63) - 1)


def _highest(master: Master, key: str) -> int:
    """The greatest surrogate in this version, at least 0."""
    highest = 0
    portions = max(1, master.bytes // _SCANNED_BYTES)
    for pages in np.array_split(np.arange(master.pages), portions):
        rows = read_pages(master.stored, master.files, master.index, pages)
        highest = max(highest, pc.max(rows[key]).as_py() or 0)
    return highest


def _replaced(
    joined: DataFrame,
    natural: Sequence[str],
    key: str,
    keep_natural: bool,
    unknown_key: int | None,
    change: str,
) -> DataFrame:
    """The result; a natural key without a surrogate is an error, because the facts would have a gap."""
    missing = F.raise_error(
        F.lit(
            f"adjoin.errors.OptionError: a natural key has no {key}, although change set {change} has issued "
            "keys: either a master row has a null there, or these are not the rows the keys were issued for "
            "(give each call and each checkpoint its own txn, and read from a source that repeats the same "
            "rows)"
        )
    )
    type_ = joined.schema[key].dataType
    known = F.coalesce(column(key), missing.cast(type_))
    surrogate = F.when(has_key(natural), known).otherwise(F.lit(unknown_key).cast(type_))
    gone = {key} if keep_natural else {key, *natural}
    kept = [column(name) for name in joined.columns if name not in gone]
    return joined.select(*kept, surrogate.alias(key))
