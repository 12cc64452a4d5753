"""Reading a whole version and trusting none of it."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import AdjoinError, CorruptionError
from adjoin.keys.casts import strings_as_bytes
from adjoin.keys.codec import encoded_values
from adjoin.master import files
from adjoin.master.data_file import DataFile, checksum_of, read_pages
from adjoin.master.filter import CheckedFilter, KeyFilter
from adjoin.master.index import CheckedIndex, PageIndex
from adjoin.master.manifest import IndexFile, Manifest
from adjoin.master.versions import Home
from adjoin.memory.arena import BLOCK_BYTES

_CHUNK_BYTES = 16 << 20
_CURE = "restore it from a copy, or open an older version"


def load_index(home: Home, manifest: Manifest) -> PageIndex:
    """Read and verify the index of a version."""
    path = index_path(home, manifest.index)
    with _read_as_arrow(path):
        index = PageIndex.from_bytes(read_verified(path, manifest.index))
    require_plausible(path, manifest, index)
    return index


def load_filter(home: Home, manifest: Manifest) -> KeyFilter | None:
    """Read and verify the filter of a version, if it has one."""
    file = manifest.filter
    if file is None:
        return None
    path = index_path(home, file)
    with _read_as_arrow(path):
        return KeyFilter.from_bytes(read_verified(path, file), file.capacity)


class MappedIndex:
    """Index and filter of a version, opened once for all readers in this process.

    The checked ones are memory-mapped, so processes share their memory through the system's page cache. Their
    contents are verified on every use.
    """

    def __init__(self, home: Home, manifest: Manifest) -> None:
        self._home = home
        self._manifest = manifest

    @cached_property
    def index(self) -> PageIndex:
        return load_index(self._home, self._manifest)

    @cached_property
    def filter(self) -> KeyFilter | None:
        return load_filter(self._home, self._manifest)

    @cached_property
    def checked_index(self) -> CheckedIndex:
        mapped = _MappedIndexFile(index_path(self._home, self._manifest.index), self._manifest.index)
        with _read_as_arrow(mapped.path):
            index = CheckedIndex(mapped)
        require_plausible(mapped.path, self._manifest, index)
        return index

    @cached_property
    def checked_filter(self) -> CheckedFilter | None:
        file = self._manifest.filter
        if file is None:
            return None
        mapped = _MappedIndexFile(index_path(self._home, file), file)
        with _read_as_arrow(mapped.path):
            return CheckedFilter(mapped)


class _MappedIndexFile:
    """A memory-mapped file, verified as a whole when it is opened."""

    def __init__(self, path: str, file: IndexFile) -> None:
        self.path = path
        descriptor = files.open_to_read(path)
        try:
            # Copy-on-write, because kernels are compiled for writable arrays; nothing ever writes to it.
            self._mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        except ValueError as error:
            raise CorruptionError(f"{path} is empty; {_CURE}") from error
        except OSError as error:
            raise files.storage_error(path, error) from error
        finally:
            os.close(descriptor)
        _verify_checksum(path, file, self._mapping)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._mapping, np.uint8)

    def check(self) -> None:
        """Raise a CorruptionError if the file has become shorter."""
        size = self._mapping.size()
        if size < len(self.bytes):
            raise CorruptionError(
                f"{self.path} is truncated: {size} of {len(self.bytes)} bytes are left; {_CURE}"
            )

    def damage(self, where: str) -> CorruptionError:
        return CorruptionError(f"{self.path}: {where} is damaged (checksum differs); {_CURE}")


@contextmanager
def _read_as_arrow(path: str) -> Iterator[None]:
    """Report what Arrow cannot read as damage to this file."""
    try:
        yield
    except (pa.ArrowException, KeyError, ValueError, AttributeError, OSError) as error:
        if isinstance(error, AdjoinError):
            raise
        raise CorruptionError(f"{path} is damaged ({type(error).__name__}: {error}); {_CURE}") from error


def require_plausible(path: str, manifest: Manifest, index: PageIndex | CheckedIndex) -> None:
    """Raise CorruptionError unless pages are in key order and each has rows and lies within its file."""
    fault = _fault_of(manifest, len(index), index.parts())
    if fault:
        raise CorruptionError(f"{path}: the index is inconsistent: {fault}; {_CURE}")


def _fault_of(manifest: Manifest, pages: int, parts: Iterator[PageIndex]) -> str:
    """What is wrong with the entries of an index; empty if nothing is."""
    if pages != manifest.pages:
        return f"it has {pages} pages, but the manifest says {manifest.pages}"
    ends = [(file.bytes - file.footer_bytes) // BLOCK_BYTES for file in manifest.files]
    end_blocks = np.array(ends, np.int64)
    rows, before = 0, np.iinfo(np.int64).min
    for part in parts:
        if part.fault():
            return part.fault()
        if before > part.first[:1].min(initial=np.iinfo(np.int64).max):
            return "pages are not in key order"
        if part.file.max(initial=-1) >= len(end_blocks):
            return "a page lies in a file that the manifest does not name"
        if (part.block.astype(np.int64) + part.blocks > end_blocks[part.file]).any():
            return "a page ends beyond its file"
        rows += int(part.rows.sum(dtype=np.int64))
        before = int(part.last[-1:].max(initial=before))
    return "" if rows == manifest.rows else f"it has {rows} rows, but the manifest says {manifest.rows}"


def verify(home: Home, version: int) -> None:
    """Raise CorruptionError unless everything that the version names is as it was written."""
    manifest = home.read_manifest(version)
    _verify_relation(home, manifest)
    if manifest.latest is not None:
        _verify_relation(home, manifest.latest.relation)


def _verify_relation(home: Home, manifest: Manifest) -> None:
    index = load_index(home, manifest)
    key_filter = load_filter(home, manifest)
    _verify_index(index_path(home, manifest.index), manifest, index)
    for file in manifest.files:
        file.verify_envelope()
    _Pages(home, manifest, index, key_filter).verify()


def index_path(home: Home, file: IndexFile) -> str:
    """The path of an index or filter file."""
    return os.path.join(home.index_dir, file.name)


def read_verified(path: str, file: IndexFile) -> bytearray:
    """Read an index or filter file; CorruptionError if its checksum differs."""
    data = files.read_file(path)
    _verify_checksum(path, file, data)
    return data


def _verify_checksum(path: str, file: IndexFile, data: Any) -> None:
    if checksum_of(data) != file.checksum:
        raise CorruptionError(f"{path} is damaged (checksum differs); {_CURE}")


def _verify_index(path: str, manifest: Manifest, index: PageIndex) -> None:
    try:
        for ordinal, file in enumerate(manifest.files):
            _check_places(file, index.take(index.file == ordinal))
    except AssertionError as error:
        raise CorruptionError(f"{path}: the index is inconsistent: {error}; {_CURE}") from error


def _check_places(file: DataFile, pages: PageIndex) -> None:
    order = np.argsort(pages.block)
    starts = pages.block[order].astype(np.int64)
    ends = starts + pages.blocks[order]
    assert (ends[:-1] <= starts[1:]).all(), f"two pages of {file.name} overlap"
    assert (starts * BLOCK_BYTES >= file.header_bytes).all(), f"a page of {file.name} lies in its header"
    assert (ends * BLOCK_BYTES <= file.bytes - file.footer_bytes).all(), (
        f"a page of {file.name} ends in its footer"
    )


class _Pages:
    def __init__(
        self, home: Home, manifest: Manifest, index: PageIndex, key_filter: KeyFilter | None
    ) -> None:
        self._home = home
        self._manifest = manifest
        self._index = index
        self._filter = key_filter
        # Spark allows strings that are not UTF-8, and bytes that are as they were written are not damaged.
        self._stored = manifest.stored.with_types(strings_as_bytes)

    def verify(self) -> None:
        ends = np.cumsum(self._index.blocks, dtype=np.int64) * BLOCK_BYTES
        chunks = np.split(np.arange(len(ends)), np.flatnonzero(np.diff(ends // _CHUNK_BYTES)) + 1)
        for pages in chunks:
            if len(pages):
                self._verify_pages(pages)

    def _verify_pages(self, pages: NDArray[np.int64]) -> None:
        table = read_pages(self._stored, self._manifest.files, self._index, pages)
        try:
            table.validate(full=True)
        except pa.ArrowInvalid as error:
            where = self._where(int(pages[0]))
            raise CorruptionError(f"{where}: pages from here on are not valid Arrow: {error}") from error
        column = table.column(self._manifest.key_column)
        rows = np.array([len(chunk) for chunk in column.chunks], np.int64)
        self._require(pages, rows == self._index.rows[pages], "does not have as many rows as the index says")
        keys = encoded_values(column)
        starts = np.cumsum(rows) - rows
        firsts, lasts = keys[starts], keys[starts + rows - 1]
        self._require(pages, firsts == self._index.first[pages], "does not begin with the key in the index")
        self._require(pages, lasts == self._index.last[pages], "does not end with the key in the index")
        page_of = np.repeat(np.arange(len(pages)), rows)
        self._require_rows(pages, page_of[1:], keys[:-1] <= keys[1:], "is not sorted")
        self._verify_keys(pages, page_of, table, keys)

    def _verify_keys(
        self, pages: NDArray[np.int64], page_of: NDArray[np.int64], table: pa.Table, keys: NDArray[np.int64]
    ) -> None:
        key_columns = [table.column(name).combine_chunks() for name in self._manifest.key]
        encoded, valid = self._manifest.codec.encode(key_columns)
        if valid is not None:
            self._require_rows(pages, page_of, valid, "has null keys")
        self._require_rows(pages, page_of, encoded == keys, "has keys that differ from their encoding")
        if self._filter is not None and self._manifest.filter is not None:
            found = self._filter.contains(keys)
            if not found.all():
                path = os.path.join(self._home.index_dir, self._manifest.filter.name)
                raise CorruptionError(f"{path}: the filter lacks {int((~found).sum())} keys; {_CURE}")

    def _require_rows(
        self, pages: NDArray[np.int64], page_of: NDArray[np.int64], good: NDArray[np.bool_], fault: str
    ) -> None:
        if not good.all():
            ordinal = int(page_of[np.argmin(good)])
            raise CorruptionError(f"{self._where(int(pages[ordinal]))} {fault}; restore the file from a copy")

    def _require(self, pages: NDArray[np.int64], good: NDArray[np.bool_], fault: str) -> None:
        self._require_rows(pages, np.arange(len(pages)), good, fault)

    def _where(self, page: int) -> str:
        file = self._manifest.files[int(self._index.file[page])]
        return f"{file.path}: page {page} at byte {int(self._index.block[page]) * BLOCK_BYTES}"
