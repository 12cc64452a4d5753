"""Rows from files: Arrow datasets and Parquet."""

import operator
import os
from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from adjoin.arguments import local_path
from adjoin.errors import OptionError
from adjoin.keys.casts import stored_type

_Opened: TypeAlias = tuple[pa.Schema, int | None, Iterator[pa.RecordBatch]]
_scan_options = operator.attrgetter("_scan_options")
"""The filter of a dataset, which pyarrow shows nowhere else."""
_SAMPLE_ROWS = 256
_READ_BUFFER_BYTES = 1 << 20


def open_dataset(source: Any, batch_bytes: int) -> _Opened:
    """Schema, number of rows (if known) and batches of a Dataset, or of a path to Parquet."""
    if isinstance(source, ds.Dataset):
        is_plain = _is_plain_parquet(source)
        batches = _parquet_batches(source, batch_bytes) if is_plain else _scan(source, batch_bytes)
        return source.schema, None, batches
    if isinstance(source, str | os.PathLike):
        return _open_parquet(local_path(source, "source"), batch_bytes)
    raise OptionError(
        f"source is a {type(source).__name__}; give a pyarrow Table, RecordBatch, RecordBatchReader "
        "or Dataset, a path to Parquet files, or a Spark DataFrame"
    )


def _is_plain_parquet(dataset: ds.Dataset) -> bool:
    """Whether reading file by file gives the same rows as a scan: no filter, no format options."""
    is_parquet = isinstance(dataset, ds.FileSystemDataset) and dataset.format == ds.ParquetFileFormat()
    return is_parquet and not _scan_options(dataset)


def _scan(dataset: ds.Dataset, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(65_536, batch_bytes // 1024))
    scanner = dataset.scanner(batch_size=rows, batch_readahead=1, fragment_readahead=1, use_threads=False)
    return iter(scanner.to_batches())


def _open_parquet(path: str, batch_bytes: int) -> _Opened:
    if not os.path.exists(path):
        raise OptionError(f"source={path!r} does not exist; give a Parquet file, or a directory of them")
    try:
        dataset = ds.dataset(path, format="parquet", partitioning="hive")
        rows = dataset.count_rows()
    except pa.ArrowInvalid as error:
        raise OptionError(f"source={path!r} is not Parquet: {error}") from error
    return dataset.schema, rows, _parquet_batches(dataset, batch_bytes)


def _parquet_batches(dataset: ds.FileSystemDataset, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Read file by file without readahead: a dataset scan would hold many row groups at once."""
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
