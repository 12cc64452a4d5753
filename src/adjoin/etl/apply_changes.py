"""`apply_changes`: keep a master up to date from a change stream."""

import datetime
import os
import uuid
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from adjoin.arguments import parse_duration
from adjoin.errors import OptionError
from adjoin.master.evolve import refuse_other
from adjoin.master.master import Master
from adjoin.master.numbered_change import checked_txn, in_turn
from adjoin.master.vacuum import retention_of, vacuum_after_commit
from adjoin.master.versions import Home
from adjoin.spark.enrich.micro_batch import MicroBatch


def apply_changes(
    master: Master | str | os.PathLike[str],
    name: str,
    *,
    order_by: str | Sequence[str] = (),
    sequence: str | None = None,
    tombstones: str | datetime.timedelta | None = "30 days",
    evolve: bool = False,
    memory: int | str = "256MB",
    keep: int | None = 10,
    keep_for: str | datetime.timedelta | None = None,
) -> Callable[[DataFrame, int], None]:
    """Make a `foreachBatch` function that applies a change stream to a master, exactly once.

    How it works: every micro-batch becomes a version of the master, and the same commit records which
    micro-batch it was; a repeated one is found there and skipped. If another writer commits first, the
    changes are applied on top of that version.

    Args:
        master: The master, or its path.
        name: A name for this change stream; a new checkpoint, which counts micro-batches from 0 again,
            needs a new name.
        order_by: Columns that order the changes of one key within a micro-batch, see `Master.apply`.
        sequence: The column that says when a change was made. The greatest value wins, in whichever
            micro-batch it comes; without it, a late change overwrites newer ones. See `Master.apply`.
        tombstones: How long deletes with a sequence are remembered, at least, so that an older change
            that arrives later does not bring the row back; None: forever.
        evolve: Add columns that the changes have and the master lacks, see `Master.apply`.
        memory: The most memory used at once, see `Master.apply`.
        keep: How many of the newest versions to keep, see `Master.apply`, which also says when fewer are
            kept and how the master is kept small. None: no upkeep; call `compact` and `vacuum` yourself.
        keep_for: Also keep versions younger than this, such as "12 hours".

    Returns:
        A function of a batch DataFrame and its number. Its rows have a column `_op` and the master's
        columns, see `Master.apply`. An upsert replaces the whole row: if the master holds surrogates,
        add them to the changes first, as in the example.

    Raises:
        OptionError: The name is empty, or belongs to another checkpoint.
        MasterReplacedError: Another master was built at the path since the first micro-batch.

    Example:
        >>> body = apply_changes("/warehouse/prices", "prices of the web shop", sequence="changed")
        >>> # changes.writeStream.foreachBatch(body).option("checkpointLocation", ...).start()
        >>> def load(batch, batch_id):
        ...     products = {"on": "product_id", "key": "product_key", "keep_natural": True}
        ...     batch = adjoin.etl.surrogate_keys(batch, "/warehouse/products", **products)
        ...     apply_changes("/warehouse/products", "product feed")(batch, batch_id)

    Cost: that of `Master.apply`, per micro-batch.
    """
    path = master.path if isinstance(master, Master) else Home(master).path
    if not (isinstance(name, str) and name):
        raise OptionError(f"name={name!r}: give the change stream a name")
    if tombstones is not None:
        parse_duration("tombstones", tombstones)
    retention = retention_of(keep, keep_for)

    expected = master.id if isinstance(master, Master) else None

    def apply_batch(changes: DataFrame, batch_id: int) -> None:
        txn = checked_txn((name, batch_id))
        home = Home(path)
        marks = _query_behind(changes, name)
        _refuse_other_checkpoints(home, txn, marks)

        def attempt() -> None:
            nonlocal expected
            with Master.open(path) as newest:
                expected = expected or newest.id
                refuse_other(newest, expected, path)
                newest.apply(
                    changes,
                    txn,
                    order_by=order_by,
                    sequence=sequence,
                    tombstones=tombstones,
                    evolve=evolve,
                    marks=marks,
                    memory=memory,
                    keep=keep,
                    keep_for=keep_for,
                ).close()
            if retention is not None:  # the version that was open until now can be removed too
                vacuum_after_commit(home, retention)

        in_turn(home, txn, attempt)

    return apply_batch


def _query_behind(changes: DataFrame, name: str) -> dict[str, int]:
    """A mark that differs for every checkpoint; none where Spark does not reveal the query."""
    micro_batch = MicroBatch.around(changes)
    if micro_batch is None:
        return {}
    return {f"query of {name}": uuid.UUID(micro_batch.query_id).int >> 65}


def _refuse_other_checkpoints(home: Home, txn: tuple[str, int], marks: dict[str, int]) -> None:
    """Micro-batches of another checkpoint would look like repetitions, and their changes would be lost."""
    name, number = txn
    pinned = home.pin()
    with pinned.lock:
        newest, known = pinned.manifest.numbered.get(name, -1), pinned.manifest.marks
    # Spark only ever repeats the newest micro-batch.
    if number < newest or any(known.get(mark, value) != value for mark, value in marks.items()):
        raise OptionError(
            f"micro-batch {number} of {name!r} comes from another checkpoint than those already in "
            f"{home.path}, up to {newest}; give the new checkpoint another name"
        )
