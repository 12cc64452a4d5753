"""The manifest: an immutable file that describes one version of the master."""

import base64
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from adjoin.errors import AdjoinError, CorruptionError, SchemaError
from adjoin.keys.codec import KEY_COLUMN, KeyCodec
from adjoin.master.checksummed import with_checksum, without_checksum
from adjoin.master.data_file import DataFile
from adjoin.master.index import PageIndex
from adjoin.master.layout import KEY_ID, PageLayout, StoredColumns, same_shape
from adjoin.memory.arena import BLOCK_BYTES

FORMAT = 2
TXNS_KEPT = 10_000

Txn: TypeAlias = str | tuple[str, int]

_FILE_NAME = re.compile(r"[0-9a-f]{32}\.arrow")
_ENTRIES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("version", "revision", "rows", "pages", "bytes"), (int, object)),
    **dict.fromkeys(("next_column", "page_bytes", "filter_bits"), (int, object)),
    **dict.fromkeys(("id", "created", "schema"), (str, object)),
    **dict.fromkeys(("key", "txns"), (list, str)),
    **dict.fromkeys(("files", "layouts"), (list, dict)),
    **dict.fromkeys(("numbered", "marks"), (dict, int)),
    **dict.fromkeys(("filter", "latest"), (dict | None, object)),
    "columns": (list, int),
    "codec": (dict, object),
    "index": (dict, object),
    "fill": (int | float, object),
}
"""The type of each entry of a manifest, and of the items it contains."""

_DAMAGE = (
    AdjoinError,
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)
"""Errors that reading a damaged manifest can raise."""


@dataclass(frozen=True)
class IndexFile:
    """An index or filter file: its name, its XXH64, and for a filter the number of keys it was sized for."""

    name: str
    checksum: int
    capacity: int = 0


@dataclass(frozen=True)
class Latest:
    """The latest change of each key; see `adjoin.master.latest`.

    Attributes:
        column: The sequence column of the changes.
        relation: A relation of its own, with keys, sequence values and deletes.
        swept: The encoded key up to which expired deletes were last searched for.
    """

    column: str
    relation: "Manifest"
    swept: int


