"""The rows of packs as they were in the operator: late ones dropped, numbered, those that left removed."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from adjoin.arrow.copying import join_batches, take_rows
from adjoin.kernels.types import Array
from adjoin.keys.codec import fixed_values, valid_rows
from adjoin.spark.join.log import Entry
from adjoin.spark.join.options import JoinOptions
from adjoin.spark.join.packs import unpacked


def packs_of(data: bytes | memoryview, sizes: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of packs that follow one another."""
    view, begin = memoryview(data), 0
    for size in sizes:
        yield unpacked(view[begin : begin + size], schema)
        begin += size


def punctual(batches: Iterator[pa.RecordBatch], column: str | None, late: int | None) -> list[pa.RecordBatch]:
    """The batches without rows that are late.

    Args:
        batches: The batches.
        column: The column with the time by which rows are late; None if they never are.
        late: Rows with this time or an earlier one are late; None: no row is.
    """
    if column is None or late is None:
        return list(batches)
    return [_without(batch, times_of(batch, column)[0] <= late) for batch in batches]


def _without(batch: pa.RecordBatch, dropped: Array) -> pa.RecordBatch:
    return take_rows(batch, np.flatnonzero(~dropped)) if dropped.any() else batch


def times_of(batch: pa.RecordBatch, column: str) -> tuple[Array, Array | None]:
    """The values of a column of timestamps in microseconds, and which of them are not null (None: all).

    A null has a time after all others.
    """
    values = batch.column(column)
    times, valid = fixed_values(values, np.dtype(np.int64)), valid_rows([values])
    return (times, None) if valid is None else (np.where(valid, times, np.iinfo(np.int64).max), valid)


def rows_of(
    entry: Entry, value: bytes, options: JoinOptions, expired: int | None
) -> tuple[pa.RecordBatch, Array]:
    """The rows of an entry of the log that are still in the operator, and their numbers.

    Args:
        entry: The entry.
        value: Its value.
        options: The join.
        expired: Rows with an earlier time have left; None: none has.
    """
    side = entry.kind
    schema = options.schemas[side]
    batches = punctual(packs_of(value, entry.sizes, schema), options.watermarked[side], entry.late)
    rows = join_batches(batches)
    packed = sum(entry.sizes)
    if packed < len(value):
        numbers = np.frombuffer(value, np.int64, offset=packed)
    else:
        numbers = entry.first + np.arange(rows.num_rows)
    if options.time is None:
        return rows, numbers
    times, valid = times_of(rows, options.time[side])
    stays = np.ones(len(times), bool) if valid is None else valid
    if expired is not None:
        stays &= times >= expired
    chosen = np.flatnonzero(stays)
    return (rows, numbers) if stays.all() else (take_rows(rows, chosen), numbers[chosen])
