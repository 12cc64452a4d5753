"""The correct results of a join, computed with DuckDB.

DuckDB sees only the keys and says which stream row meets which master row. The rows themselves are
put together by Arrow, so that every column type stays exactly as it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

On = str | Sequence[str] | dict[str, str]
Pairs = tuple[np.ndarray, np.ndarray]

_UNIT_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NANOSECONDS = 86_400 * 10**9


@dataclass(frozen=True)
class Predicate:
    """When a stream row matches a master row, in terms of the arguments that operators take."""

    on: On
    within: Any = None
    between: tuple[str, str] | None = None

    @property
    def is_range(self) -> bool:
        return self.within is not None or self.between is not None

    @property
    def names(self) -> dict[str, str]:
        """Stream column to master column; for `between` the master's key to itself."""
        if isinstance(self.on, str):
            return {self.on: self.on}
        return dict(self.on) if isinstance(self.on, dict) else {name: name for name in self.on}

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of an operator."""
        return {"on": self.on, "within": self.within, "between": self.between}


def expected(
    stream: pa.Table,
    master: pa.Table,
    predicate: Predicate,
    how: str,
    columns: Sequence[str] | None = None,
    suffix: str = "_master",
) -> pa.Table:
    """The correct results, in some order."""
    return assembled(stream, master, matches(stream, master, predicate), predicate, how, columns, suffix)


def matches(stream: pa.Table, master: pa.Table, predicate: Predicate) -> Pairs:
    """Row numbers (stream, master) of every pair that the predicate holds for."""
    if predicate.between is not None:
        (master_key,) = predicate.names.values()
        columns = {"lo": stream[predicate.between[0]], "hi": stream[predicate.between[1]]}
        types = {name: master.schema.field(master_key).type for name in columns}
        left = _key_table(columns, types)
        right = _key_table({"k0": master[master_key]}, {"k0": types["lo"]})
        return _ask(left, right, "m.k0 BETWEEN s.lo AND s.hi")
    names = {f"k{i}": pair for i, pair in enumerate(predicate.names.items())}
    types = {key: master.schema.field(of_master).type for key, (_, of_master) in names.items()}
    left = _key_table({key: stream[of_stream] for key, (of_stream, _) in names.items()}, types)
    right = _key_table({key: master[of_master] for key, (_, of_master) in names.items()}, types)
    if predicate.within is not None:
        return _ask(left, right, _within_sql(predicate.within, types["k0"]))
    return _ask(left, right, " AND ".join(f"s.{key} = m.{key}" for key in names))


def assembled(
    stream: pa.Table,
    master: pa.Table,
    pairs: Pairs,
    predicate: Predicate,
    how: str,
    columns: Sequence[str] | None = None,
    suffix: str = "_master",
) -> pa.Table:
    """Rows in the form of the contract, from the pairs that match."""
    stream_rows, master_rows = pairs
    lonely = np.setdiff1d(np.arange(len(stream)), stream_rows)
    if how == "semi":
        return taken(stream, pa.array(np.unique(stream_rows)))
    if how == "anti":
        return taken(stream, pa.array(lonely))
    if how == "left":
        stream_rows = np.concatenate([stream_rows, lonely])
        absent = np.arange(len(stream_rows)) >= len(master_rows)
        padded = np.concatenate([master_rows, np.zeros(len(lonely), np.int64)])
        master_index = pa.array(padded, pa.int64(), mask=absent)
    else:
        master_index = pa.array(master_rows, pa.int64())
    left = taken(stream, pa.array(stream_rows, pa.int64()))
    right = taken(master.select(master_columns(master, predicate, columns)), master_index)
    for name in right.column_names:
        clash = name in stream.column_names
        left = left.append_column(name + suffix if clash else name, right[name])
    return left


def master_columns(master: pa.Table, predicate: Predicate, columns: Sequence[str] | None) -> list[str]:
    """Master columns of the results: an equality key of the same name is among the stream's already."""
    same = set() if predicate.is_range else {of for name, of in predicate.names.items() if name == of}
    return [n for n in master.column_names if n not in same and (columns is None or n in columns)]


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """`table.take(rows)`, also for view types, which Arrow cannot take from."""
    arrays = [_taken_column(table[name].combine_chunks(), rows) for name in table.column_names]
    if not arrays:
        return table.slice(0, 0)
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(f.name, f.type) for f in table.schema]))


