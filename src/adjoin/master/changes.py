"""Change sets: rows with an operation each, validated, sorted, and resolved to their net effect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adjoin.errors import NullKeyError, OptionError, SchemaError
from adjoin.keys.casts import cast_column, stored_type
from adjoin.keys.codec import KeyCodec, encoded_values, valid_rows
from adjoin.master.manifest import Manifest
from adjoin.master.sequence import sequence_values
from adjoin.master.sort import ExternalSorter
from adjoin.master.source import split, split_decoded
from adjoin.master.versions import Home

OPERATION_COLUMN = "_op"
_ORDER_COLUMN = "_adjoin_order_"
UPSERT, DELETE, INSERT = range(3)
LARGEST_CHUNK_BYTES = 256 << 20  # concatenated string columns stay below the 2 GiB of their offsets
_OPERATIONS = ["upsert", "delete", "insert"]


@dataclass(frozen=True)
class Resolved:
    """The net effect of a run of changes.

    Attributes:
        cleared: One row for each key whose old rows are all removed, in the order of encoded keys.
        cleared_keys: Their encoded keys.
        added: The new rows, in the order of encoded keys.
        added_keys: Their encoded keys.
        last_key: The greatest encoded key; later changes have greater ones.
        sequence: With a sequence, its value for each cleared key; each key then has exactly one change.
        is_delete: With a sequence, whether that change is a delete; the others each add a row.
    """

    cleared: pa.RecordBatch
    cleared_keys: NDArray[np.int64]
    added: pa.RecordBatch
    added_keys: NDArray[np.int64]
    last_key: int
    sequence: pa.Array | None = None
    is_delete: NDArray[np.bool_] | None = None

    def only(self, chosen: NDArray[np.bool_]) -> "Resolved":
        """The changes of the chosen cleared keys; only for changes with a sequence."""
        assert self.sequence is not None
        assert self.is_delete is not None
        rows = chosen[~self.is_delete]
        return Resolved(
            cleared=self.cleared.filter(pa.array(chosen)),
            cleared_keys=self.cleared_keys[chosen],
            added=self.added.filter(pa.array(rows)),
            added_keys=self.added_keys[rows],
            last_key=self.last_key,
            sequence=self.sequence.filter(pa.array(chosen)),
            is_delete=self.is_delete[chosen],
        )


class ChangeSet:
    """Sorts changes by key in bounded memory, and resolves them.

    Args:
        manifest: The version to be changed.
        home: Its directory.
        schema: The columns of the changes.
        memory_bytes: The memory for sorting and resolving.
        order_by: Columns that order the changes of a key, in place of the order in which they arrive.
        marker: Prefix of the names of temporary files; see `files.new_name`.
        sequence: If the first of those columns is the sequence, the type in which it is compared: only the
            last change of each key then takes effect.
    """

    def __init__(
        self,
        manifest: Manifest,
        home: Home,
        schema: pa.Schema,
        memory_bytes: int,
        order_by: Sequence[str] = (),
        marker: str = "",
        sequence: pa.DataType | None = None,
    ) -> None:
        check_names(schema.names, manifest, order_by)
        self._sequence = sequence
        self._manifest = manifest
        self._codec = manifest.codec
        self._order_by = tuple(order_by)
        self._stored = pa.schema([field.with_nullable(True) for field in manifest.stored_schema])
        self._chunk_bytes = min(max(4096, memory_bytes // 16), LARGEST_CHUNK_BYTES)
        self._order = [_order_field(at, schema.field(name)) for at, name in enumerate(order_by)]
        if sequence is not None:
            self._order[0] = self._order[0].with_type(sequence)
        carried = [*self._stored, pa.field(OPERATION_COLUMN, pa.int8()), *self._order]
        self._sorter = ExternalSorter(
            lambda: home.temporary(".run", marker), pa.schema(carried), manifest.key_column, memory_bytes // 2
        )

    def add(self, batch: pa.RecordBatch) -> None:
        for part in split_decoded(batch, self._chunk_bytes):
            for rows in split(self._checked(part, self._sorter.schema), self._chunk_bytes):
                self._sorter.add(rows)

    def close(self) -> None:
        self._sorter.close()

    def resolved(self, *, in_order: bool = True) -> Iterator[Resolved]:
        """The changes in key order, with all changes of a key in the same part.

        Unless changes are `in_order`, several changes of a key must be ordered by `order_by`.
        """
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        for batch in self._sorter.sorted():
            pending.append(batch)
            pending_bytes += batch.nbytes
            if pending_bytes >= self._chunk_bytes:
                rows = pa.concat_batches(pending)
                keys = encoded_values(rows.column(self._manifest.key_column))
                whole = int(np.searchsorted(keys, keys[-1], "left"))
                if whole:
                    yield self._resolve(rows.slice(0, whole), in_order)
                pending = [rows.slice(whole)]
                pending_bytes = pending[0].nbytes
        if pending:
            yield self._resolve(pa.concat_batches(pending), in_order)

    def _resolve(self, rows: pa.RecordBatch, in_order: bool) -> Resolved:
        keys = encoded_values(rows.column(self._manifest.key_column))
        groups = keys
        if not self._codec.ordered:
            groups = self._codec.identify([rows.column(name) for name in self._codec.columns])
        ranks = [
            _ranks(rows.column(field.name), name)
            for name, field in zip(self._order_by, self._order, strict=True)
        ]
        if ranks or not self._codec.ordered:
            order = np.lexsort((*reversed(ranks), groups, keys))
            rows, groups, keys = rows.take(pa.array(order)), groups[order], keys[order]
            ranks = [rank[order] for rank in ranks]
        operation = rows.column(OPERATION_COLUMN).to_numpy()
        if self._sequence is not None:
            return self._resolve_sequence(rows, keys, operation, [groups, *ranks], in_order)
        if not in_order:
            self._refuse_unordered(rows, operation, [groups, *ranks])
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

    def _resolve_sequence(
        self,
        rows: pa.RecordBatch,
        keys: NDArray[np.int64],
        operation: NDArray[np.int8],
        order: list[NDArray[np.int64]],
        in_order: bool,
    ) -> Resolved:
        """Keep only the last change of each key."""
        groups, key_columns = order[0], rows.select(list(self._codec.columns))
        last = np.flatnonzero(np.concatenate([groups[1:] != groups[:-1], [True]]))
        if not in_order:
            ends = np.unique(np.concatenate([last, np.maximum(last - 1, 0)]))
            ranks = [rank[ends] for rank in order]
            self._refuse_unordered(key_columns.take(pa.array(ends)), operation[ends], ranks)
        is_delete = operation[last] == DELETE
        added = last[~is_delete]
        return Resolved(
            cleared=key_columns.take(pa.array(last)),
            cleared_keys=keys[last],
            added=rows.select(self._stored.names).take(pa.array(added)),
            added_keys=keys[added],
            last_key=int(keys[-1]),
            sequence=rows.column(self._order[0].name).take(pa.array(last)),
            is_delete=is_delete,
        )

    def _refuse_unordered(
        self, rows: pa.RecordBatch, operation: NDArray[np.int8], order: list[NDArray[np.int64]]
    ) -> None:
        """Raise if two changes of a key are equal in the order, unless both are inserts."""
        same = np.logical_and.reduce([column[1:] == column[:-1] for column in order])
        unclear = np.flatnonzero(same & ((operation[1:] != INSERT) | (operation[:-1] != INSERT)))
        if len(unclear) == 0:
            return
        key = {name: rows.column(name)[int(unclear[0])].as_py() for name in self._codec.columns}
        if self._order_by:
            cure = f"have the same {', '.join(self._order_by)}; drop duplicates, or add columns to order_by="
        else:
            cure = (
                "have no order, because a DataFrame has none; give the column that orders them as sequence= "
                "or order_by="
            )
        raise OptionError(f"several changes of the key {key} {cure}")

    def _checked(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Validate the batch and convert it to the stored schema, plus operation codes."""
        check_names(batch.schema.names, self._manifest, self._order_by)
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
        if self._sequence is not None and (operation == INSERT).any():
            raise OptionError(
                f"{OPERATION_COLUMN}='insert' cannot be used with a sequence: an insert adds a row to its "
                "key, but a sequence keeps only the latest change of each key; give 'upsert'"
            )
        order = [
            self._order_column(batch.column(name), name, field)
            for name, field in zip(self._order_by, self._order, strict=True)
        ]
        return pa.record_batch([*columns, pa.array(operation), *order], schema=schema)

    def _order_column(self, column: pa.Array, name: str, field: pa.Field) -> pa.Array:
        if self._sequence is not None and field is self._order[0]:
            return sequence_values(name, column, self._sequence)
        if column.null_count:
            raise SchemaError(f"column {name!r} orders the changes but has nulls; fill them")
        return cast_column(name, column, field)


