"""Arrow columns of pages that lie undecoded in the arena.

A page is the bytes of an Arrow record batch message. A `Column` knows which of the message's
buffers belong to it; `PageColumns` copies its values at any (slot, row) places into a new Arrow array.
Nested columns are processed level by level, with one kernel per level for all rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from adjoin.errors import SchemaError
from adjoin.kernels import gather, scatter
from adjoin.kernels.pages import LACKING
from adjoin.kernels.types import Array
from adjoin.memory.arena import Arena

NO_BUFFER = -1
_PLACE_BYTES = 8
_MOST_ITEMS = 1 << 31
"""The most items of a list whose items take no room."""
_MEASURING_BYTES = 64
"""Memory needed to determine the size of one item of varying length."""
_MIXED_COPIES = 3
"""Values from pages of several layouts are copied, concatenated, and reordered."""


@dataclass(frozen=True)
class Column:
    """One field of the stored schema, or one level of a nested field.

    Attributes:
        type: Its Arrow type.
        kind: "null", "bits", "fixed", "bytes", "list", "fixed_list" or "struct".
        width: Bytes of a value or of an offset, or the number of items of a fixed-size list.
        buffers: Ordinals of its own buffers in the record batch, validity first.
        children: The next level of a nested field.
        name: Its name, for errors.
        others: The same column with the types it has in pages of other layouts.
        is_lacking: Whether some pages lack the column; their rows have nulls.
    """

    type: pa.DataType
    kind: str
    width: int
    buffers: tuple[int, ...]
    children: tuple["Column", ...] = ()
    name: str = ""
    others: tuple["Column", ...] = ()
    is_lacking: bool = False

    @property
    def is_mixed(self) -> bool:
        """Whether pages differ in the type or presence of the column."""
        return bool(self.others) or self.is_lacking

    @property
    def fixed_bytes(self) -> int | None:
        """Bytes of a value with its validity, if all values have the same size."""
        if self.kind in ("null", "bits", "fixed"):
            return self.width + 1
        children = [child.fixed_bytes for child in self.children]
        if self.kind != "struct" or None in children:
            return None
        return 1 + sum(child for child in children if child is not None)

    def all_buffers(self) -> Iterator[int]:
        yield from self.buffers
        for column in (*self.children, *self.others):
            yield from column.all_buffers()


def columns_of(schema: pa.Schema) -> list[Column]:
    """The columns of a record batch, with ordinals in the order of buffers in its message."""
    ordinals = iter(range(1 << 30))
    return [_column(field.type, ordinals) for field in schema]


@dataclass(frozen=True)
class LaidOut:
    """The columns of pages that can have several layouts.

    Attributes:
        columns: The columns; buffers that several layouts have in common share an ordinal.
        ordinals: By layout and ordinal, the ordinal of the buffer in such pages; -1 where they lack it.
    """

    columns: list[Column]
    ordinals: Array


def columns_over(
    wanted: pa.Schema, layouts: Sequence[pa.Schema], places: Sequence[Sequence[int | None]]
) -> LaidOut:
    """The columns of a schema in pages of these layouts.

    Args:
        wanted: Names and types of the wanted columns.
        layouts: The schemas of pages.
        places: By layout and wanted column, its position in the layout; None if pages lack it.
    """
    held = [columns_of(layout) for layout in layouts]
    ordinals: list[dict[int, int]] = [{} for _ in layouts]
    unused = iter(range(1 << 30))
    columns = []
    for at, field in enumerate(wanted):
        forms: list[Column] = []
        for number, layout in enumerate(places):
            place = layout[at]
            if place is not None:
                _add_form(forms, held[number][place], ordinals[number], unused)
        columns.append(_wanted_column(field, forms, any(layout[at] is None for layout in places), unused))
    table = np.full((len(layouts), next(unused)), NO_BUFFER, np.int64)
    for number, known in enumerate(ordinals):
        for ours, theirs in known.items():
            table[number, ours] = theirs
    return LaidOut(columns, table)


def _add_form(forms: list[Column], held: Column, ordinals: dict[int, int], unused: Iterator[int]) -> None:
    """Register the form in which pages of a layout hold a column, if it is a new one."""
    same = next((form for form in forms if form.type.equals(held.type)), None)
    if same is None:
        same = _column(held.type, unused)
        forms.append(same)
    ordinals.update(zip(same.all_buffers(), held.all_buffers(), strict=True))


def _wanted_column(field: pa.Field, forms: list[Column], is_lacking: bool, unused: Iterator[int]) -> Column:
    storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    main = next((form for form in forms if form.type.equals(storage)), None)
    if main is None:
        main = _column(storage, unused)
    others = tuple(form for form in forms if form is not main)
    return replace(main, name=field.name, others=others, is_lacking=is_lacking)


def read_as(name: str, values: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Cast values from pages of another layout to this type; SchemaError if one does not fit."""
    if values.type.equals(type_):
        return values
    try:
        return values.cast(type_)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"column {name!r} was widened to {values.type}, and {type_} cannot hold all of its values: "
            f"{error}; restart the query or operator, so that it reads the column as {values.type}"
        ) from error