def _taken_column(column: pa.Array, rows: pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        wide = pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary()
        return column.cast(wide).take(rows).cast(column.type)
    return column.take(rows)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def close() -> None:
    """Let go of DuckDB, which complains if the interpreter ends before."""
    _connection().close()
    _connection.cache_clear()


def _ask(stream: pa.Table, master: pa.Table, condition: str) -> Pairs:
    connection = _connection()
    connection.register("stream_keys", stream)
    connection.register("master_keys", master)
    query = f"SELECT s.row AS s, m.row AS m FROM stream_keys s JOIN master_keys m ON {condition}"
    found = connection.execute(query).fetchnumpy()
    connection.unregister("stream_keys")
    connection.unregister("master_keys")
    return np.asarray(found["s"], np.int64), np.asarray(found["m"], np.int64)


def _key_table(columns: dict[str, pa.ChunkedArray], types: dict[str, pa.DataType]) -> pa.Table:
    arrays = {name: comparable(column, types[name]) for name, column in columns.items()}
    rows = len(next(iter(arrays.values())))
    return pa.table({"row": pa.array(np.arange(rows)), **arrays})


def comparable(column: pa.ChunkedArray, master_type: pa.DataType) -> pa.ChunkedArray:
    """The key in a type that DuckDB compares exactly: what it would round becomes integers or strings."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_temporal(master_type):
        narrow = pa.types.is_date32(master_type) or pa.types.is_time32(master_type)
        return column.cast(master_type).cast(pa.int32() if narrow else pa.int64()).cast(pa.int64())
    if pa.types.is_decimal256(master_type):
        return column.cast(master_type).cast(pa.string())
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    return column


def _within_sql(within: Any, key_type: pa.DataType) -> str:
    if pa.types.is_floating(key_type):
        number, reach = "DOUBLE", repr(float(within))
    elif pa.types.is_decimal(key_type):
        exact = within if isinstance(within, Decimal) else Decimal(str(within))
        scale = max(key_type.scale, -int(exact.as_tuple().exponent))
        number, reach = f"DECIMAL(38, {scale})", str(exact)
    else:
        number, reach = "HUGEINT", str(whole_units(within, key_type))
    stream_key, master_key = f"CAST(s.k0 AS {number})", f"CAST(m.k0 AS {number})"
    reach = f"CAST('{reach}' AS {number})"
    return f"{master_key} BETWEEN {stream_key} - {reach} AND {stream_key} + {reach}"


def whole_units(within: Any, key_type: pa.DataType) -> int:
    """`within` in units of an integer or temporal key, rounded down: integers lie no closer."""
    if not isinstance(within, timedelta):
        return math.floor(within)
    nanoseconds = (within // timedelta(microseconds=1)) * 1000
    if pa.types.is_date32(key_type):
        return nanoseconds // _DAY_NANOSECONDS
    unit = "ms" if pa.types.is_date64(key_type) else key_type.unit
    return nanoseconds // _UNIT_NANOSECONDS[unit]


def assert_same_rows(actual: pa.Table, wanted: pa.Table, context: str = "") -> None:
    """The two tables have the same columns and the same multiset of rows, whatever their order."""
    assert_same_schema(actual.schema, wanted.schema)
    actual_ids, wanted_ids = row_ids([actual, wanted])
    size = int(max(actual_ids.max(initial=-1), wanted_ids.max(initial=-1))) + 1
    surplus = np.bincount(actual_ids, minlength=size) - np.bincount(wanted_ids, minlength=size)
    if not surplus.any():
        return
    lines = [f"{context}: {len(actual)} rows instead of {len(wanted)}"]
    lines += _examples("missing", wanted, wanted_ids, -surplus)
    lines += _examples("not wanted", actual, actual_ids, surplus)
    raise AssertionError("\n".join(lines))


def _examples(title: str, table: pa.Table, ids: np.ndarray, excess: np.ndarray, most: int = 3) -> list[str]:
    wrong = np.flatnonzero(excess > 0)
    rows = [int(np.flatnonzero(ids == row_id)[0]) for row_id in wrong[:most]]
    shown = [
        f"  {excess[row_id]} x {_row_text(table, row)}" for row_id, row in zip(wrong, rows, strict=False)
    ]
    return [f"{title}: {int(excess[wrong].sum())} rows, such as", *shown] if shown else []


def _row_text(table: pa.Table, row: int) -> str:
    cells = (f"{name}={table[name][row]!s:.60}" for name in table.column_names)
    return ", ".join(cells)


def assert_same_schema(actual: pa.Schema, wanted: pa.Schema) -> None:
    """The same names and types in the same order."""
    described = [[f"{field.name}: {field.type}" for field in schema] for schema in (actual, wanted)]
    assert described[0] == described[1], f"columns {described[0]} instead of {described[1]}"


def row_ids(tables: Sequence[pa.Table]) -> list[np.ndarray]:
    """For each table one number per row; equal numbers, also across tables, mean equal rows."""
    rows = [len(table) for table in tables]
    ids = np.zeros(sum(rows), np.int64)
    for name in tables[0].column_names:
        chunks = [chunk for table in tables for chunk in table[name].chunks]
        if chunks:
            codes = _codes(pa.concat_arrays([_decoded(chunk) for chunk in chunks]))
            ids = _combined(ids, codes)
    return np.split(ids, np.cumsum(rows)[:-1])


def _combined(ids: np.ndarray, codes: np.ndarray) -> np.ndarray:
    _, dense = np.unique(ids * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return dense.astype(np.int64)


def _decoded(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        # Batches of one stream may bring different dictionaries; only the values count.
        return column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        return column.storage
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _codes(column: pa.Array) -> np.ndarray:
    """A number >= 1 per distinct value, 0 for null. NaN equals NaN; 0.0 and -0.0 differ."""
    kind = column.type
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_floating(kind):
        return _float_codes(column, valid)
    if pa.types.is_struct(kind):
        ids = np.zeros(len(column), np.int64)
        for child in column.flatten():
            ids = _combined(ids, _codes(_decoded(child)))
        return np.where(valid, ids + 1, 0)
    if pa.types.is_nested(kind):
        return _list_codes(column, valid)
    indices = column.dictionary_encode().indices.cast(pa.int64())
    return pc.add(indices, 1).fill_null(0).to_numpy()


def _float_codes(column: pa.Array, valid: np.ndarray) -> np.ndarray:
    # Float16 to float64 keeps values, signs and NaN, so one path serves all widths.
    wide = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(wide), np.int64(-1), wide.view(np.int64))
    _, dense = np.unique(bits, return_inverse=True)
    return np.where(valid, dense + 1, 0)


def _list_codes(column: pa.Array, valid: np.ndarray) -> np.ndarray:
    is_map = pa.types.is_map(column.type)
    size = getattr(column.type, "list_size", None)
    if is_map:
        column = column.cast(
            pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)]))
        )
    lengths = np.where(valid, size, 0) if size else pc.list_value_length(column).fill_null(0).to_numpy()
    items = _codes(_decoded(column.flatten()))
    ends = np.cumsum(lengths)
    known: dict[bytes, int] = {}
    contents = [items[end - length : end].tobytes() for end, length in zip(ends, lengths, strict=True)]
    codes = np.array([known.setdefault(content, len(known) + 1) for content in contents], np.int64)
    return np.where(valid, codes, 0).astype(np.int64)