@dataclass(frozen=True)
class Manifest:
    """Everything that defines one version.

    Of change sets that have only a name, the most recent names are remembered (`txns`); of numbered ones, the
    highest number for each name (`numbered`). `marks` are integers that writers keep with the rows.

    Attributes:
        id: The identity of the master, created when it is built: another master at the same path has another.
        revision: Counts changes of rows or columns; a version that only moves pages keeps that of its base.
        columns: The id of each column of the schema.
        next_column: The id of the next column to be added.
        layouts: The layouts of pages; `DataFile.layout` is a position in this list.
        latest: The latest change of each key that was changed with a sequence.
    """

    id: str
    version: int
    revision: int
    created: str
    key: tuple[str, ...]
    codec: KeyCodec
    schema: pa.Schema
    columns: tuple[int, ...]
    next_column: int
    layouts: tuple[PageLayout, ...]
    page_bytes: int
    fill: float
    filter_bits: int
    rows: int
    pages: int
    bytes: int
    files: tuple[DataFile, ...]
    index: IndexFile
    filter: IndexFile | None
    txns: tuple[str, ...] = ()
    numbered: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    latest: Latest | None = None

    @property
    def stored_schema(self) -> pa.Schema:
        return stored_schema(self.schema, self.codec)

    @property
    def stored(self) -> StoredColumns:
        """The columns that pages are read as."""
        return StoredColumns(_stored_ids(self.columns, self.codec), self.stored_schema, self.layouts)

    @property
    def newest_layout(self) -> int:
        """The layout of pages written for this version."""
        found = same_shape(self.layouts, PageLayout(self.stored.ids, self.stored_schema))
        assert found is not None, "the manifest has no layout for new pages"
        return found

    @property
    def key_column(self) -> str:
        """The stored int64 column that rows are sorted by."""
        return key_column(self.codec)

    def has_applied(self, txn: Txn | None) -> bool:
        """Whether this version already contains the change set."""
        if isinstance(txn, tuple):
            name, number = txn
            return number <= self.numbered.get(name, -1)
        return txn is not None and txn in self.txns

    def next(self, txn: Txn | None, marks: Mapping[str, int]) -> "Manifest":
        """The next version, with the same pages."""
        following = replace(
            self,
            version=self.version + 1,
            revision=self.revision + 1,
            created=now(),
            marks={**self.marks, **marks},
        )
        if isinstance(txn, tuple):
            return replace(following, numbered={**self.numbered, txn[0]: txn[1]})
        return replace(following, txns=(*self.txns, txn)[-TXNS_KEPT:]) if txn is not None else following

    def with_pages(
        self,
        index: PageIndex,
        data_files: tuple[DataFile, ...],
        index_file: IndexFile,
        filter_file: IndexFile | None,
    ) -> "Manifest":
        """The same version with other pages; layouts that no page uses are dropped."""
        newest = self.newest_layout
        used = sorted({newest, *(file.layout for file in data_files)})
        data_files = tuple(replace(file, layout=used.index(file.layout)) for file in data_files)
        return replace(
            self,
            layouts=tuple(self.layouts[at] for at in used),
            rows=int(index.rows.sum(dtype=np.int64)),
            pages=len(index),
            bytes=int(index.blocks.sum(dtype=np.int64)) * BLOCK_BYTES,
            files=data_files,
            index=index_file,
            filter=filter_file,
        )

    def relations(self) -> list["Manifest"]:
        """The relations of this version: its rows and, if recorded, the latest changes."""
        return [self, *self.latest.relation.relations()] if self.latest else [self]

    def file_names(self) -> set[str]:
        """Names of all data and index files that this version needs."""
        named: set[str] = set()
        for relation in self.relations():
            named |= {*(file.name for file in relation.files), relation.index.name}
            if relation.filter:
                named.add(relation.filter.name)
        return named

    def to_bytes(self) -> bytearray:
        saved = {"format": FORMAT, **self.to_json()}
        # One line per entry; json's own indentation is slow, and a list of files can be long.
        lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in saved.items())
        body = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
        return bytearray(with_checksum(body))

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "version": self.version,
            "revision": self.revision,
            "created": self.created,
            "key": list(self.key),
            "codec": self.codec.to_json(),
            "schema": _schema_to_json(self.schema),
            "columns": list(self.columns),
            "next_column": self.next_column,
            "layouts": [_layout_to_json(layout) for layout in self.layouts],
            "page_bytes": self.page_bytes,
            "fill": self.fill,
            "filter_bits": self.filter_bits,
            "rows": self.rows,
            "pages": self.pages,
            "bytes": self.bytes,
            "files": [_file_to_json(file) for file in self.files],
            "index": _index_to_json(self.index),
            "filter": _index_to_json(self.filter) if self.filter else None,
            "txns": list(self.txns),
            "numbered": dict(self.numbered),
            "marks": dict(self.marks),
            "latest": {**vars(self.latest), "relation": self.latest.relation.to_json()}
            if self.latest
            else None,
        }

    @classmethod
    def from_bytes(cls, path: str, data: bytearray, data_directory: str) -> "Manifest":
        """Read a manifest.

        Raises:
            CorruptionError: It is damaged.
            SchemaError: It has another format; the message says what to do.
        """
        with _damage_named(path):
            saved = read_saved(path, data)
            _refuse_other_formats(path, saved["format"])
            return cls._from_json(saved, data_directory)

    @classmethod
    def from_first_format(cls, path: str, saved: dict[str, Any], data_directory: str, id_: str) -> "Manifest":
        """Convert a manifest of format 1; its index files keep that format."""
        with _damage_named(path):
            schema = _schema_from_json(saved["schema"])
            key = tuple(saved["key"])
            columns = first_columns(schema, KeyCodec.from_json(saved["codec"], schema, key))
            added = {
                "id": id_,
                "revision": saved["version"],
                "columns": list(columns["columns"]),
                "next_column": columns["next_column"],
                "layouts": [_layout_to_json(layout) for layout in columns["layouts"]],
                "files": [{**file, "layout": 0} for file in saved["files"]],
                "numbered": saved.get("numbered", {}),
                "marks": saved.get("marks", {}),
                "latest": None,
            }
            return cls._from_json({**saved, **added}, data_directory)

    @classmethod
    def _from_json(cls, saved: dict[str, Any], data_directory: str) -> "Manifest":
        _require_types(saved)
        schema = _schema_from_json(saved["schema"])
        key = tuple(saved["key"])
        manifest = cls(
            id=saved["id"],
            version=saved["version"],
            revision=saved["revision"],
            created=saved["created"],
            key=key,
            codec=KeyCodec.from_json(saved["codec"], schema, key),
            schema=schema,
            columns=tuple(saved["columns"]),
            next_column=saved["next_column"],
            layouts=tuple(
                PageLayout(tuple(layout["ids"]), _schema_from_json(layout["schema"]))
                for layout in saved["layouts"]
            ),
            page_bytes=saved["page_bytes"],
            fill=saved["fill"],
            filter_bits=saved["filter_bits"],
            rows=saved["rows"],
            pages=saved["pages"],
            bytes=saved["bytes"],
            files=tuple(_file_from_json(file, data_directory) for file in saved["files"]),
            index=_index_from_json(saved["index"]),
            filter=_index_from_json(saved["filter"]) if saved["filter"] else None,
            txns=tuple(saved["txns"]),
            numbered=saved["numbered"],
            marks=saved["marks"],
            latest=cls._latest_from_json(saved["latest"], data_directory) if saved["latest"] else None,
        )
        manifest._require_consistent()
        return manifest

    def _require_consistent(self) -> None:
        """Raise a ValueError if the entries contradict each other."""
        if not self.key:
            raise ValueError("the key has no column")
        if len(self.columns) != len(self.schema):
            raise ValueError(f"there are {len(self.columns)} ids for {len(self.schema)} columns")
        for layout in self.layouts:
            fault = self.stored.fault_of(layout)
            if fault:
                raise ValueError(fault)
        if any(file.layout >= len(self.layouts) for file in self.files):
            raise ValueError("a file refers to a layout that does not exist")
        if same_shape(self.layouts, PageLayout(self.stored.ids, self.stored_schema)) is None:
            raise ValueError("there is no layout for new pages")

    @classmethod
    def _latest_from_json(cls, saved: dict[str, Any], data_directory: str) -> Latest:
        return Latest(
            column=saved["column"],
            relation=cls._from_json(saved["relation"], data_directory),
            swept=saved["swept"],
        )


