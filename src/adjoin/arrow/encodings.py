"""Decoding columns to plain values and back: views, dictionaries, run ends and extensions, at any depth.

Rows are kept, measured and compared as plain values, because each batch of a stream has its own dictionaries,
and a result has values of several batches. Columns are emitted in the type in which they arrived.
"""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adjoin.errors import SchemaError
from adjoin.kernels.types import Array

Path = tuple[Hashable, ...]
"""A column, and the path from there to a nested value."""
_LEAST_INDEX_BITS = 32
_ENCODED = {pa.string_view().id, pa.binary_view().id, pa.dictionary(pa.int8(), pa.int8()).id}


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the plain values of a column of this type."""
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if is_.is_dictionary(type_) or is_.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    if is_list_view(type_):
        return pa.large_list(_changed_field(type_.value_field, plain_type))
    return _with_child_types(type_, plain_type)


def is_plain(type_: pa.DataType) -> bool:
    """Whether values of this type are plain."""
    if type_.num_fields:
        return bool(type_.equals(plain_type(type_)))
    is_encoded = isinstance(type_, pa.BaseExtensionType) or type_.id in _ENCODED
    return not is_encoded


def declared_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a stream column of this type is emitted: narrow indices and run ends are widened."""
    is_ = pa.types
    if is_.is_dictionary(type_):
        is_narrow = type_.index_type.bit_width < _LEAST_INDEX_BITS
        index_type = pa.int32() if is_narrow else type_.index_type
        return pa.dictionary(index_type, declared_type(type_.value_type), type_.ordered)
    if is_.is_run_end_encoded(type_):
        is_narrow = type_.run_end_type.bit_width < _LEAST_INDEX_BITS
        run_end_type = pa.int32() if is_narrow else type_.run_end_type
        return pa.run_end_encoded(run_end_type, declared_type(type_.value_type))
    if is_list_view(type_):
        make = pa.large_list_view if is_.is_large_list_view(type_) else pa.list_view
        return make(_changed_field(type_.value_field, declared_type))
    return _with_child_types(type_, declared_type)


