"""Change sets: rows with an operation each, checked, sorted, and resolved to what they amount to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adjoin.errors import NullKeyError, OptionError, SchemaError
from adjoin.master.casts import cast_column
from adjoin.master.keys import KeyCodec, encoded_values, valid_rows
from adjoin.master.manifest import Manifest
from adjoin.master.sort import ExternalSorter
from adjoin.master.source import portions, split
from adjoin.master.versions import Home

OPERATION_COLUMN = "_op"
UPSERT, DELETE, INSERT = range(3)
LARGEST_CHUNK_BYTES = 256 << 20  # string columns that are put together stay below the 2 GiB of their offsets
_OPERATIONS = ["upsert", "delete", "insert"]


@dataclass(frozen=True)
class Resolved:
    """What a run of changes amounts to.

    Attributes:
        cleared: One row for each key whose old rows all go, in the order of encoded keys.
        cleared_keys: Their encoded keys.
        added: The rows that come, in the order of encoded keys.
        added_keys: Their encoded keys.
        last_key: The greatest encoded key; later changes have greater ones.
    """

    cleared: pa.RecordBatch
    cleared_keys: NDArray[np.int64]
    added: pa.RecordBatch
    added_keys: NDArray[np.int64]
    last_key: int


class ChangeSet:
    """Sorts the changes by key in bounded memory, and hands them out resolved."""

    def __init__(self, manifest: Manifest, home: Home, memory_bytes: int) -> None:
        self._manifest = manifest
        self._codec = manifest.codec
        self._stored = pa.schema([field.with_nullable(True) for field in manifest.stored_schema])
        self._chunk_bytes = min(max(4096, memory_bytes // 16), LARGEST_CHUNK_BYTES)
        schema = self._stored.append(pa.field(OPERATION_COLUMN, pa.int8()))
        self._sorter = ExternalSorter(
            lambda: home.temporary(".run"), schema, manifest.key_column, memory_bytes // 2
        )

    def read(self, changes: Any) -> None:
        for batch in _batches(changes):
            for part in portions(batch, self._chunk_bytes):
                for rows in split(self._checked(part, self._sorter.schema), self._chunk_bytes):
                    self._sorter.add(rows)

    @property
    def rows(self) -> int:
        return self._sorter.rows

    def close(self) -> None:
        self._sorter.close()

    def resolved(self) -> Iterator[Resolved]:
        """The changes in the order of keys, all changes of one key in the same part."""
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for batch in self._sorter.sorted():
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if waiting_bytes >= self._chunk_bytes:
                rows = pa.concat_batches(waiting)
                keys = encoded_values(rows.column(self._manifest.key_column))
                whole = int(np.searchsorted(keys, keys[-1], "left"))
                if whole:
                    yield self._resolve(rows.slice(0, whole))
                waiting = [rows.slice(whole)]
                waiting_bytes = waiting[0].nbytes
        if waiting:
            yield self._resolve(pa.concat_batches(waiting))

    def _resolve(self, rows: pa.RecordBatch) -> Resolved:
        keys = encoded_values(rows.column(self._manifest.key_column))
        groups = keys
        if not self._codec.ordered:
            groups = self._codec.identify([rows.column(name) for name in self._codec.columns])
            order = np.lexsort((groups, keys))
            rows, groups, keys = rows.take(pa.array(order)), groups[order], keys[order]
        operation = rows.column(OPERATION_COLUMN).to_numpy()
        plain = rows.select(self._stored.names)
        starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        place = np.arange(len(groups))
        last_reset = np.maximum.reduceat(np.where(operation == INSERT, -1, place), starts)
        reset_before = np.repeat(last_reset, np.diff(np.append(starts, len(groups))))
        stays = ((operation == UPSERT) & (place == reset_before)) | (
            (operation == INSERT) & (place > reset_before)
        )
        cleared = starts[last_reset >= 0]
        added = np.flatnonzero(stays)
        return Resolved(
            cleared=plain.take(pa.array(cleared)),
            cleared_keys=keys[cleared],
            added=plain.take(pa.array(added)),
            added_keys=keys[added],
            last_key=int(keys[-1]),
        )

    def _checked(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The batch in the stored schema plus operation codes, or an error that says what is wrong."""
        _check_names(batch.schema.names, self._manifest)
        operation = _operation_codes(batch.column(OPERATION_COLUMN))
        comes = operation != DELETE
        columns = [_column(batch, field, comes) for field in self._manifest.schema]
        key_columns = [columns[self._manifest.schema.get_field_index(name)] for name in self._codec.columns]
        valid = valid_rows(key_columns)
        if valid is not None:
            raise NullKeyError(
                f"{int(np.count_nonzero(~valid))} changes have a null in the key "
                f"{list(self._codec.columns)}; remove them"
            )
        keys, _ = self._codec.encode(key_columns)
        if self._codec.kind != "identity":
            columns.insert(0, pa.array(keys))
        return pa.record_batch([*columns, pa.array(operation)], schema=schema)


