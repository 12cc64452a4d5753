"""Whatever holds rows, as a stream of record batches in plain types and of bounded size."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from adjoin.errors import OptionError, SchemaError
from adjoin.kernels.cutting import cut_rows
from adjoin.master.casts import cast_column, stored_field, stored_type

_ENCODED_ROWS = 16_384  # rows decoded at once, where it is not known how long they will be
_SAMPLE_ROWS = 256
_READ_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """Rows to read once.

    Attributes:
        schema: The columns in the types in which they are stored.
        rows: How many there are, if that is known beforehand.
        batches: The rows, a few at a time.
    """

    schema: pa.Schema
    rows: int | None
    batches: Iterator[pa.RecordBatch]


def open_source(source: Any, batch_bytes: int) -> Source:
    """Open a Table, RecordBatch, RecordBatchReader, Dataset or a path to Parquet."""
    rows: int | None = None
    if isinstance(source, pa.RecordBatch):
        schema, rows, batches = source.schema, source.num_rows, iter([source])
    elif isinstance(source, pa.Table):
        schema, rows, batches = source.schema, source.num_rows, iter(source.to_batches())
    elif isinstance(source, pa.RecordBatchReader):
        schema, batches = source.schema, iter(source)
    elif isinstance(source, ds.Dataset):
        schema = source.schema
        plain_files = _is_plain_parquet(source)
        batches = _parquet_batches(source, batch_bytes) if plain_files else _scan(source, batch_bytes)
    elif isinstance(source, str | os.PathLike):
        schema, rows, batches = _open_parquet(os.fspath(source), batch_bytes)
    else:
        raise OptionError(
            f"source is a {type(source).__name__}; give a pyarrow Table, RecordBatch, RecordBatchReader "
            "or Dataset, or a path to Parquet"
        )
    plain = plain_schema(schema)
    return Source(plain, rows, _bounded(batches, plain, batch_bytes))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with every type replaced by the one in which it is stored."""
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"columns {twice} occur more than once; rename them")
    return pa.schema([stored_field(field.name, field, nested=False) for field in schema], schema.metadata)


def split(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices of at most `limit_bytes`, or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= limit_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from split(batch.slice(0, half), limit_bytes)
    yield from split(batch.slice(half), limit_bytes)


def portions(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices whose rows take about `limit_bytes` or less, also when their encodings are undone."""
    encoded = [
        batch.column(at)
        for at, field in enumerate(batch.schema)
        if not stored_type(field.name, field.type).equals(field.type)
    ]
    if not encoded or not batch.num_rows:
        yield from split(batch, limit_bytes)
        return
    sizes = np.full(batch.num_rows, limit_bytes // _ENCODED_ROWS + 1)
    for column in encoded:
        sizes += _decoded_bytes(column)
    starts = np.full(batch.num_rows + 1, batch.num_rows)
    parts = cut_rows(sizes, limit_bytes, starts)
    for start, stop in zip(starts[:parts].tolist(), starts[1 : parts + 1].tolist(), strict=True):
        yield batch.slice(start, stop - start)


def _decoded_bytes(column: pa.Array) -> NDArray[np.int64] | int:
    """What each row of a dictionary of texts will take, or for repeated ones the longest of them."""
    if not (pa.types.is_dictionary(column.type) or pa.types.is_run_end_encoded(column.type)):
        return 0
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else column.values
    try:
        lengths = pc.binary_length(values).cast(pa.int64()).fill_null(0).to_numpy()
    except pa.ArrowNotImplementedError:
        return 0
    if not isinstance(column, pa.DictionaryArray):
        return int(lengths.max(initial=0))
    codes = column.indices.cast(pa.int64()).fill_null(len(lengths)).to_numpy()
    each: NDArray[np.int64] = np.append(lengths, 0)[codes]
    return each


def _bounded(
    batches: Iterator[pa.RecordBatch], plain: pa.Schema, limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if sorted(batch.schema.names) != sorted(plain.names):
            raise SchemaError(f"a batch has the columns {batch.schema.names}, the source says {plain.names}")
        for part in portions(batch, limit_bytes):
            columns = [cast_column(field.name, part.column(field.name), field) for field in plain]
            yield from split(pa.record_batch(columns, schema=plain), limit_bytes)


def _is_plain_parquet(dataset: ds.Dataset) -> bool:
    """True if reading file by file gives the same rows as a scan: no filter, no options of the format."""
    is_parquet = isinstance(dataset, ds.FileSystemDataset) and dataset.format == ds.ParquetFileFormat()
    return is_parquet and not dataset._scan_options  # nothing public tells


def _scan(dataset: ds.Dataset, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(65_536, batch_bytes // 1024))
    scanner = dataset.scanner(batch_size=rows, batch_readahead=1, fragment_readahead=1, use_threads=False)
    return iter(scanner.to_batches())


def _open_parquet(path: str, batch_bytes: int) -> tuple[pa.Schema, int, Iterator[pa.RecordBatch]]:
    if not os.path.exists(path):
        raise OptionError(f"source={path!r} does not exist; give a Parquet file or a directory of them")
    try:
        dataset = ds.dataset(path, format="parquet", partitioning="hive")
        rows = dataset.count_rows()
    except pa.ArrowInvalid as error:
        raise OptionError(f"source={path!r} is not Parquet: {error}") from error
    return dataset.schema, rows, _parquet_batches(dataset, batch_bytes)


def _parquet_batches(dataset: ds.FileSystemDataset, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """File by file without readahead, because a dataset scan holds many row groups at once."""
    for fragment in dataset.get_fragments():
        constants = ds.get_partition_keys(fragment.partition_expression)
        groups = [group.id for group in fragment.row_groups]
        with pq.ParquetFile(
            fragment.path,
            filesystem=fragment.filesystem,
            pre_buffer=False,
            buffer_size=_READ_BUFFER_BYTES,
        ) as file:
            for batch in file.iter_batches(_batch_rows(file, batch_bytes), groups, use_threads=False):
                yield _align(batch, dataset.schema, constants)


def _batch_rows(file: pq.ParquetFile, batch_bytes: int) -> int:
    sample = next(file.iter_batches(_SAMPLE_ROWS, use_threads=False), None)
    if sample is None or sample.num_rows == 0:
        return 1
    return max(1, min(65_536, batch_bytes * int(sample.num_rows) // max(1, int(sample.nbytes))))


def _align(batch: pa.RecordBatch, schema: pa.Schema, constants: dict[str, Any]) -> pa.RecordBatch:
    columns = []
    for field in schema:
        plain = stored_type(field.name, field.type)
        if field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], plain), batch.num_rows)
        elif field.name in batch.schema.names:
            column = batch.column(field.name)
        else:
            column = pa.nulls(batch.num_rows, plain)
        columns.append(column)
    return pa.record_batch(columns, names=schema.names)
