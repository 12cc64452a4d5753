"""Columns by identity: how pages that were written with other columns are read as the columns of today.

A column has an id for life. Its name and its type can change, and columns come and go; pages are not
rewritten for that. A data file knows the layout of its pages: which columns they hold, and in which types.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from adjoin.keys.casts import widens
from adjoin.memory.page_columns import LaidOut, columns_over, read_as

KEY_ID = 0
"""The encoded key; the ids of other columns begin with 1."""


@dataclass(frozen=True)
class PageLayout:
    """What pages hold: the ids of their columns, and the schema they were written with."""

    ids: tuple[int, ...]
    schema: pa.Schema

    def has_shape_of(self, other: "PageLayout") -> bool:
        """Whether both hold the same columns in the same types; names do not matter."""
        return self.ids == other.ids and self.schema.types == other.schema.types


@dataclass(frozen=True)
class StoredColumns:
    """The columns as which pages are read, and the layouts that those pages can have.

    Attributes:
        ids: The columns.
        schema: Their names and types.
        layouts: `DataFile.layout` counts in these.
    """

    ids: tuple[int, ...]
    schema: pa.Schema
    layouts: tuple[PageLayout, ...]

    def place_of(self, layout: PageLayout, column: int) -> int | None:
        """Where a layout has the column with this place here; None if it lacks it."""
        wanted = self.ids[column]
        return layout.ids.index(wanted) if wanted in layout.ids else None

    def fault_of(self, layout: PageLayout) -> str:
        """Why pages of this layout cannot be read as these columns, else nothing."""
        if len(layout.ids) != len(layout.schema) or len(set(layout.ids)) != len(layout.ids):
            return f"a layout has the ids {layout.ids} for {len(layout.schema)} columns"
        for at, field in enumerate(self.schema):
            place = self.place_of(layout, at)
            held = field.type if place is None else layout.schema.field(place).type
            if not widens(held, field.type):
                return f"pages hold {held} where column {field.name!r} is {field.type}"
        return ""

    def laid_out(self) -> LaidOut:
        """Where kernels find these columns in pages of each layout."""
        places = [[self.place_of(layout, at) for at in range(len(self.ids))] for layout in self.layouts]
        return columns_over(self.schema, [layout.schema for layout in self.layouts], places)

    def as_of_today(self, table: pa.Table, layout: PageLayout) -> pa.Table:
        """Rows of pages with this layout in these columns: nulls where they lack one."""
        if layout.ids == self.ids and layout.schema.types == self.schema.types:
            return pa.Table.from_arrays(table.columns, schema=self.schema)
        columns = []
        for at, field in enumerate(self.schema):
            place = self.place_of(layout, at)
            if place is None:
                columns.append(pa.nulls(table.num_rows, field.type))
            else:
                columns.append(read_as(field.name, table.column(place), field.type))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def with_types(self, plain: Callable[[pa.DataType], pa.DataType]) -> "StoredColumns":
        """The same columns in types whose values lie in memory alike."""
        layouts = tuple(replace(layout, schema=_with_types(layout.schema, plain)) for layout in self.layouts)
        return StoredColumns(self.ids, _with_types(self.schema, plain), layouts)


def _with_types(schema: pa.Schema, plain: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema([field.with_type(plain(field.type)) for field in schema])


def same_shape(layouts: Sequence[PageLayout], wanted: PageLayout) -> int | None:
    """The number of the layout with the shape of this one, if there is one."""
    return next((at for at, layout in enumerate(layouts) if layout.has_shape_of(wanted)), None)
