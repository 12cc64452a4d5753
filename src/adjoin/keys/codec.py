"""Keys encoded as one int64 column: order-preserving where the type allows it, otherwise hashed.

Everything below the codec (sorting, index, probing) sees only int64. A hashed key is a mere
hint: after a match, `KeyCodec.same` compares the real key columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from adjoin.arrow.encodings import has_offsets, offsets_of
from adjoin.errors import SchemaError
from adjoin.kernels.hashing import chain_slices, chain_words
from adjoin.keys.casts import equal_values, is_comparable, widens

KEY_COLUMN = "_adjoin_key"
_HASH_BITS = 64
_HASH_SEED = 42
"""The seed of Spark's `xxhash64`, by which Spark routes: strings, binaries and integers get the same hash."""
_ORDERED_DIGITS = 18  # decimals with at most this many digits fit into int64
_SIGN = np.int64(np.iinfo(np.int64).min)
_MAGNITUDE = np.int64(np.iinfo(np.int64).max)
_NAN = np.int64(0x7FF8 << 48)

Keys = NDArray[np.int64]


@dataclass(frozen=True)
class KeyCodec:
    """Encodes the key columns of a master, or of a stream joined with it, as int64.

    Attributes:
        columns: Names of the key columns.
        types: Their storage types.
        kind: "identity" (the column is stored as int64 itself), "ordered" (encoded, order preserved) or
            "hashed".
        hash_bits: How many bits of the hash to use; fewer than 64 only to force collisions in tests.
    """

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    kind: str
    hash_bits: int = _HASH_BITS

    @classmethod
    def of(cls, schema: pa.Schema, key_columns: Sequence[str], *, hash_bits: int = _HASH_BITS) -> "KeyCodec":
        """The codec for these columns of the schema; SchemaError if one of them cannot be a key."""
        types = tuple(_storage(schema.field(name).type) for name in key_columns)
        for name, type_ in zip(key_columns, types, strict=True):
            if not (_fits_int64(type_) or _is_hashable(type_)):
                raise SchemaError(
                    f"column {name!r} of type {type_} cannot be a key; cast it to an integer, float, "
                    "decimal, boolean, date, time, timestamp, duration, string or binary"
                )
        kind = "hashed"
        if len(types) == 1 and _fits_int64(types[0]):
            kind = "identity" if _is_int64(types[0]) else "ordered"
        return cls(tuple(key_columns), types, kind, hash_bits)

    @property
    def ordered(self) -> bool:
        """Whether encoded keys sort like the keys, which range predicates need."""
        return self.kind != "hashed"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "hash_bits": self.hash_bits}

    @classmethod
    def from_json(cls, saved: dict[str, Any], schema: pa.Schema, key_columns: Sequence[str]) -> "KeyCodec":
        codec = cls.of(schema, key_columns, hash_bits=int(saved["hash_bits"]))
        if codec.kind != saved["kind"]:
            raise SchemaError(f"key {list(key_columns)} is {saved['kind']!r}, expected {codec.kind!r}")
        return codec

    def encode(self, columns: Sequence[pa.Array]) -> tuple[Keys, NDArray[np.bool_] | None]:
        """The encoded keys, and which of them are valid (None: all). A null in any column is a null key.

        The columns must have the codec's types; see `conform`.
        """
        plain = [_unwrap(column) for column in columns]
        keys = self._hash(plain) if self.kind == "hashed" else _to_int64(plain[0])
        return keys, valid_rows(plain)

    def conform(self, columns: Sequence[pa.Array], *, exact: bool = True) -> list[pa.Array]:
        """A stream's key columns, cast to the master's types.

        Args:
            columns: The columns, in the order of the key.
            exact: Whether every value must exist in the master's type. Otherwise values that do not become
                null, because no key of the master equals them.

        Raises:
            SchemaError: A column has an unsuitable type, or a value that must exist does not.
        """
        if len(columns) != len(self.types):
            raise SchemaError(
                f"the key has {len(self.types)} columns {list(self.columns)}, but {len(columns)} were given"
            )
        named = zip(self.columns, columns, self.types, strict=True)
        return [_conform(name, _unwrap(column), type_, exact) for name, column, type_ in named]

    def same(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> NDArray[np.bool_]:
        """Row by row, whether the keys in two lists of conformed columns are equal; null equals nothing."""
        equal = np.ones(len(left[0]), np.bool_)
        pairs = zip(map(_unwrap, left), map(_unwrap, right), strict=True)
        for (one, other), type_ in zip(pairs, self.types, strict=True):
            valid = valid_rows([one, other])
            if _fits_int64(type_):
                equal &= _to_int64(one) == _to_int64(other)
            else:
                equal &= pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
            if valid is not None:
                equal &= valid
        return equal

    def identify(self, columns: Sequence[pa.Array]) -> NDArray[np.int64]:
        """Number the rows so that two rows share a number if and only if their keys are equal (no nulls)."""
        numbers = np.zeros(len(columns[0]), np.int64)
        for column, type_ in zip(map(_unwrap, columns), self.types, strict=True):
            values = _to_int64(column) if _fits_int64(type_) else _dictionary_codes(column)
            _, codes = np.unique(values, return_inverse=True)
            _, numbers = np.unique(numbers * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
        return numbers.astype(np.int64, copy=False)

    def _hash(self, columns: Sequence[pa.Array]) -> Keys:
        hashes = np.full(len(columns[0]), _HASH_SEED, np.uint64)
        for column in columns:
            _chain(hashes, column)
        if self.hash_bits < _HASH_BITS:
            hashes &= np.uint64((1 << self.hash_bits) - 1)
        return hashes.view(np.int64)


def fixed_values(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a fixed-width array as they are in memory, including those under nulls."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def encoded_values(column: pa.Array | pa.ChunkedArray) -> Keys:
    """The int64 values of a stored column of encoded keys, whatever its Arrow type."""
    return fixed_values(_unwrap(column), np.dtype(np.int64))


def valid_rows(columns: Sequence[pa.Array]) -> NDArray[np.bool_] | None:
    """Which rows have no null in any of the columns; None if there are no nulls."""
    valid: NDArray[np.bool_] | None = None
    for column in columns:
        if column.null_count:
            here = column.is_valid().to_numpy(zero_copy_only=False)
            valid = here if valid is None else valid & here
    return valid


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _unwrap(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _is_int64(type_: pa.DataType) -> bool:
    is_ = pa.types
    return bool(
        is_.is_int64(type_)
        or is_.is_timestamp(type_)
        or is_.is_date64(type_)
        or is_.is_time64(type_)
        or is_.is_duration(type_)
    )


def _fits_int64(type_: pa.DataType) -> bool:
    if pa.types.is_decimal(type_):
        return bool(type_.precision <= _ORDERED_DIGITS)
    is_ = pa.types
    small = is_.is_integer(type_) or is_.is_boolean(type_) or is_.is_floating(type_)
    return bool(small or is_.is_date(type_) or is_.is_time(type_) or _is_int64(type_))


def _is_hashable(type_: pa.DataType) -> bool:
    is_ = pa.types
    return bool(has_offsets(type_) or is_.is_fixed_size_binary(type_) or is_.is_decimal(type_))


def _to_int64(array: pa.Array) -> Keys:
    """Encode a column that `_fits_int64` as int64, preserving its order."""
    type_ = array.type
    if pa.types.is_boolean(type_):
        return np.asarray(array.cast(pa.int8()).fill_null(0).to_numpy(), np.int64)
    if pa.types.is_floating(type_):
        return _float_order(fixed_values(array, np.dtype(f"f{type_.bit_width // 8}")))
    if pa.types.is_decimal(type_):
        return _decimal_units(array)
    sign = "u" if pa.types.is_unsigned_integer(type_) else "i"
    values = fixed_values(array, np.dtype(f"{sign}{type_.bit_width // 8}"))
    if pa.types.is_uint64(type_):
        return values.view(np.int64) ^ _SIGN
    return values.astype(np.int64, copy=False)


def _float_order(values: NDArray[Any]) -> Keys:
    wide = values.astype(np.float64) + 0.0  # makes -0.0 the same as 0.0
    bits = np.where(np.isnan(wide), _NAN, wide.view(np.int64))
    order: Keys = bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)
    return order


def _decimal_units(array: pa.Array) -> Keys:
    width = array.type.bit_width // 8
    if width <= 8:
        return fixed_values(array, np.dtype(f"i{width}")).astype(np.int64, copy=False)
    # With so few digits the low eight bytes hold the whole number; Arrow is little-endian.
    words = fixed_values(array, np.dtype((np.int64, width // 8)))
    return np.ascontiguousarray(words[:, 0])


def _chain(hashes: NDArray[np.uint64], array: pa.Array) -> None:
    if _fits_int64(array.type):
        chain_words(hashes, _to_int64(array).view(np.uint64))
    else:
        chain_slices(hashes, *_bytes_of(array))


def _bytes_of(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """The bytes of a string, binary or decimal column, and where each value begins."""
    buffers = array.buffers()
    if has_offsets(array.type):
        empty = buffers[2] is None or buffers[2].size == 0
        return np.empty(0, np.uint8) if empty else np.frombuffer(buffers[2], np.uint8), offsets_of(array)
    width = array.type.bit_width // 8
    data = np.empty(0, np.uint8) if buffers[1] is None else np.frombuffer(buffers[1], np.uint8)
    return data, (array.offset + np.arange(len(array) + 1)) * width


def _dictionary_codes(array: pa.Array) -> NDArray[np.int64]:
    if not has_offsets(array.type):
        width = array.type.bit_width // 8
        values = fixed_values(array, np.dtype(f"V{width}")) if width else np.zeros(len(array), "V1")
        array = pa.array([bytes(value) for value in values], pa.binary())
    return np.asarray(array.dictionary_encode().indices.to_numpy(), np.int64)


def _conform(name: str, column: pa.Array, type_: pa.DataType, exact: bool) -> pa.Array:
    if column.type.equals(type_):
        return column
    if not (widens if exact else is_comparable)(column.type, type_):
        raise SchemaError(
            f"key column {name!r} is {type_} in the master but {column.type} in the stream; "
            f"cast the stream's column to {type_} before the join"
        )
    try:
        return column.cast(type_) if exact else equal_values(column, type_)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"key column {name!r} is {type_} in the master, and a value of the stream's {column.type} "
            f"does not fit ({error}); cast the stream's column before the join"
        ) from error