def _column(type_: pa.DataType, ordinals: Iterator[int]) -> Column:
    if isinstance(type_, pa.BaseExtensionType):
        return _column(type_.storage_type, ordinals)
    kind, width, own = _shape(type_)
    buffers = tuple(next(ordinals) for _ in range(own))
    children = tuple(_column(type_.field(i).type, ordinals) for i in range(type_.num_fields))
    return Column(type_, kind, width, buffers, children)


def _shape(type_: pa.DataType) -> tuple[str, int, int]:
    """Kind, width and number of buffers of its own."""
    for matches, shape in _SHAPES:
        if any(match(type_) for match in matches):
            return shape
    if pa.types.is_fixed_size_list(type_):
        return "fixed_list", type_.list_size, 1
    try:
        return "fixed", type_.bit_width // 8, 2
    except ValueError:
        raise SchemaError(f"unsupported column type {type_}; cast such columns first") from None


_SHAPES = (
    ((pa.types.is_null,), ("null", 0, 0)),
    ((pa.types.is_boolean,), ("bits", 0, 2)),
    ((pa.types.is_string, pa.types.is_binary), ("bytes", 4, 3)),
    ((pa.types.is_large_string, pa.types.is_large_binary), ("bytes", 8, 3)),
    ((pa.types.is_list, pa.types.is_map), ("list", 4, 2)),
    ((pa.types.is_large_list,), ("list", 8, 2)),
    ((pa.types.is_struct,), ("struct", 0, 1)),
)


