"""Columns by identity: how pages that were written with other columns are read as the current ones.

A column keeps its id forever. Its name and type can change, and columns can be added and dropped, without
rewriting pages. A data file knows the layout of its pages: which columns they hold, and in which types.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from adjoin.keys.casts import widens
from adjoin.memory.page_columns import LaidOut, columns_over, read_as

KEY_ID = 0
"""The id of the encoded key; those of other columns start at 1."""


@dataclass(frozen=True)
class PageLayout:
    """The ids of the columns in a page, and the schema it was written with."""

    ids: tuple[int, ...]
    schema: pa.Schema

    def has_shape_of(self, other: "PageLayout") -> bool:
        """Whether both hold the same columns in the same types; names do not matter."""
        return self.ids == other.ids and self.schema.types == other.schema.types


@dataclass(frozen=True)
class StoredColumns:
    """The columns that pages are read as, and the layouts that those pages can have.

    Attributes:
        ids: The ids of the columns.
        schema: Their names and types.
        layouts: The layouts; `DataFile.layout` is a position in this list.
    """

    ids: tuple[int, ...]
    schema: pa.Schema
    layouts: tuple[PageLayout, ...]

    def place_of(self, layout: PageLayout, column: int) -> int | None:
        """The position in a layout of the column at this position here; None if the layout lacks it."""
        wanted = self.ids[column]
        return layout.ids.index(wanted) if wanted in layout.ids else None

    def fault_of(self, layout: PageLayout) -> str:
        """Why pages of this layout cannot be read as these columns; empty if they can."""
        if len(layout.ids) != len(layout.schema) or len(set(layout.ids)) != len(layout.ids):
            return f"a layout has the ids {layout.ids} for {len(layout.schema)} columns"
        for at, field in enumerate(self.schema):
            place = self.place_of(layout, at)
            held = field.type if place is None else layout.schema.field(place).type
            if not widens(held, field.type):
                return f"pages hold {held} where column {field.name!r} is {field.type}"
        return ""

    def laid_out(self) -> LaidOut:
        """Where to find these columns in the pages of each layout."""
        places = [[self.place_of(layout, at) for at in range(len(self.ids))] for layout in self.layouts]
        return columns_over(self.schema, [layout.schema for layout in self.layouts], places)

    def from_layout(self, table: pa.Table, layout: PageLayout) -> pa.Table:
        """Convert rows of pages with this layout to these columns, with nulls for columns they lack."""
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
        """The same columns, with types whose values have the same layout in memory."""
        layouts = tuple(replace(layout, schema=_with_types(layout.schema, plain)) for layout in self.layouts)
        return StoredColumns(self.ids, _with_types(self.schema, plain), layouts)


def _with_types(schema: pa.Schema, plain: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema([field.with_type(plain(field.type)) for field in schema])


def same_shape(layouts: Sequence[PageLayout], wanted: PageLayout) -> int | None:
    """The position of the layout with the same shape as this one, if there is one."""
    return next((at for at, layout in enumerate(layouts) if layout.has_shape_of(wanted)), None)