def open_changes(changes: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of a Table, RecordBatch or RecordBatchReader."""
    if isinstance(changes, pa.RecordBatch):
        changes = pa.Table.from_batches([changes])
    if isinstance(changes, pa.Table):
        return changes.schema, iter(changes.to_batches())
    if isinstance(changes, pa.RecordBatchReader):
        return changes.schema, iter(changes)
    raise OptionError(
        f"changes is a {type(changes).__name__}; give a pyarrow Table, RecordBatch or RecordBatchReader, "
        "or a Spark DataFrame"
    )


def check_names(names: list[str], manifest: Manifest, order_by: Sequence[str]) -> None:
    """Raise a SchemaError unless changes with these columns can be applied to the version."""
    if OPERATION_COLUMN not in names:
        raise SchemaError(
            f"changes need a column {OPERATION_COLUMN!r} with 'upsert', 'delete' or 'insert'; got {names}"
        )
    if len(set(names)) < len(names):
        raise SchemaError(f"changes have several columns of the same name: {names}; rename them")
    unknown = sorted(set(names) - set(manifest.schema.names) - {OPERATION_COLUMN, *order_by})
    if unknown:
        raise SchemaError(
            f"changes have columns {unknown} that the master lacks; drop them, or add them with evolve=True; "
            f"its columns are {manifest.schema.names}"
        )
    for what, wanted in (("key columns", manifest.key), ("columns to order by", order_by)):
        missing = [name for name in wanted if name not in names]
        if missing:
            raise SchemaError(f"changes lack the {what} {missing}; they have {names}")


def _order_field(at: int, field: pa.Field) -> pa.Field:
    """A column to order by, which is carried along under a reserved name."""
    return pa.field(f"{_ORDER_COLUMN}{at}", stored_type(field.name, field.type))


def _ranks(column: pa.Array, name: str) -> NDArray[np.int64]:
    try:
        return np.asarray(pc.rank(column, tiebreaker="dense").to_numpy(), np.int64)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"column {name!r} of type {column.type} has no order; order by numbers, times or strings"
        ) from error


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
            raise SchemaError(f"changes lack the column {field.name!r}, which only deletes can do without")
        return pa.nulls(batch.num_rows, field.type)
    column = cast_column(field.name, batch.column(field.name), field.with_nullable(True))
    if not field.nullable and column.null_count and column.filter(pa.array(comes)).null_count:
        raise SchemaError(
            f"column {field.name!r} is declared not null but has nulls in upserts or inserts; fill them"
        )
    return column


def matches(
    codec: KeyCodec,
    keys: NDArray[np.int64],
    rows: pa.RecordBatch | pa.Table,
    cleared: pa.RecordBatch,
    cleared_keys: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The position of each row's key among the cleared ones, or -1; hashed keys are compared exactly."""
    hit = np.full(len(keys), -1)
    if len(cleared_keys) == 0:
        return hit
    place = np.minimum(np.searchsorted(cleared_keys, keys), len(cleared_keys) - 1)
    candidates = np.flatnonzero(cleared_keys[place] == keys)
    if codec.ordered or len(candidates) == 0:
        hit[candidates] = place[candidates]
        return hit
    suspects = rows.take(pa.array(candidates))
    both = [
        pa.concat_arrays([*_chunks(cleared.column(name)), *_chunks(suspects.column(name))])
        for name in codec.columns
    ]
    ids = codec.identify(both)
    place_of = np.full(int(ids.max()) + 1, -1)
    place_of[ids[: cleared.num_rows]] = np.arange(cleared.num_rows)
    hit[candidates] = place_of[ids[cleared.num_rows :]]
    return hit


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
