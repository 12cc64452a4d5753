"""A model of changes with a sequence, which applies one key and one batch at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from adjoin.master.data_file import read_pages
from adjoin.master.master import Master
from adjoin.master.verify import load_index

_START = datetime(2020, 1, 1)  # noqa: DTZ001 (timestamps without a time zone exist)


@dataclass(frozen=True)
class Change:
    operation: str
    key: int
    value: str
    changed: Any
    tie: int


@dataclass
class Model:
    """Per key, the change with the greatest sequence, the latest of equal ones; plain changes in order."""

    start: list[tuple[int, str]]
    held: dict[int, list[str]] = field(default_factory=dict)
    latest: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in self.start:
            self.held.setdefault(key, []).append(value)

    def apply(self, batch: Sequence[Change], values: list[Any], *, by_tie: bool = False) -> None:
        """Apply changes with a sequence, given the values of the sequence in ascending order."""
        last: dict[int, tuple[int, int, int]] = {}
        for place, change in enumerate(batch):
            rank = (_rank(change.changed, values), change.tie if by_tie else 0, place)
            last[change.key] = max(last.get(change.key, rank), rank)
        for key, (value, _, place) in last.items():
            if value >= self.latest.get(key, (-1, False))[0]:
                is_delete = batch[place].operation == "delete"
                self.latest[key] = (value, is_delete)
                self.held[key] = [] if is_delete else [batch[place].value]

    def apply_plainly(self, batch: Sequence[Change]) -> None:
        for change in batch:
            self.held[change.key] = [] if change.operation == "delete" else [change.value]

    def rows(self) -> list[tuple[int, str]]:
        return [(key, value) for key, values in self.held.items() for value in values]


def _rank(value: Any, values: list[Any]) -> int:
    return next(at for at, other in enumerate(values) if other == value)


def key_table(keys: Sequence[int], kind: str) -> pa.Table:
    """The key columns."""
    if kind == "composite":
        return pa.table(
            {
                "key": pa.array([f"k{key // 2}" for key in keys], pa.string()),
                "part": pa.array([key % 2 for key in keys], pa.int16()),
            }
        )
    if kind == "double":
        special = [0.0, float("nan"), -1.5]
        return pa.table(
            {"key": pa.array([special[key] if key < 3 else key / 7 for key in keys], pa.float64())}
        )
    if kind == "string":
        return pa.table({"key": pa.array([f"k{key}" for key in keys], pa.string())})
    if kind == "timestamp":
        return pa.table(
            {"key": pa.array([_START + timedelta(hours=key) for key in keys], pa.timestamp("us"))}
        )
    return pa.table({"key": pa.array(keys, {"int64": pa.int64(), "int32": pa.int32()}[kind])})


def as_rows(rows: Sequence[tuple[int, str]], kind: str) -> pa.Table:
    table = key_table([key for key, _ in rows], kind)
    return table.append_column("value", pa.array([value for _, value in rows], pa.string()))


def as_changes(batch: Sequence[Change], kind: str, sequence: pa.DataType) -> pa.Table:
    """Changes with the columns `changed` (the sequence) and `tie`, which the master lacks."""
    table = as_rows([(change.key, change.value) for change in batch], kind)
    return (
        table.append_column("_op", pa.array([change.operation for change in batch], pa.string()))
        .append_column("changed", pa.array([change.changed for change in batch], sequence))
        .append_column("tie", pa.array([change.tie for change in batch], pa.int64()))
    )


def latest_table(master: Master) -> pa.Table | None:
    """The relation of latest changes."""
    latest = master.manifest.latest
    if latest is None:
        return None
    relation = latest.relation
    index = load_index(master._home, relation)
    return read_pages(relation.stored, relation.files, index, np.arange(len(index)))


def latest_rows(master: Master, kind: str, values: pa.Array) -> dict[int, tuple[int, bool]]:
    """For each key, by number: which of the values is recorded, and whether it was a delete."""
    table = latest_table(master)
    if table is None:
        return {}
    numbers = {repr(row): number for number, row in enumerate(key_table(range(401), kind).to_pylist())}
    names = [name for name in table.column_names if name.startswith("key_")]
    keys = table.select(names).rename_columns(key_table([], kind).column_names).to_pylist()
    recorded, known = _comparable(table["sequence"]), _comparable(values.cast(table["sequence"].type))
    found = {
        numbers[repr(key)]: (_rank(value, known), deleted)
        for key, value, deleted in zip(keys, recorded, table["deleted"].to_pylist(), strict=True)
    }
    assert len(found) == table.num_rows
    return found


def _comparable(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()
