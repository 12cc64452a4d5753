"""Versions of a master as plain tables, and the stores that are built from them on demand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from adjoin import Master
from adjoin.keys.codec import KeyCodec
from tests.conformance.keys import canonical_keys


class Shelf:
    """Where one test run keeps its stores; a session fixture provides the folder and clears it."""

    directory: Path | None = None
    opened: ClassVar[list[Master]] = []
    page_files: ClassVar[set[str]] = set()

    @classmethod
    def path(cls) -> Path:
        assert cls.directory is not None, "the fixture `shelf` of tests/conformance/conftest.py is missing"
        return cls.directory / uuid4().hex

    @classmethod
    def page_file(cls) -> str:
        """A file that an operator left behind, or a new one."""
        return cls.page_files.pop() if cls.page_files else f"{cls.path()}.pages"

    @classmethod
    def keep(cls, master: Master) -> Master:
        cls.opened.append(master)
        return master

    @classmethod
    def clear(cls) -> None:
        cls.page_files.clear()
        while cls.opened:
            cls.opened.pop().close()


@dataclass(eq=False)
class Snapshot:
    """One version of a master.

    Attributes:
        table: Its rows, in types that the store keeps.
        key: Names of the key columns.
        build: How the store is made; called when an operator first asks for it.
    """

    table: pa.Table
    key: tuple[str, ...]
    build: Callable[[], Master] = field(repr=False)
    succeeded: bool = False

    @cached_property
    def master(self) -> Master:
        return Shelf.keep(self.build())

    def changed(self, changes: pa.Table) -> "Snapshot":
        """The next version: changes are applied to the table row by row, and to the store on demand."""
        assert not self.succeeded, "a store has one successor; build another store for another history"
        self.succeeded = True
        after = applied(self.table, self.key, changes)
        return Snapshot(after, self.key, lambda: self.master.apply(changes))


def snapshot(source: pa.Table, key: str | Sequence[str], **options: Any) -> Snapshot:
    """A first version, by default with the smallest pages allowed."""
    names = (key,) if isinstance(key, str) else tuple(key)
    options = {"page_bytes": 4096, **options}
    return Snapshot(
        stored_form(source),
        names,
        lambda: Master.build(source, key=list(names), path=Shelf.path(), **options),
    )


def colliding(held: Snapshot, hash_bits: int) -> Snapshot:
    """The same rows in a store that keeps only a few bits of the hash, so that keys collide."""

    def build() -> Master:
        with patch.object(KeyCodec, "of", partial(KeyCodec.of, hash_bits=hash_bits)):
            return Master.build(held.table, key=list(held.key), path=Shelf.path(), page_bytes=4096)

    return Snapshot(held.table, held.key, build)


def stored_form(table: pa.Table) -> pa.Table:
    """The table in the types that a store keeps: dictionaries, run ends and views are decoded."""
    columns = [_decoded(column).cast(stored_type(column.type)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return stored_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def applied(table: pa.Table, key: tuple[str, ...], changes: pa.Table) -> pa.Table:
    """What `Master.apply` must produce, computed one change at a time."""
    rows = pa.concat_tables([table, changes.select(table.column_names).cast(table.schema)])
    keys = canonical_keys([rows[name] for name in key], [rows.schema.field(name).type for name in key])
    places: dict[Any, list[int]] = {}
    for row in range(len(table)):
        places.setdefault(keys[row], []).append(row)
    for number, operation in enumerate(changes["_op"].to_pylist()):
        row = len(table) + number
        if operation != "insert":
            places.pop(keys[row], None)
        if operation != "delete":
            places.setdefault(keys[row], []).append(row)
    kept = sorted(row for group in places.values() for row in group)
    return rows.take(pa.array(kept, pa.int64())).combine_chunks()