def read_saved(path: str, data: bytearray) -> dict[str, Any]:
    """The entries of a manifest of any format; CorruptionError if its checksum differs."""
    body = without_checksum(data)
    if body is None:
        raise CorruptionError(
            f"{path} is damaged (checksum differs); restore it from a copy, or open an older version"
        )
    with _damage_named(path):
        saved: dict[str, Any] = json.loads(body)
        return saved


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Report every error in a manifest as damage to this file."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, AdjoinError) and path in str(error):
            raise
        raise CorruptionError(
            f"{path} is damaged ({type(error).__name__}: {error}); restore it from a copy, or open an "
            "older version"
        ) from error


def _require_types(saved: dict[str, Any]) -> None:
    """Raise a TypeError or ValueError if an entry has a type or value that is never written."""
    for name, (type_, items) in _ENTRIES.items():
        value = saved[name]
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        if not isinstance(value, type_) or not all(isinstance(each, items) for each in inner):
            raise TypeError(f"{name} is {value!r:.100}")
    if any(saved[name] < 0 for name in ("version", "revision", "rows", "pages", "bytes")):
        raise ValueError("a number is negative")
    named = [*saved["files"], saved["index"], *([saved["filter"]] if saved["filter"] else [])]
    for file in named:
        if not _FILE_NAME.fullmatch(file["name"]):
            raise ValueError(f"{file['name']!r:.100} is not the name of an adjoin file")
    for name in ("bytes", "header_bytes", "footer_bytes", "layout"):
        if not all(isinstance(file[name], int) and file[name] >= 0 for file in saved["files"]):
            raise TypeError(f"{name} of a file is not a number")