def _with_child_types(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(type_):
        return pa.struct([_changed_field(field, change) for field in type_])
    if is_.is_map(type_):
        key, item = _changed_field(type_.key_field, change), _changed_field(type_.item_field, change)
        return pa.map_(key, item, keys_sorted=type_.keys_sorted)
    if is_.is_fixed_size_list(type_):
        return pa.list_(_changed_field(type_.value_field, change), type_.list_size)
    if is_.is_large_list(type_):
        return pa.large_list(_changed_field(type_.value_field, change))
    return pa.list_(_changed_field(type_.value_field, change)) if is_.is_list(type_) else type_


def _changed_field(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return field.with_type(change(field.type))


def is_list_view(type_: pa.DataType) -> bool:
    """Whether this is a list view, whose offsets need not be ascending."""
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def has_offsets(type_: pa.DataType) -> bool:
    """Whether this is a string or binary of varying length, stored with offsets."""
    is_ = pa.types
    is_short = is_.is_string(type_) or is_.is_binary(type_)
    return bool(is_short or is_.is_large_string(type_) or is_.is_large_binary(type_))


def offsets_of(array: pa.Array) -> NDArray[np.int32] | NDArray[np.int64]:
    """The offsets of a string, binary, list or map array, one more than its length; respects slices."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    wide = wide or pa.types.is_large_list(array.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


def plain_values(array: pa.Array) -> pa.Array:
    """The plain values of an array."""
    type_, wanted = array.type, plain_type(array.type)
    if is_plain(type_):
        return array
    if isinstance(array, pa.ExtensionArray):
        return plain_values(array.storage)
    if pa.types.is_dictionary(type_):
        return pc.take(plain_values(array.dictionary), array.indices)
    if pa.types.is_run_end_encoded(type_):
        run_ends = array.run_ends.to_numpy().astype(np.int64)
        runs = np.searchsorted(run_ends, array.offset + np.arange(len(array)), side="right")
        return pc.take(plain_values(array.values), pa.array(runs, pa.int64()))
    if is_list_view(type_):
        return _plain_list(array, wanted)
    if not type_.num_fields:
        return array.cast(wanted)
    return _with_children(array, wanted, lambda child, _type, _step: plain_values(child))


def _plain_list(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A list view, whose items may be in any order, as a list."""
    is_null = _is_null(array)
    sizes = array.sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    if is_null is not None:
        sizes = np.where(is_null, 0, sizes)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    begins = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    items = np.repeat(begins - ends[:-1], sizes) + np.arange(int(ends[-1]))
    values = pc.take(plain_values(array.values), pa.array(items))
    return pa.Array.from_buffers(
        wanted, len(array), [_validity(is_null), pa.py_buffer(ends)], children=[values]
    )


class Orders:
    """The orders of ordered dictionaries, by column, so that results have the same order as the input.

    Batches may have different dictionaries if one contains all values of the other, in the same order.
    """

    def __init__(self) -> None:
        self._by_path: dict[Path, pa.Array] = {}

    def note_columns(self, batch: pa.RecordBatch, *path: Hashable) -> None:
        """Record the orders of all columns of a batch.

        Raises:
            SchemaError: The order of a column contradicts an earlier one.
        """
        for field, column in zip(batch.schema, batch.columns, strict=True):
            self.note((*path, field.name), column)

    def note(self, path: Path, array: pa.Array) -> None:
        """Record the orders of a column, or of a part of it.

        Raises:
            SchemaError: The order contradicts an earlier one.
        """
        type_ = array.type
        if not has_order(type_):
            return
        if isinstance(array, pa.ExtensionArray):
            self.note(path, array.storage)
        elif pa.types.is_dictionary(type_):
            if type_.ordered:
                self._by_path[path] = self._merged(path, pc.drop_null(plain_values(array.dictionary)))
            self.note((*path, "values"), array.dictionary)
        elif pa.types.is_struct(type_):
            for number in range(type_.num_fields):
                self.note((*path, number), array.field(number))
        elif pa.types.is_map(type_):
            self.note((*path, 0, 0), array.keys)
            self.note((*path, 0, 1), array.items)
        else:
            self.note((*path, 0), array.values)

    def _merged(self, path: Path, new: pa.Array) -> pa.Array:
        known = self._by_path.get(path)
        if known is None or new.equals(known) or _lies_in(known, new):
            return new
        if _lies_in(new, known):
            return known
        raise SchemaError(
            f"column {_name(path)!r} has the ordered dictionaries {known.to_pylist()!s:.100} and "
            f"{new.to_pylist()!s:.100}, neither of which contains all values of the other in the same order; "
            "give every batch the same dictionary, or cast the column to its values"
        )

    def of(self, path: Path, type_: pa.DataType) -> pa.Array:
        """The dictionary of this column, empty if there was no row yet."""
        return self._by_path.get(path, pa.nulls(0, plain_type(type_.value_type)))

    def dump(self) -> list[tuple[Path, pa.Array]]:
        """All recorded orders."""
        return list(self._by_path.items())

    def load(self, path: Path, order: pa.Array) -> None:
        """Restore an order from `dump`."""
        self._by_path[path] = order


def _name(path: Path) -> str:
    return next(step for step in path if isinstance(step, str))


def has_order(type_: pa.DataType) -> bool:
    """Whether the type contains an ordered dictionary."""
    if isinstance(type_, pa.BaseExtensionType):
        return has_order(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return bool(type_.ordered) or has_order(type_.value_type)
    return any(has_order(type_.field(number).type) for number in range(type_.num_fields))


def _lies_in(some: pa.Array, all_: pa.Array) -> bool:
    """Whether the second array contains all values of the first, in the same order."""
    at = pc.index_in(some, value_set=all_)
    return at.null_count == 0 and bool((np.diff(at.to_numpy(zero_copy_only=False)) > 0).all())


def declared_values(array: pa.Array, type_: pa.DataType, orders: Orders, path: Path) -> pa.Array:
    """Plain values, encoded again as a type whose `plain_type` they have."""
    if array.type.equals(type_):
        return array
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, declared_values(array, type_.storage_type, orders, path))
    if pa.types.is_dictionary(type_):
        return _dictionary_of(array, type_, orders, path)
    if pa.types.is_run_end_encoded(type_):
        values, run_ends = _runs_of(array)
        values = declared_values(values, type_.value_type, orders, (*path, 0))
        return pa.RunEndEncodedArray.from_arrays(run_ends.cast(type_.run_end_type), values, type_)
    if is_list_view(type_):
        offsets = offsets_of(array)
        width = np.int64 if pa.types.is_large_list_view(type_) else np.int32
        make = pa.LargeListViewArray if pa.types.is_large_list_view(type_) else pa.ListViewArray
        values = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        begins, sizes = (offsets[:-1] - offsets[0]).astype(width), np.diff(offsets).astype(width)
        values = declared_values(values, type_.value_type, orders, (*path, 0))
        mask = array.is_null() if array.null_count else None
        return make.from_arrays(pa.array(begins), pa.array(sizes), values, type=type_, mask=mask)
    if not type_.num_fields:
        return array.cast(type_)

    def changed(child: pa.Array, wanted: pa.DataType, step: int) -> pa.Array:
        return declared_values(child, wanted, orders, (*path, step))

    return _with_children(array, type_, changed)


def _dictionary_of(array: pa.Array, type_: pa.DataType, orders: Orders, path: Path) -> pa.Array:
    if type_.ordered:
        values = orders.of(path, type_)
        indices = pc.index_in(array, value_set=values)
    else:
        indices, values = _numbered(array)
    values = declared_values(values, type_.value_type, orders, (*path, "values"))
    return pa.DictionaryArray.from_arrays(indices.cast(type_.index_type), values, ordered=type_.ordered)


def _numbered(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Dictionary indices, and the values they stand for; values that Arrow cannot compare are not shared."""
    try:
        encoded = array.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return pa.array(np.arange(len(array)), mask=_is_null(array)), array
    return encoded.indices, encoded.dictionary


def _runs_of(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Values, and where the run of each ends; each value that Arrow cannot compare is a run of its own."""
    try:
        encoded = pc.run_end_encode(array, run_end_type=pa.int64())
    except pa.ArrowNotImplementedError:
        return array, pa.array(np.arange(1, len(array) + 1))
    return encoded.values, encoded.run_ends


def _is_null(array: pa.Array) -> Array | None:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else None


def _validity(is_null: Array | None) -> pa.Buffer | None:
    return None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))


def _with_children(
    array: pa.Array, type_: pa.DataType, change: Callable[[pa.Array, pa.DataType, int], pa.Array]
) -> pa.Array:
    """A struct, list or map with converted children."""
    buffers = [_validity(_is_null(array))]
    if pa.types.is_struct(type_):
        children = [change(array.field(at), type_.field(at).type, at) for at in range(type_.num_fields)]
    else:
        if pa.types.is_fixed_size_list(type_):
            begin, count = array.offset * type_.list_size, len(array) * type_.list_size
        else:
            offsets = offsets_of(array)
            begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
            buffers.append(pa.py_buffer(np.ascontiguousarray(offsets - offsets[0])))
        children = [change(array.values.slice(begin, count), type_.field(0).type, 0)]
    return pa.Array.from_buffers(type_, len(array), buffers, children=children)


def can_be_decoded(type_: pa.DataType) -> bool:
    """Whether values of this type can be decoded to plain values and encoded again."""
    try:
        plain_values(declared_values(pa.nulls(1, plain_type(type_)), type_, Orders(), ()))
        declared_type(type_)
        _check_order(type_)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return False
    return True


def can_be_numbered(type_: pa.DataType) -> bool:
    """Whether any selection of values can be encoded as exactly this type.

    Values that Arrow cannot compare get a dictionary entry each, for which narrow indices may not suffice.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return can_be_numbered(type_.storage_type)
    if pa.types.is_dictionary(type_):
        is_compared = not plain_type(type_.value_type).num_fields
        return is_compared or bool(type_.index_type.bit_width >= _LEAST_INDEX_BITS)
    return all(can_be_numbered(type_.field(number).type) for number in range(type_.num_fields))


def _check_order(type_: Any) -> None:
    """Raise an ArrowNotImplementedError if the values of an ordered dictionary cannot be compared."""
    if isinstance(type_, pa.BaseExtensionType):
        return _check_order(type_.storage_type)
    if pa.types.is_dictionary(type_):
        if type_.ordered:
            nothing = pa.nulls(0, plain_type(type_.value_type))
            pc.index_in(nothing, value_set=nothing)
        return _check_order(type_.value_type)
    for number in range(type_.num_fields):
        _check_order(type_.field(number).type)
    return None
