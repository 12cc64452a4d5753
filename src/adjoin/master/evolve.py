"""Changes of a master's columns, which leave its pages alone.

A version that adds, drops, widens or renames columns names the same data files; pages are read through
`adjoin.master.layout`. Readers that started with the columns of an earlier version keep them; see `View`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from adjoin import arguments
from adjoin.errors import MasterReplacedError, OptionError, SchemaError
from adjoin.keys.casts import stored_type, widens
from adjoin.keys.codec import KEY_COLUMN
from adjoin.master.changes import OPERATION_COLUMN
from adjoin.master.layout import PageLayout, same_shape
from adjoin.master.manifest import Manifest

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_MOST_LAYOUTS = 64


@dataclass(frozen=True)
class Evolution:
    """Changes of columns, each under the column's old name; see `Master.evolve`."""

    add: Mapping[str, pa.DataType]
    drop: tuple[str, ...]
    widen: Mapping[str, pa.DataType]
    rename: Mapping[str, str]

    @classmethod
    def of(
        cls,
        add: Mapping[str, Any] | None = None,
        drop: str | Sequence[str] = (),
        widen: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> "Evolution":
        """Validate the arguments of `Master.evolve`, as far as that is possible without a master."""
        for option, given in (("add", add), ("widen", widen), ("rename", rename)):
            if not isinstance(given, Mapping | None):
                raise OptionError(f"{option}={given!r}: give a dictionary with column names as keys")
        names = (drop,) if isinstance(drop, str) else arguments.names("drop", drop)
        for name in (*names, *(add or {}), *(rename or {}).values()):
            if not (isinstance(name, str) and name and arguments.is_utf8(name)):
                raise OptionError(
                    f"{name!r} is not a column name; give a string that is not empty, without lone surrogates"
                )
        return cls(
            add={name: _type_of(name, given) for name, given in (add or {}).items()},
            drop=names,
            widen={name: _type_of(name, given) for name, given in (widen or {}).items()},
            rename=dict(rename or {}),
        )

    @property
    def is_empty(self) -> bool:
        return not (self.add or self.drop or self.widen or self.rename)


def _type_of(name: str, given: object) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    decimal = _DECIMAL.fullmatch(given) if isinstance(given, str) else None
    try:
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if isinstance(given, str):
            return _TYPES.get(given) or pa.type_for_alias(given)
    except (ValueError, pa.ArrowInvalid):
        pass
    raise OptionError(
        f"unknown type {given!r} for column {name!r}; give a pyarrow type, or a name such as 'string', "
        "'bigint', 'decimal(10,2)' or 'timestamp'"
    )


def evolved(manifest: Manifest, changes: Evolution) -> Manifest:
    """The same version with changed columns; SchemaError if the change is not possible."""
    _check_names(manifest, changes)
    fields: list[pa.Field] = []
    ids: list[int] = []
    for field, id_ in zip(manifest.schema, manifest.columns, strict=True):
        if field.name not in changes.drop:
            fields.append(_evolved_field(manifest, field, changes))
            ids.append(id_)
    for name, type_ in changes.add.items():
        fields.append(pa.field(name, _addable(name, type_)))
    ids += range(manifest.next_column, manifest.next_column + len(changes.add))
    key = tuple(changes.rename.get(name, name) for name in manifest.key)
    following = replace(
        manifest,
        schema=pa.schema(fields, manifest.schema.metadata),
        columns=tuple(ids),
        next_column=manifest.next_column + len(changes.add),
        key=key,
        codec=replace(manifest.codec, columns=key),
    )
    if manifest.latest is not None:
        sequence = changes.rename.get(manifest.latest.column, manifest.latest.column)
        following = replace(following, latest=replace(manifest.latest, column=sequence))
    return _with_layout(following)


def _check_names(manifest: Manifest, changes: Evolution) -> None:
    names = manifest.schema.names
    touched = [*changes.drop, *changes.widen, *changes.rename]
    for name in touched:
        if name not in names:
            raise SchemaError(f"the master has no column {name!r}; it has {names}")
    for name in changes.drop:
        if name in manifest.key:
            raise SchemaError(
                f"column {name!r} cannot be dropped, because it is part of the key {list(manifest.key)}; "
                "build a new master with another key"
            )
        if name in changes.widen or name in changes.rename:
            raise OptionError(f"column {name!r} is both dropped and changed; do one or the other")
    kept = [changes.rename.get(name, name) for name in names if name not in changes.drop]
    after = [*kept, *changes.add]
    for name in after:
        if after.count(name) > 1:
            raise SchemaError(f"two columns would be named {name!r}; choose another name")
        if name in (KEY_COLUMN, OPERATION_COLUMN):
            raise SchemaError(f"adjoin reserves the column name {name!r}; choose another")


def _evolved_field(manifest: Manifest, field: pa.Field, changes: Evolution) -> pa.Field:
    if field.name in changes.widen:
        field = field.with_type(_widened(manifest, field, changes.widen[field.name]))
    return field.with_name(changes.rename.get(field.name, field.name))


def _widened(manifest: Manifest, field: pa.Field, wanted: pa.DataType) -> pa.DataType:
    """The wanted type, if it can hold every value of the old type and Arrow can cast them."""
    name, given = field.name, field.type
    if name in manifest.key:
        raise SchemaError(
            f"column {name!r} cannot be widened, because it is part of the key, whose encoding would change; "
            "build a new master"
        )
    is_ = pa.types
    # A finer unit has a smaller range.
    is_time = is_.is_timestamp(given) or is_.is_duration(given) or is_.is_time(given)
    if is_time or not widens(given, wanted) or not stored_type(name, wanted).equals(wanted):
        raise SchemaError(
            f"column {name!r} cannot be widened from {given} to {wanted} without changing some values; "
            "add a column of that type and fill it with apply"
        )
    try:
        pa.nulls(0, given).cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise SchemaError(f"column {name!r} cannot be widened from {given} to {wanted}: {error}") from error
    return wanted


def _addable(name: str, type_: pa.DataType) -> pa.DataType:
    stored = stored_type(name, type_)
    if not stored.equals(type_):
        raise SchemaError(f"column {name!r} cannot be stored as {type_}; add it with the type {stored}")
    return type_


def _with_layout(manifest: Manifest) -> Manifest:
    """The manifest, with a layout for the pages that will be written for it."""
    newest = PageLayout(manifest.stored.ids, manifest.stored_schema)
    used = {file.layout for file in manifest.files}
    kept = [at for at in range(len(manifest.layouts)) if at in used]
    layouts = [manifest.layouts[at] for at in kept]
    if same_shape(layouts, newest) is None:
        layouts.append(newest)
    if len(layouts) > _MOST_LAYOUTS:
        raise SchemaError(
            f"the pages of the master already have {len(layouts) - 1} different layouts; rewrite them with "
            "Master.compact() first"
        )
    files = tuple(replace(file, layout=kept.index(file.layout)) for file in manifest.files)
    return replace(manifest, layouts=tuple(layouts), files=files)


@dataclass(frozen=True)
class View:
    """The columns as which a query or an operator reads a master, however they are changed later.

    Attributes:
        master: The id of the master.
        columns: The ids of the columns.
        schema: Their names and types.
        key: The names of the key columns.
    """

    master: str
    columns: tuple[int, ...]
    schema: pa.Schema
    key: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest, names: Sequence[str] | None = None) -> "View":
        """All columns, or the key and the given ones."""
        chosen = [
            at
            for at, name in enumerate(manifest.schema.names)
            if names is None or name in names or name in manifest.key
        ]
        schema = pa.schema([manifest.schema.field(at) for at in chosen])
        return cls(manifest.id, tuple(manifest.columns[at] for at in chosen), schema, manifest.key)

    def through(self, manifest: Manifest, path: str) -> Manifest:
        """The manifest of a version, with these columns.

        Raises:
            MasterReplacedError: It is a version of another master.
            SchemaError: The version lacks a column; the message says which.
        """
        refuse_other(manifest, self.master, path)
        for id_, field in zip(self.columns, self.schema, strict=True):
            if id_ not in manifest.columns:
                raise SchemaError(
                    f"version {manifest.version} of {path} has no column {field.name!r}, only "
                    f"{manifest.schema.names}; restart the query or operator without it"
                )
        codec = replace(manifest.codec, columns=self.key)
        return replace(manifest, schema=self.schema, columns=self.columns, key=self.key, codec=codec)


class Identified(Protocol):
    """A version of a master, or its manifest."""

    @property
    def id(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...


def refuse_other(found: Identified, wanted: str, path: str) -> None:
    """Raise a MasterReplacedError unless this is a version of the master with the wanted id."""
    if found.id != wanted:
        raise MasterReplacedError(
            f"another master was built at {path} since this one was opened: it has the id {found.id} and the "
            f"columns {found.schema.names}, expected was the id {wanted}; open the master again, and restart "
            "the queries and operators that read it"
        )