def _batches(changes: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(changes, pa.RecordBatch):
        changes = pa.Table.from_batches([changes])
    if isinstance(changes, pa.Table):
        _check_names(changes.schema.names, None)
        return iter(changes.to_batches())
    if isinstance(changes, pa.RecordBatchReader):
        _check_names(changes.schema.names, None)
        return iter(changes)
    raise OptionError(
        f"changes is a {type(changes).__name__}; give a pyarrow Table, RecordBatch or RecordBatchReader"
    )


def _check_names(names: list[str], manifest: Manifest | None) -> None:
    if OPERATION_COLUMN not in names:
        raise SchemaError(
            f"changes need a column {OPERATION_COLUMN!r} with 'upsert', 'delete' or 'insert'; got {names}"
        )
    if len(set(names)) < len(names):
        raise SchemaError(f"changes have columns of the same name: {names}")
    if manifest is None:
        return
    unknown = sorted(set(names) - set(manifest.schema.names) - {OPERATION_COLUMN})
    missing = [name for name in manifest.key if name not in names]
    if unknown:
        raise SchemaError(
            f"changes have columns {unknown} that the master lacks; its columns are {manifest.schema.names}"
        )
    if missing:
        raise SchemaError(f"changes lack the key columns {missing}")


def _operation_codes(column: pa.Array) -> NDArray[np.int8]:
    names = column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
    if not (pa.types.is_string(names.type) or pa.types.is_large_string(names.type)):
        names = cast_column(OPERATION_COLUMN, names, pa.field(OPERATION_COLUMN, pa.string()))
    codes = pc.index_in(names, pa.array(_OPERATIONS, names.type))
    if codes.null_count:
        wrong = names.filter(codes.is_null())[0].as_py()
        raise OptionError(f"{OPERATION_COLUMN}={wrong!r}: give 'upsert', 'delete' or 'insert'")
    return np.asarray(codes.to_numpy(), np.int8)


def _column(batch: pa.RecordBatch, field: pa.Field, comes: NDArray[np.bool_]) -> pa.Array:
    if field.name not in batch.schema.names:
        if comes.any():
            raise SchemaError(f"changes lack the column {field.name!r}; only deletes can do without it")
        return pa.nulls(batch.num_rows, field.type)
    column = cast_column(field.name, batch.column(field.name), field.with_nullable(True))
    if not field.nullable and column.null_count and column.filter(pa.array(comes)).null_count:
        raise SchemaError(f"column {field.name!r} is declared not null and has nulls in upserts or inserts")
    return column


def matches(
    codec: KeyCodec,
    keys: NDArray[np.int64],
    rows: pa.RecordBatch | pa.Table,
    cleared: pa.RecordBatch,
    cleared_keys: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which rows have one of the cleared keys; hashed keys are compared exactly."""
    hit = np.zeros(len(keys), np.bool_)
    if len(cleared_keys) == 0:
        return hit
    place = np.searchsorted(cleared_keys, keys)
    hit[:] = cleared_keys[np.minimum(place, len(cleared_keys) - 1)] == keys
    if codec.ordered or not hit.any():
        return hit
    candidates = np.flatnonzero(hit)
    suspects = rows.take(pa.array(candidates))
    both = [
        pa.concat_arrays([*_chunks(cleared.column(name)), *_chunks(suspects.column(name))])
        for name in codec.columns
    ]
    ids = codec.identify(both)
    known = ids[: cleared.num_rows]
    hit[candidates] = np.isin(ids[cleared.num_rows :], known)
    return hit


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