class PageColumns:
    """The wanted columns of the pages in an arena.

    Args:
        arena: The arena with the pages.
        columns: The wanted columns.
        ordinals: See `LaidOut.ordinals`; by default all pages have the layout of the columns.

    Attributes:
        wanted: Ordinals of the buffers to locate when a page is read, by layout.
        offsets: Where each wanted buffer begins, by (buffer, slot), relative to the slot's base.
        rows: Number of rows of the page in each slot.
        blame: Given a slot whose page is inconsistent, returns the error that says what is damaged.
    """

    def __init__(self, arena: Arena, columns: list[Column], ordinals: Array | None = None) -> None:
        self._arena = arena
        wanted = sorted({ordinal for column in columns for ordinal in column.all_buffers()})
        self._position = {ordinal: i for i, ordinal in enumerate(wanted)}
        own = np.array([wanted], np.int64)
        self.wanted: Array = own if ordinals is None else np.ascontiguousarray(ordinals[:, wanted])
        count = len(wanted) * arena.all_slots
        self.offsets: Array = arena.memory.array("offsets", count, np.int32).reshape(-1, arena.all_slots)
        self.rows: Array = arena.memory.array("rows", arena.all_slots, np.int32)
        self._views = {width: arena.view(width) for width in (1, 2, 4, 8)}
        self.blame: Callable[[int], Exception] = lambda slot: arena.memory.damage(f"what is in slot {slot}")

    @staticmethod
    def bytes_per_slot(columns: list[Column]) -> int:
        """Bytes of bookkeeping per slot."""
        return 4 + 4 * len({ordinal for column in columns for ordinal in column.all_buffers()})

    def close(self) -> None:
        """Release the memory."""
        self.offsets = self.offsets[:, :0].copy()
        self.rows = self.rows[:0].copy()
        self._views.clear()

    def offset(self, ordinal: int) -> Array:
        return self.offsets[self._position[ordinal]]

    def move(self, source: Array, target: Array) -> None:
        """Update the bookkeeping after pages moved from `source` to `target` slots."""
        self.offsets[:, target] = self.offsets[:, source]
        self.rows[target] = self.rows[source]

    def take(self, column: Column, places: "Places") -> pa.Array:
        """The column's values at these places."""
        if column.is_mixed:
            return self._take_mixed(column, places)
        if column.kind == "null":
            return pa.nulls(len(places))
        validity, nulls = self._validity(column.buffers[0], places)
        body, children = getattr(self, f"_{column.kind}")(column, places)
        return pa.Array.from_buffers(
            column.type, len(places), [validity, *body], null_count=nulls, children=children or None
        )

    def put(self, column: Column, places: "Places", values: pa.Array) -> None:
        """Write values of a fixed width to these places, in slots that were laid out for them."""
        if column.kind == "null":
            return
        self.put_validity(column, places, values)
        data, first = values.buffers()[1], values.offset
        if column.kind == "bits":
            source = self._target(column.buffers[1], 1)
            bits = np.frombuffer(data, np.uint8)
            scatter.scatter_bits(*source, places.slots, places.rows, bits, first)
        elif column.width in self._views:
            source = self._target(column.buffers[1], column.width)
            words = np.frombuffer(data, source[0].dtype)[first : first + len(values)]
            scatter.scatter_words(*source, places.slots, places.rows, words)
        else:
            source = self._target(column.buffers[1], 1)
            wide = np.frombuffer(data, np.uint8)[first * column.width :]
            scatter.scatter_wide(*source, places.slots, places.rows, column.width, wide)

    def put_validity(self, column: Column, places: "Places", values: pa.Array | None) -> None:
        """Write which values are not null, in slots that have validity bits; without values, all of them."""
        if not gather.any_present(places.slots, self.offset(column.buffers[0])):
            return
        bits, first = np.full(len(places) // 8 + 1, 255, np.uint8), 0
        if values is not None and values.buffers()[0] is not None:
            bits, first = np.frombuffer(values.buffers()[0], np.uint8), values.offset
        scatter.scatter_bits(*self._target(column.buffers[0], 1), places.slots, places.rows, bits, first)

    def value_bytes(self, column: Column, places: "Places") -> Array | int:
        """Bytes that `take` needs for each place: for its value, and for the places of list items."""
        if column.is_mixed:
            return self._mixed_bytes(column, places)
        if column.fixed_bytes is not None:
            return column.fixed_bytes
        if column.kind == "struct":
            return 1 + sum(self.value_bytes(child, places) for child in column.children)
        _, ends = self._spans(column, places)
        if column.kind == "bytes":
            return np.diff(ends) + (column.width + 1)
        if column.children[0].fixed_bytes is not None:
            return np.diff(ends) * (column.children[0].fixed_bytes + _PLACE_BYTES) + 9
        per_item = self.value_bytes(column.children[0], self._items(column, places)) + _PLACE_BYTES
        running = np.concatenate([[0], np.cumsum(per_item)])
        return running[ends[1:]] - running[ends[:-1]] + 9

    def measuring_bytes(self, column: Column, places: "Places") -> Array | int:
        """Bytes that `value_bytes` itself needs for each place, if it has to look at the items of lists."""
        if column.is_mixed and column.fixed_bytes is None:
            return self._mixed_measuring_bytes(column, places)
        if column.fixed_bytes is not None or column.kind == "bytes":
            return 0
        if column.kind == "struct":
            return sum(self.measuring_bytes(child, places) for child in column.children)
        if column.children[0].fixed_bytes is not None:
            return 0
        return np.diff(self._spans(column, places)[1]) * _MEASURING_BYTES

    def _forms(self, column: Column, places: "Places") -> Iterator[tuple[Column, Array]]:
        """The forms in which pages hold the column, each with its places."""
        for form in (replace(column, others=(), is_lacking=False), *column.others):
            if form.buffers:
                yield form, np.flatnonzero(self.offset(form.buffers[0])[places.slots] != LACKING)

    def _take_mixed(self, column: Column, places: "Places") -> pa.Array:
        """Values from pages that hold the column in several forms, or lack it."""
        arrays, order = [], []
        for form, chosen in self._forms(column, places):
            if len(chosen) == len(places):
                return read_as(column.name, self.take(form, places), column.type)
            if len(chosen):
                arrays.append(read_as(column.name, self.take(form, places.choose(chosen)), column.type))
                order.append(chosen)
        known = np.concatenate([np.empty(0, np.int64), *order])
        lacking = np.setdiff1d(np.arange(len(places)), known, assume_unique=True)
        arrays.append(pa.nulls(len(lacking), column.type))
        place_of = np.empty(len(places), np.int64)
        place_of[np.concatenate([known, lacking])] = np.arange(len(places))
        return pa.concat_arrays(arrays).take(pa.array(place_of))

    def _mixed_bytes(self, column: Column, places: "Places") -> Array | int:
        if column.fixed_bytes is not None:
            return _MIXED_COPIES * column.fixed_bytes
        sizes = np.full(len(places), _PLACE_BYTES + 1, np.int64)
        for form, chosen in self._forms(column, places):
            sizes[chosen] += self.value_bytes(form, places.choose(chosen))
        return _MIXED_COPIES * sizes

    def _mixed_measuring_bytes(self, column: Column, places: "Places") -> Array | int:
        sizes = np.zeros(len(places), np.int64)
        for form, chosen in self._forms(column, places):
            sizes[chosen] += self.measuring_bytes(form, places.choose(chosen))
        return sizes

    def _validity(self, ordinal: int, places: "Places") -> tuple[pa.Buffer | None, int]:
        if not gather.any_present(places.slots, self.offset(ordinal)):
            return None, 0
        return self._bit_buffer(ordinal, places)

    def _bit_buffer(self, ordinal: int, places: "Places") -> tuple[pa.Buffer, int]:
        out = np.zeros((len(places) + 7) // 8, np.uint8)
        zeros, bad = gather.gather_bits(*self._source(ordinal, 1), places.slots, places.rows, out)
        self.require(bad)
        return pa.py_buffer(out), zeros

    def _source(self, ordinal: int, width: int) -> tuple[Array, Array, Array, Array]:
        return self._views[width], self._arena.slot_base, self._arena.rooms, self.offset(ordinal)

    def _target(self, ordinal: int, width: int) -> tuple[Array, Array, Array]:
        return self._views[width], self._arena.slot_base, self.offset(ordinal)

    def require(self, bad_slot: int) -> None:
        """Raise an error if a kernel has found an inconsistent page in a slot."""
        if bad_slot != gather.SOUND:
            raise self.blame(bad_slot)

    def _spans(self, column: Column, places: "Places") -> tuple[Array, Array]:
        """Where each place's items begin in its page, or its bytes in the arena, and their running total."""
        ordinal = column.buffers[-1] if column.kind == "fixed_list" else column.buffers[1]
        if ordinal not in places.spans:
            begin = np.empty(len(places), np.int64)
            ends = np.empty(len(places) + 1, np.int64)
            if column.kind == "fixed_list":
                np.multiply(places.rows, column.width, out=begin)
                ends[:] = np.arange(len(places) + 1, dtype=np.int64) * column.width
            elif column.kind == "bytes":
                source, data = self._source(ordinal, column.width), self.offset(column.buffers[2])
                self.require(gather.gather_extents(*source, data, places.slots, places.rows, begin, ends))
            else:
                source = self._source(ordinal, column.width)
                most = 8 if _has_values(column) else _MOST_ITEMS
                self.require(gather.gather_spans(*source, places.slots, places.rows, most, begin, ends))
            places.spans[ordinal] = begin, ends
        return places.spans[ordinal]

    def _items(self, column: Column, places: "Places") -> "Places":
        return Places(*gather.spread_items(places.slots, *self._spans(column, places)))

    def _bits(self, column: Column, places: "Places") -> tuple[list[pa.Buffer], list[pa.Array]]:
        return [self._bit_buffer(column.buffers[1], places)[0]], []

    def _fixed(self, column: Column, places: "Places") -> tuple[list[pa.Buffer], list[pa.Array]]:
        width, ordinal = column.width, column.buffers[1]
        if width in self._views:
            out = np.empty(len(places), self._views[width].dtype)
            bad = gather.gather_words(*self._source(ordinal, width), places.slots, places.rows, out)
        else:
            out = np.zeros(len(places) * width, np.uint8)
            bad = gather.gather_wide(*self._source(ordinal, 1), places.slots, places.rows, width, out)
        self.require(bad)
        return [pa.py_buffer(out)], []

    def _bytes(self, column: Column, places: "Places") -> tuple[list[pa.Buffer], list[pa.Array]]:
        begin, ends = self._spans(column, places)
        out = np.empty(int(ends[-1]), np.uint8)
        gather.gather_bytes(self._views[1], begin, ends, out)
        return [_offset_buffer(ends, column.width), pa.py_buffer(out)], []

    def _list(self, column: Column, places: "Places") -> tuple[list[pa.Buffer], list[pa.Array]]:
        _, ends = self._spans(column, places)
        items = self.take(column.children[0], self._items(column, places))
        return [_offset_buffer(ends, column.width)], [items]

    def _fixed_list(self, column: Column, places: "Places") -> tuple[list[pa.Buffer], list[pa.Array]]:
        return [], [self.take(column.children[0], self._items(column, places))]

    def _struct(self, column: Column, places: "Places") -> tuple[list[pa.Buffer], list[pa.Array]]:
        return [], [self.take(child, places) for child in column.children]


class Places:
    """Rows of pages in the arena: (slots[i], rows[i]).

    Attributes:
        spans: For columns of varying length, by buffer: where each place's values begin in its page,
            and their running total. Computed once, to measure and to copy.
    """

    def __init__(self, slots: Array, rows: Array) -> None:
        self.slots = slots
        self.rows = rows
        self.spans: dict[int, tuple[Array, Array]] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def choose(self, chosen: Array) -> "Places":
        return Places(self.slots[chosen], self.rows[chosen])

    def slice(self, begin: int, end: int) -> "Places":
        part = Places(self.slots[begin:end], self.rows[begin:end])
        part.spans = {
            ordinal: (starts[begin:end], ends[begin : end + 1] - ends[begin])
            for ordinal, (starts, ends) in self.spans.items()
        }
        return part


def _offset_buffer(ends: Array, width: int) -> pa.Buffer:
    return pa.py_buffer(ends if width == 8 else ends.astype(np.int32))


def _has_values(column: Column) -> bool:
    """Whether the items of a list take any room in their page."""
    return any(True for _ in column.children[0].all_buffers())