def new_id() -> str:
    """A unique identity for a new master."""
    return uuid.uuid4().hex


def first_columns(schema: pa.Schema, codec: KeyCodec) -> dict[str, Any]:
    """The ids and the layout of a new master, as fields of its manifest."""
    ids = tuple(range(KEY_ID + 1, KEY_ID + 1 + len(schema)))
    layout = PageLayout(_stored_ids(ids, codec), stored_schema(schema, codec))
    return {"columns": ids, "next_column": KEY_ID + 1 + len(schema), "layouts": (layout,)}


def _stored_ids(columns: tuple[int, ...], codec: KeyCodec) -> tuple[int, ...]:
    return columns if codec.kind == "identity" else (KEY_ID, *columns)


def key_column(codec: KeyCodec) -> str:
    return codec.columns[0] if codec.kind == "identity" else KEY_COLUMN


def stored_schema(schema: pa.Schema, codec: KeyCodec) -> pa.Schema:
    """The columns of the data files: the user's columns, preceded by the encoded key if it is stored."""
    if codec.kind == "identity":
        return schema
    return schema.insert(0, pa.field(KEY_COLUMN, pa.int64(), nullable=False))


def _refuse_other_formats(path: str, found: object) -> None:
    if found == FORMAT:
        return
    master = os.path.dirname(os.path.dirname(path))
    cure = f"run adjoin.Master.migrate({master!r}) once" if found == 1 else "use a newer adjoin"
    raise SchemaError(f"{path} has format {found}, but this adjoin reads format {FORMAT}: {cure}")


def _layout_to_json(layout: PageLayout) -> dict[str, Any]:
    return {"ids": list(layout.ids), "schema": _schema_to_json(layout.schema)}


def _schema_to_json(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_from_json(saved: str) -> pa.Schema:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(saved)))
    _require_names(schema)
    return schema


def _require_names(fields: Iterable[pa.Field]) -> None:
    """Raise a ValueError if a name, at any depth, is not UTF-8: Arrow decodes names only on access."""
    for field_ in fields:
        type_ = field_.type.value_type if pa.types.is_dictionary(field_.type) else field_.type
        field_.name.encode()
        _require_names(type_.field(at) for at in range(type_.num_fields))


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _file_to_json(file: DataFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "bytes": file.bytes,
        "header_bytes": file.header_bytes,
        "footer_bytes": file.footer_bytes,
        "checksum": f"{file.checksum:016x}",
        "layout": file.layout,
    }


def _file_from_json(saved: dict[str, Any], directory: str) -> DataFile:
    return DataFile(
        saved["name"],
        os.path.join(directory, saved["name"]),
        saved["bytes"],
        saved["header_bytes"],
        saved["footer_bytes"],
        int(saved["checksum"], 16),
        saved["layout"],
    )


def _index_to_json(file: IndexFile) -> dict[str, Any]:
    return {"name": file.name, "checksum": f"{file.checksum:016x}", "capacity": file.capacity}


def _index_from_json(saved: dict[str, Any]) -> IndexFile:
    return IndexFile(saved["name"], int(saved["checksum"], 16), saved["capacity"])
