"""Whatever holds rows, as a stream of record batches in plain types and of bounded size."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from adjoin.errors import OptionError, SchemaError
from adjoin.master.casts import cast_column, stored_field

_ENCODED_ROWS = 16_384  # encoded columns may grow when they are decoded, so only so many at once
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
        schema, batches = source.schema, _scan(source, batch_bytes)
    elif isinstance(source, str | os.PathLike):
        schema, rows, batches = _open_parquet(os.fspath(source), batch_bytes)
    else:
        raise OptionError(
            f"source is a {type(source).__name__}; give a pyarrow Table, RecordBatch, RecordBatchReader "
            "or Dataset, or a path to Parquet"
        )
    plain = plain_schema(schema)
    return Source(plain, rows, _bounded(batches, schema, plain, batch_bytes))


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


def _bounded(
    batches: Iterator[pa.RecordBatch], given: pa.Schema, plain: pa.Schema, limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    decoded = given.types != plain.types
    for batch in batches:
        step = _ENCODED_ROWS if decoded else max(1, batch.num_rows)
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            pairs = zip(plain, part.columns, strict=True)
            columns = [cast_column(field.name, column, field) for field, column in pairs]
            yield from split(pa.record_batch(columns, schema=plain), limit_bytes)


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
        with pq.ParquetFile(fragment.path, pre_buffer=False, buffer_size=_READ_BUFFER_BYTES) as file:
            for batch in file.iter_batches(_batch_rows(file, batch_bytes), use_threads=False):
                yield _align(batch, dataset.schema, constants)


def _batch_rows(file: pq.ParquetFile, batch_bytes: int) -> int:
    sample = next(file.iter_batches(_SAMPLE_ROWS, use_threads=False), None)
    if sample is None or sample.num_rows == 0:
        return 1
    return max(1, min(65_536, batch_bytes * int(sample.num_rows) // max(1, int(sample.nbytes))))


def _align(batch: pa.RecordBatch, schema: pa.Schema, constants: dict[str, Any]) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        elif field.name in batch.schema.names:
            column = cast_column(field.name, batch.column(field.name), field)
        else:
            column = pa.nulls(batch.num_rows, field.type)
        columns.append(column)
    return pa.record_batch(columns, schema=schema)
