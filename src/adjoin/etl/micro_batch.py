"""The micro-batch in which a transformation writes to a master."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from adjoin.errors import OptionError
from adjoin.master.numbered_change import checked_txn
from adjoin.spark.enrich.micro_batch import MicroBatch

_FORM = """
    def load(batch, batch_id):
        rows = adjoin.etl.{name}(batch, ...)
        rows.write...

    stream.writeStream.foreachBatch(load)..."""


def refuse_streaming(df: DataFrame, name: str) -> None:
    """Raise an OptionError that shows how to use this transformation on a stream."""
    if df.isStreaming:
        raise OptionError(
            f"{name} writes to the master once per micro-batch; use it inside foreachBatch:\n"
            + _FORM.format(name=name)
        )


def txn_of(df: DataFrame, txn: tuple[str, int] | None, name: str, details: Sequence[str]) -> tuple[str, int]:
    """Name and number of the change set: as given, else those of the current micro-batch.

    Args:
        df: The rows of the micro-batch.
        txn: The caller's choice.
        name: The transformation.
        details: Distinguishes this call from others in the same micro-batch.
    """
    if txn is not None:
        return checked_txn(txn)
    micro_batch = MicroBatch.around(df)
    if micro_batch is None:
        raise OptionError(
            f"{name} cannot tell which micro-batch this is, and must know it to recognize a repetition: give "
            'txn=("a name for this load", batch_id); outside of foreachBatch use a number of your own '
            "instead of batch_id"
        )
    return f"{micro_batch.query_id} {name} {' '.join(details)}", micro_batch.batch_id
